"""The verb `notify`: run the program that the policy of a job names for its end, as the jobs' user."""

from __future__ import annotations

from .. import fields, guards, jobstore, names, states, wire
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System

#: How long the unit of the program may take, beyond its own limit (s).
_LIMIT_S = guards.NOTIFY_S + 15.0
#: The longest outcome in bytes.
_LONGEST = 1 << 16


def run(system: System, session: NodeSession, request: wire.NotifyRequest) -> None:
    """Run the program with the outcome as its stdin, and answer how that went. Raises RequestRefused, Gone, OSError."""
    job = fields.job_name(request.job)
    unit = names.notify_service(job)
    if len(request.outcome) > _LONGEST or not (system.at(names.UNITS) / unit).exists():
        raise RequestRefused(Exit.NOT_FOUND, f"{job} has no program to run at its end")
    jobstore.write(system.at(names.notify_input(job)), request.outcome.encode())
    system.settle([unit], "loaded")
    process = system.managing("start", "--", unit)
    assert process.stderr
    with process.stderr as errors:
        complaints = session.read_output(process, errors, _LIMIT_S)
    end = states.end_from_systemd(system.show([unit])[unit]) if complaints else None
    session.send(wire.Notified((end and (end.signal or f"exit code {end.exit_code}")) or complaints or None))
