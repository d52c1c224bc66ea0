"""Serve a request of a job's guard as root: the few that it needs, about its own job.

systemd runs this for each connection to the guard's local socket, with the connection as stdin and stdout.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import names, wire
from .__main__ import serve
from .exits import Exit
from .session import RequestRefused
from .system import System


def main(words: Sequence[str], system: System = System()) -> int:  # noqa: B008  a value
    """Serve a session about the job that the only word names. Return the exit status."""
    (job,) = words

    def allow(request: wire.Request) -> None:
        if getattr(request, "job", None) != job or not _is_allowed(request):
            raise RequestRefused(Exit.USAGE, f"the guard of {job} is not allowed to send this request")

    return serve(system, names.GUARD_USER, allow)


def _is_allowed(request: wire.Request) -> bool:
    """Allow to show the job, to stop the run that the guard knows, to start from restart files, to notify and to
    leave."""
    if isinstance(request, wire.ShowRequest):
        return request.jobs is None and not request.summaries and not request.rebooted
    if isinstance(request, wire.StopRequest):
        return request.run is not None
    if isinstance(request, wire.StartRequest):
        return request.restart_of is not None
    return isinstance(request, (wire.LeaveRequest, wire.NotifyRequest))
