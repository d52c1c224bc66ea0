"""Act as another user in a child process that executes no program. The playbooks' modules use this file too.

It is for what is done as the jobs' user outside of the sandbox of a job. Through a program that runs as this user
without one, tasks could get out of theirs: /proc/PID/root and /proc/PID/mem of a process are open to its user. They are
not if the process has changed its IDs and has executed no program since, for it is not "dumpable" then (prctl(2)).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, Callable

#: Python's audit events of functions that execute a program.
_PROGRAMS = ("os.exec", "os.posix_spawn", "os.system", "subprocess.Popen")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class NoAnswer(OSError):
    """The child has not answered in time."""


class ChildDied(NoAnswer):
    """The child was killed, or its work has raised an exception other than OSError."""


def call(work: Callable[[], Any], patience: float, readable_fd: int = 0, place: str | None = None) -> Any:
    """Call ``work`` in a child process and return its result, which must be JSON.

    ``readable_fd``: the one descriptor besides 0, 1 and 2 that ``work`` may use; as long as a child that hangs has the
    others, their locks are held. ``place``: the directory in which it works. Raises OSError as ``work`` did, NoAnswer
    if there is no result within ``patience`` seconds, and ChildDied; the last two with ``place`` as their file.
    """
    reader, writer = os.pipe()
    # A signal that arrives before the child resets its handlers would make the child undo the parent's work.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        _child(work, writer, readable_fd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.close(writer)
    try:
        answer = _read(reader, patience, place)
    finally:
        os.close(reader)
        _reap(child)
    if "error" in answer:
        raise OSError(*answer["error"])
    return answer["value"]


def drop_root(uid: int, gid: int, groups: Iterable[int] = ()) -> None:
    """Become another user for the rest of this process, if it is root's, and refuse to execute programs from now on."""
    sys.addaudithook(_refuse_programs)
    if os.geteuid() == 0:
        os.setgroups([*groups])
        os.setgid(gid)
        os.setuid(uid)


def _refuse_programs(event: str, _: tuple[Any, ...]) -> None:
    if event in _PROGRAMS:
        raise PermissionError(errno.EPERM, "a process of the jobs' user must not execute a program")


def _child(work: Callable[[], Any], writer: int, readable_fd: int) -> None:
    """Do the work and exit. Never returns, so that none of the parent's clean-up runs in the child."""
    with contextlib.suppress(BaseException):
        os.setsid()
        close_all_but(0, 1, 2, writer, readable_fd)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            answer = {"value": work()}
        except OSError as error:
            answer = {"error": (error.errno, error.strerror or str(error), error.filename)}
        data = memoryview(json.dumps(answer).encode())
        while data:
            data = data[os.write(writer, data) :]
    os._exit(0)


def close_all_but(*kept: int) -> None:
    """Close all descriptors of this process but these."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers, and the last one is that of the listing
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _read(reader: int, patience: float, place: str | None) -> dict[str, Any]:
    deadline = time.monotonic() + patience
    found = b""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(reader, 65536)
        if not data:
            try:
                return dict(json.loads(found))
            except ValueError:
                raise ChildDied(errno.ECHILD, "a child process died", place) from None
        found += data
    raise NoAnswer(errno.ETIMEDOUT, f"no answer for {patience:.0f} s", place)


def _reap(child: int) -> None:
    """Wait briefly for the child to end, then kill it and its children. What hangs in the kernel is left to init."""
    for _ in range(200):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has not begun its session yet
        os.kill(child, signal.SIGKILL)
    time.sleep(0.05)
    os.waitpid(child, os.WNOHANG)
