"""The processes of a node on this machine: its keeper and systemd-nspawn. What runs inside ends with them.

A node is found by the machine name on the command line, never by a number from a file. Signals go through a pidfd that
was looked at after it was opened, so that a number used again is never hit.
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

from tfctl.lab.boot import kept_machine
from tfctl.lab.host import which
from tfctl.lab.spec import Node, is_machine

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    machine: str
    nspawn: bool  # else the keeper


def detach(command: Sequence[str], log: Path) -> None:
    """In a session of its own, child of PID 1: it outlives us, and its end is nobody's zombie."""
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


def of_lab(name: str) -> list[Process]:
    """Keepers first: one whose node is killed before it might start the node again."""
    found = [process for process in _all() if is_machine(name, process.machine)]
    return sorted(found, key=lambda process: (process.nspawn, process.pid))


def of_node(node: Node) -> list[Process]:
    return [process for process in of_lab(node.lab.name) if process.machine == node.machine]


def end(processes: Sequence[Process], number: signal.Signals, limit: float) -> bool:
    """Signals all and waits. SIGTERM asks a systemd-nspawn to shut its node down, SIGKILL is a power cut.

    False when some still run after ``limit`` seconds.
    """
    with ExitStack() as stack:
        handles = [stack.enter_context(_handle(process)) for process in processes]
        for handle in handles:
            with suppress(ProcessLookupError):
                if handle is not None:
                    signal.pidfd_send_signal(handle, number)
        deadline = time.monotonic() + limit
        return all(handle is None or _ended(handle, deadline - time.monotonic()) for handle in handles)


def _all() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))):
            yield process


def _read(pid: int) -> Process | None:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (ProcessLookupError, FileNotFoundError):
        return None
    if machine := kept_machine(words):
        return Process(pid, machine, nspawn=False)
    named = [word.partition("=")[2] for word in words if word.startswith("--machine=")]
    if named and Path(words[0]).name == "systemd-nspawn":
        return Process(pid, named[0], nspawn=True)
    return None


@contextmanager
def _handle(process: Process) -> Iterator[int | None]:
    """A pidfd, or None when the process is gone or its number is another's."""
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
    poll.register(handle, select.POLLIN)  # readable when the process has ended: pidfd_open(2)
    return bool(poll.poll(max(0.0, limit) * 1000))
