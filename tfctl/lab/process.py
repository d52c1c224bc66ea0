"""The processes of a node on this machine: its supervisor and systemd-nspawn. All else in the node ends with them.

A node is found by the machine name on the command line, never by a stored pid. Signals go through a pidfd whose process
is checked after it was opened, so they never reach another process that reuses the pid.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tfctl.lab.boot import supervised_machine
from tfctl.lab.host import which
from tfctl.lab.spec import LabNode, is_machine

_PROC = Path("/proc")


@dataclass(frozen=True)
class LabProcess:
    pid: int
    machine: str
    nspawn: bool  # otherwise it is the supervisor


def detach(command: Sequence[str], log: Path) -> None:
    """Start a command in its own session as a child of PID 1: it outlives us and leaves no zombie."""
    with log.open("ab") as output:
        subprocess.run(
            [which("setsid") or "setsid", "--fork", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            check=True,
            timeout=10,
        )


def of_lab(name: str) -> list[LabProcess]:
    """Return the lab's processes, supervisors first: a supervisor that outlives its node might start the node again."""
    found = [process for process in _all() if is_machine(name, process.machine)]
    return sorted(found, key=lambda process: (process.nspawn, process.pid))


def of_node(node: LabNode) -> list[LabProcess]:
    return [process for process in of_lab(node.lab.name) if process.machine == node.machine]


def end(processes: Sequence[LabProcess], number: signal.Signals, limit: float) -> bool:
    """Signal all and wait. SIGTERM asks systemd-nspawn to shut its node down; SIGKILL is like a power cut.

    Return False if some still run after ``limit`` seconds.
    """
    with ExitStack() as stack:
        handles = [stack.enter_context(_handle(process)) for process in processes]
        for handle in handles:
            with suppress(ProcessLookupError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, number)
        deadline = time.monotonic() + limit
        return all(handle is None or _ended(handle, deadline - time.monotonic()) for handle in handles)


def _all() -> Iterator[LabProcess]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))):
            yield process


def _read(pid: int) -> LabProcess | None:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (ProcessLookupError, FileNotFoundError):
        return None
    if machine := supervised_machine(words):
        return LabProcess(pid, machine, nspawn=False)
    named = [word.partition("=")[2] for word in words if word.startswith("--machine=")]
    if named and Path(words[0]).name == "systemd-nspawn":
        return LabProcess(pid, named[0], nspawn=True)
    return None


@contextmanager
def _handle(process: LabProcess) -> Iterator[int | None]:
    """Yield a pidfd, or None if the process is gone or its pid belongs to another."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle if _read(process.pid) == process else None
    finally:
        os.close(handle)


def _ended(handle: int, limit: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)  # readable once the process has ended: pidfd_open(2)
    return bool(poll.poll(max(0.0, limit) * 1000))
