"""Wait until nodes are ready: sshd answers and systemd has finished booting."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

from tfctl.errors import TfctlError, Unreachable
from tfctl.lab import node as machines
from tfctl.lab import process
from tfctl.lab.host import run
from tfctl.lab.spec import USER, LabNode, Progress

LIMIT_S = 90.0
_SETTLED = ("running", "degraded")


@dataclass(frozen=True)
class BootState:
    """``state``: the output of ``systemctl is-system-running``, or "" with the ``fault``."""

    node: LabNode
    state: str
    fault: str = ""


def wait(nodes: Sequence[LabNode], progress: Progress, limit: float = LIMIT_S) -> None:
    """Raise Unreachable if nodes are not ready after ``limit`` seconds. It names them and their last messages."""
    if not nodes:
        return
    over = Event()  # Ctrl-C ends the waiting in every thread
    with ThreadPoolExecutor(len(nodes)) as pool, ExitStack() as leaving:
        leaving.callback(over.set)
        answers = list(pool.map(lambda node: _settle(node, time.monotonic() + limit, over), nodes))
    for answer in answers:
        if answer.state == "degraded":
            progress(f"{answer.node.name}: degraded, a unit failed; see `systemctl --failed` there")
    silent = [answer for answer in answers if not answer.state]
    if silent:
        told = "; ".join(f"{answer.node.name} ({answer.node.address}): {answer.fault}" for answer in silent)
        last = machines.log_tail(silent[0].node)
        raise Unreachable(
            f"{len(silent)} of {len(nodes)} nodes are not ready: {told}",
            f"Its console: {silent[0].node.console}\n{last}".strip(),
        )


def ssh(node: LabNode, command: Sequence[str]) -> list[str]:
    """Return an ssh command that uses only the lab's own key and known_hosts."""
    options = ["BatchMode=yes", "ConnectTimeout=5", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes"]
    options.append(f"UserKnownHostsFile={node.lab.known_hosts}")
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-F", "none", "-i", str(node.lab.key), *words, f"{USER}@{node.address}", "--", *command]


def banner(node: LabNode, limit: float) -> str:
    """Return sshd's banner, or "" if there is none within ``limit`` seconds."""
    try:
        with socket.create_connection((node.address, 22), timeout=limit) as connection:
            text = connection.recv(64).decode(errors="replace")
    except OSError:
        return ""
    return text.strip() if text.startswith("SSH-") else ""


def _settle(node: LabNode, end: float, over: Event) -> BootState:
    fault = "no SSH banner on port 22"
    while time.monotonic() < end and not over.wait(0.05):
        if banner(node, limit=1.0):
            state, fault = _system_state(node, end - time.monotonic())
            if state in _SETTLED:
                return BootState(node, state)
        elif not process.of_node(node):
            return BootState(node, "", "it shut down again")
    return BootState(node, "", fault)


def _system_state(node: LabNode, limit: float) -> tuple[str, str]:
    """Return the state and ssh's last line. pam_nologin(8) rejects users until systemd-user-sessions.service ran."""
    command = ssh(node, ["systemctl", "is-system-running", "--wait"])
    try:
        done = run(command, timeout=max(5.0, limit), check=False)
    except TfctlError as fault:  # still starting units at the limit
        return "", fault.message
    said = (done.stderr or done.stdout).strip().splitlines()
    return done.stdout.strip(), said[-1] if said else f"ssh ended with {done.returncode}"
