"""Run work as the jobs' user, in a child process that has dropped root for good.

Root never acts in a directory that this user can write to, where a planted link could redirect it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import select
import signal
import time
from typing import Any, Callable

from . import wire
from .exits import Exit
from .session import RequestRefused
from .system import PROVISION, System, host

#: Seconds to wait for the child's answer: a hung network file system must not hang the start.
CHILD_TIMEOUT_S = 60.0
_LOOK = "check that file system; run on the host: findmnt; dmesg"
_ROOM = "make room there; tfctl prune deletes jobs that are over"
_REMEDIES = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EACCES: PROVISION, errno.EPERM: PROVISION,
    errno.EROFS: "mount it read-write there (mount -o remount,rw), or choose another directory",
}  # fmt: skip
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def as_user(
    system: System,
    work: Callable[[], Any],
    directory: str = "/",
    patience: float = CHILD_TIMEOUT_S,
    readable_fd: int = 0,
) -> Any:
    """Call ``work`` as the jobs' user and return its result, which must be JSON.

    Root enters ``directory`` before it drops its rights. ``readable_fd``: the one descriptor besides 0, 1 and 2 that
    ``work`` may use; as long as a child that hangs has the others, their locks are held. Raises RequestRefused as
    ``work`` did, for an error of the operating system, or if there is no answer within ``patience`` seconds.
    """
    user = system.user()
    reader, writer = os.pipe()
    # A signal that arrives before the child resets its handlers would make the child undo the parent's work.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        _child(user, work, directory, writer, readable_fd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.close(writer)
    try:
        answer = _read(reader, patience)
    finally:
        os.close(reader)
        _reap(child)
    if "error" in answer:
        raise RequestRefused.of(wire.decode(wire.Error, answer["error"]))
    return answer["value"]


def become_user(system: System) -> None:
    """Drop root for the rest of this process, for good. Raises RequestRefused."""
    _drop_root(system.user())


def os_error(error: OSError, what: str) -> RequestRefused:
    """Convert an OSError to RequestRefused with exit 8: the host is not fit."""
    place = f": {error.filename}" if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, _LOOK)
    return RequestRefused(Exit.PREFLIGHT, f"{what} on {host()}: {error.strerror or error}{place}", remedy)


def _close_all_but(*kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers, and the last one is that of the listing
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _child(user: pwd.struct_passwd, work: Callable[[], Any], directory: str, writer: int, readable_fd: int) -> None:
    """Run the work and exit. Never returns, so that none of the parent's clean-up runs in the child."""
    try:
        os.setsid()
        _close_all_but(0, 1, 2, writer, readable_fd)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.chdir(directory)
        _drop_root(user)
        answer: dict[str, Any] = {"value": work()}
    except RequestRefused as refused:
        answer = _failure(refused.error)
    except OSError as error:
        answer = _failure(os_error(error, f"as user {user.pw_name}").error)
    except BaseException as error:
        answer = _failure(wire.Error(Exit.FAILED, f"{type(error).__name__} as user {user.pw_name}: {error}"))
    with contextlib.suppress(BaseException):
        data = memoryview(json.dumps(answer).encode())
        while data:
            data = data[os.write(writer, data) :]
    os._exit(0)


def _drop_root(user: pwd.struct_passwd) -> None:
    os.umask(0o027)
    if os.geteuid() == 0:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    os.environ["HOME"] = user.pw_dir


def _read(reader: int, patience: float) -> dict[str, Any]:
    deadline = time.monotonic() + patience
    found = b""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    while poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        data = os.read(reader, 65536)
        if not data:
            return dict(json.loads(found)) if found else _failure(wire.Error(Exit.FAILED, f"a child on {host()} died"))
        found += data
    message = f"a file system on {host()} has not answered for {patience:.0f} s"
    return _failure(wire.Error(Exit.PREFLIGHT, message, _LOOK))


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


def _failure(error: wire.Error) -> dict[str, Any]:
    """Return the child's answer in place of a value."""
    return {"error": wire.encode(error)}
