"""The verb `leave`: remove the guard of a job that is over. Only the guard itself asks for it."""

from __future__ import annotations

from .. import fields, guards, reservations, wire
from ..session import NodeSession
from ..system import System


def run(system: System, session: NodeSession, request: wire.LeaveRequest) -> None:
    """Answer, then remove the guard's units. Raises RequestRefused, Gone."""
    job = fields.job_name(request.job)
    with reservations.lock(system, reservations.LONGEST_S, session.heartbeat()):
        session.send(wire.Left())
        guards.remove(system, job, wait=False, keep_notify=True)
