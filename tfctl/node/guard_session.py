"""Serve a request of a job's guard as root: the few that it needs, about its own job.

systemd runs this for each connection to the guard's local socket, with the connection as stdin and stdout.
"""

from __future__ import annotations

import os
import posixpath
import socket
import struct
from collections.abc import Sequence

from . import names, wire
from .__main__ import serve
from .exits import Exit
from .session import RequestRefused
from .system import System, host

#: struct ucred of the kernel: the process, user and group at the other end of a connection (unix(7)).
_PEER = struct.Struct("3i")
#: The hierarchies of cgroups in which systemd has a cgroup for each unit: that of version 2 and, with version 1, its
#: own one. In hybrid mode both exist (cgroups(7)).
_HIERARCHIES = ("", "name=systemd")


def main(words: Sequence[str], system: System = System()) -> int:  # noqa: B008  a value
    """Serve a session about the job that the only word names. Return the exit status."""
    (job,) = words

    def allow(request: wire.Request) -> None:
        if not _is_from_guard(system, job):
            raise RequestRefused(Exit.USAGE, f"only the guard of {job} may connect to this socket of {host()}")
        if getattr(request, "job", None) != job or not _is_allowed(request):
            raise RequestRefused(Exit.USAGE, f"the guard of {job} is not allowed to send this request")

    return serve(system, names.GUARD_USER, allow)


def _is_from_guard(system: System, job: str) -> bool:
    """Return whether the process that has connected belongs to the unit of this job's guard.

    The guards of all jobs run as one user, so all of them can open the socket. But none can leave the cgroup of its
    unit, because only root can write there. This process is in a unit of the same slice, so the two cgroups have the
    same parent, also in a container, where the paths of all begin with that of the container.
    """
    try:
        with socket.socket(fileno=os.dup(0)) as connection:
            peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        own, theirs = _cgroups(system, os.getpid()), _cgroups(system, peer)
    except (OSError, ValueError):
        return False
    unit = names.guard_service(job)
    return any(theirs.get(name) == posixpath.join(posixpath.dirname(path), unit) for name, path in own.items())


def _cgroups(system: System, pid: int) -> dict[str, str]:
    """Return the cgroup of a process in each of these hierarchies. Raises OSError, ValueError."""
    lines = system.at(f"/proc/{pid}/cgroup").read_text().splitlines()
    found = {name: path for _, name, path in (line.split(":", 2) for line in lines)}
    return {name: path for name, path in found.items() if name in _HIERARCHIES}


def _is_allowed(request: wire.Request) -> bool:
    """Allow to show the job, to stop the run that the guard knows, to start from restart files, to sample and trace
    the tasks, to notify and to leave."""
    if isinstance(request, wire.ShowRequest):
        return request.jobs is None and not request.summaries and not request.rebooted
    if isinstance(request, wire.StopRequest):
        return request.run is not None
    if isinstance(request, wire.StartRequest):
        return request.restart_of is not None
    return isinstance(request, (wire.LeaveRequest, wire.NotifyRequest, wire.SampleRequest, wire.TraceRequest))
