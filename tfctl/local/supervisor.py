"""Run one task and leave nothing of it behind. A separate program: `python -I -S supervisor.py MODE GRACE WORD...`

Its stdin is a socket to tfctl. On `t`, on SIGTERM, or when the socket closes (tfctl may have died), it ends the task
as systemd does with KillMode=MODE (systemd.kill(5)). mixed: SIGTERM to the main process, then SIGKILL to everything
once that has ended or GRACE seconds have passed. control-group: SIGTERM to all processes, again to those that outlive
the main process, and SIGKILL after GRACE seconds. On `k` it sends SIGKILL at once. Finally it writes the exit code, or
minus the signal number.

On Linux, all processes that the task leaves behind become children of this one (PR_SET_CHILD_SUBREAPER), however often
it forked. Elsewhere they are found by process group and by their environment variables, as shown by `ps`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
#: Python ignores these signals; reset them to their defaults for the task.
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)
#: A process that survives SIGKILL for this long hangs in the kernel.
_KILL_S = 10.0


def main(mode: str, grace: float, words: list[str]) -> None:
    """Run the command to its end."""
    _adopt_orphans()
    signals = _signal_pipe()
    try:
        pid = os.posix_spawnp(
            words[0],
            words,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigdef=_DEFAULTS,
        )
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", flush=True)
        _report(127 if isinstance(error, FileNotFoundError) else 126)
        return
    group = mode == "control-group"
    code, at_once = _watch(pid, signals, grace, group)
    if group and not at_once:
        _await_the_rest(pid, grace)
    _kill_the_rest(pid)
    _report(code)


def _watch(pid: int, signals: int, grace: float, group: bool) -> tuple[int, bool]:
    """Wait for the task, and end it when asked. Return its exit code, and whether it was to end at once."""
    listening, kill_at, at_once = [0, signals], float("inf"), False
    while (code := _ended(pid)) is None:
        wait = None if kill_at == float("inf") else max(0.0, kill_at - time.monotonic())
        ready, _, _ = select.select(listening, [], [], wait)
        word = os.read(0, 1) if 0 in ready else None
        if word == b"":
            listening.remove(0)
        asked = signals in ready and signal.SIGTERM in os.read(signals, 64)
        if (asked or word is not None) and kill_at == float("inf"):
            _signal(pid, signal.SIGTERM, group)
            kill_at = time.monotonic() + grace
        if word == b"k":
            kill_at, at_once = 0.0, True
        if time.monotonic() >= kill_at:
            _signal(pid, signal.SIGKILL, group)
            kill_at = time.monotonic() + _KILL_S
    return code, at_once


def _ended(pid: int) -> int | None:
    """Return the task's exit code, or None while it runs. Reaps orphans that have ended."""
    with suppress(ChildProcessError):
        while True:
            found, status = os.waitpid(-1, os.WNOHANG)
            if found == pid:
                return os.waitstatus_to_exitcode(status)
            if not found:
                return None
    return None


def _await_the_rest(group: int, grace: float) -> None:
    """Send SIGTERM to what the main process has left, and wait until it has ended, until ``grace`` is over or `k`."""
    _signal(group, signal.SIGTERM, group=True)
    until, listening = time.monotonic() + grace, [0]
    while _exists(group) and time.monotonic() < until:
        if select.select(listening, [], [], 0.02)[0]:
            word = os.read(0, 1)
            if word == b"k":
                return
            listening = listening if word else []
        _ended(0)


def _exists(group: int) -> bool:
    """Return whether a process group has a process that runs or that nobody has waited for yet."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        return False
    return True


def _kill_the_rest(pid: int) -> None:
    """Send SIGKILL to what the task left until nothing remains. A killed process's children show up in later rounds."""
    end = time.monotonic() + _KILL_S
    _signal(pid, signal.SIGKILL, group=True)
    while left := [*(_children() if sys.platform == "linux" else processes_by_environment())]:
        for each in left:
            _signal(each, signal.SIGKILL)
        _ended(0)
        if time.monotonic() > end:
            return
        time.sleep(0.01)


def _children() -> Iterator[int]:
    """Yield this process's children, from /proc (proc_pid_stat(5))."""
    for name in os.listdir("/proc"):  # noqa: PTH208  Path.glob raises an error if a process ends meanwhile
        with suppress(OSError):
            stat = Path("/proc", name, "stat").read_text(errors="replace") if name.isdecimal() else ""
            if stat and int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                yield int(name)


def processes_by_environment() -> Iterator[int]:
    """Yield the processes whose environment shows that they belong to this task."""
    marks = [f"{name}={os.environ.get(name)}" for name in ("TFCTL_RUN", "TFCTL_ROLE", "TFCTL_INDEX")]
    ask = ["ps", "-A", "-E", "-ww", "-o", "pid=", "-o", "command="]
    shown = subprocess.run(ask, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, errors="replace")
    for line in shown.stdout.splitlines():
        number, *words = line.split()
        if all(mark in words for mark in marks) and int(number) != os.getpid():
            yield int(number)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _signal_pipe() -> int:
    """Return a file descriptor from which SIGCHLD and SIGTERM are read, one byte each."""
    ours, its = os.pipe()
    os.set_blocking(its, False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(its, warn_on_full_buffer=False)
    return ours


def _signal(pid: int, number: int, group: bool = False) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        (os.killpg if group else os.kill)(pid, number)


def _report(code: int) -> None:
    with suppress(OSError):
        os.write(0, b"%d\n" % code)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
