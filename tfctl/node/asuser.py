"""Run work as the jobs' user, in a child process that has dropped root for good.

Root never acts in a directory that this user can write to, where a planted link could redirect it.
"""

from __future__ import annotations

import errno
import os
import pwd
from typing import Any, Callable

from . import forked, wire
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


def as_user(
    system: System,
    work: Callable[[], Any],
    directory: str = "/",
    patience: float = CHILD_TIMEOUT_S,
    readable_fd: int = 0,
) -> Any:
    """Call ``work`` as the jobs' user and return its result, which must be JSON.

    Root enters ``directory`` before it drops its rights. ``readable_fd``: see `forked.call`. Raises RequestRefused as
    ``work`` did, for an error of the operating system, or if there is no answer within ``patience`` seconds.
    """
    user = system.user()

    def answer() -> dict[str, Any]:
        try:
            os.chdir(directory)
            _drop_root(user)
            return {"value": work()}
        except RequestRefused as refused:
            return {"error": wire.encode(refused.error)}
        except OSError:
            raise
        except BaseException as error:
            what = f"{type(error).__name__} as user {user.pw_name}: {error}"
            return {"error": wire.encode(wire.Error(Exit.FAILED, what))}

    try:
        found = forked.call(answer, patience, readable_fd)
    except forked.ChildDied:
        raise RequestRefused(Exit.FAILED, f"a child on {host()} died") from None
    except forked.NoAnswer:
        message = f"a file system on {host()} has not answered for {patience:.0f} s"
        raise RequestRefused(Exit.PREFLIGHT, message, _LOOK) from None
    except OSError as error:
        raise os_error(error, f"as user {user.pw_name}") from None
    if "error" in found:
        raise RequestRefused.of(wire.decode(wire.Error, found["error"]))
    return found["value"]


def become_user(system: System) -> None:
    """Drop root for the rest of this process, for good. Raises RequestRefused."""
    _drop_root(system.user())


def os_error(error: OSError, what: str) -> RequestRefused:
    """Convert an OSError to RequestRefused with exit 8: the host is not fit."""
    place = f": {error.filename}" if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, _LOOK)
    return RequestRefused(Exit.PREFLIGHT, f"{what} on {host()}: {error.strerror or error}{place}", remedy)


def _drop_root(user: pwd.struct_passwd) -> None:
    os.umask(0o027)
    forked.drop_root(user.pw_uid, user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid))
    os.environ["HOME"] = user.pw_dir
