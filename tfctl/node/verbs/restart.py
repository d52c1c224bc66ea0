"""The verb `restart`: restart tasks of an attempt in place, with the same unit, ports, GPUs and variables.

As after a restart by systemd itself, the previous invocation leaves an end line, and the count of restarts goes up
by one. The deadline of the task begins again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import checks, deadlines, fields, jobstore, names, reservations, wire
from ..exits import Exit
from ..session import Gone, NodeSession, RequestRefused
from ..system import System, host
from ..units import InstalledUnit, exec_failure, grace, installed_units, wait_for_execution
from ..wire import TaskName

#: Seconds that systemd may take to start the tasks once they have ended.
_LAUNCH_S = 90.0


def run(system: System, session: NodeSession, request: wire.RestartRequest) -> None:
    """Serve one request. systemd completes the restart even if the client leaves. Raises RequestRefused, Gone."""
    job, attempt = fields.job_name(request.job), fields.attempt_number(request.attempt)
    tasks, run = fields.task_names(request.tasks), fields.optional_run(request.run)
    with reservations.lock(system, reservations.LONGEST_S, session.heartbeat()):
        if session.heard_of_end(0.0):  # while another start wrote its files
            raise Gone
        reservations.sweep(system)
        reservations.require_started(system, job, attempt)
        units = _units(system, job, attempt, run, tasks)
        before = {unit.unit: _invocations(system, attempt, unit) for unit in units}
        checks.still_free(system, [unit for unit in units if not unit.live])
        for task in tasks:
            jobstore.unmark(system, job, attempt, *task)
        # A restart by a user does not count towards the limit of automatic restarts.
        system.manage("reset-failed", "--", *(unit.unit for unit in units))
        jobstore.add_action(system, job, attempt, "restart", tasks)
        timers = deadlines.timers(system, job, tasks)
        process = system.managing("restart", "--", *(unit.unit for unit in units), *timers)
    assert process.stderr
    with process.stderr as errors:
        complaints = session.read_output(process, errors, _LAUNCH_S + max(grace(system, unit) for unit in units))
    _require_executed(system, attempt, units, before, failed=bool(complaints))
    session.send(wire.Restarted(attempt, tuple(unit.task for unit in units)))


def _units(system: System, job: str, attempt: int, run: str | None, tasks: Sequence[TaskName]) -> list[InstalledUnit]:
    """Return the tasks' units, which must all be of this attempt and, if it is given, of this run, and restrict their
    tasks as this version does.

    Raises RequestRefused.
    """
    record = jobstore.record(system, job, attempt)
    if record and run not in (None, record.run):
        raise RequestRefused(Exit.BUSY, f"{job} has been started again in the meantime", f"tfctl status {job} shows it")
    there = {unit.task: unit for unit in installed_units(system, job) if record and unit.run == record.run}
    remedy = f"tfctl restart {job} begins its next attempt; after a stop or a reboot, tfctl start JOBFILE does"
    for task in tasks:
        if task not in there:
            what = f"{names.task(*task)} of {job} has no unit on {host()} any more"
            raise RequestRefused(Exit.NOT_FOUND, what, remedy)
    if not record or not tasks or jobstore.marked(system, job, attempt):
        raise RequestRefused(Exit.NOT_FOUND, f"{job} was stopped", remedy)
    checks.drop_in(system)
    for task in tasks:
        checks.installed(system, record, there[task])
    return [there[task] for task in tasks]


def _invocations(system: System, attempt: int, unit: InstalledUnit) -> set[str]:
    """Return the unit's past and current invocation IDs."""
    ends = jobstore.ends(system, unit.job, attempt, *unit.task)
    return {unit.properties.get("InvocationID", ""), *(end.invocation for end in ends)}


def _require_executed(
    system: System, attempt: int, units: Sequence[InstalledUnit], before: Mapping[str, set[str]], *, failed: bool
) -> None:
    properties = wait_for_execution(system, [unit.unit for unit in units], failed)
    for unit in units:
        ends = jobstore.ends(system, unit.job, attempt, *unit.task)
        new = [end for end in ends if end.invocation not in before[unit.unit]]
        reason = exec_failure(properties[unit.unit], new)
        if reason:
            raise RequestRefused(Exit.FAILED, f"{names.task(*unit.task)} could not be started on {host()}: {reason}")
