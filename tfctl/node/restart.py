"""The verb `restart`: restart tasks of an attempt in place, with the same unit, ports, GPUs and variables.

As after a restart by systemd itself, the previous run leaves an end line and the count of restarts goes up by one.
"""

from __future__ import annotations

from typing import Any

from . import book, checks, names, placed, plan, reserve, stop
from .executed import settled, why
from .placed import Placed
from .talk import Refused, Talk
from .world import World, host

#: Seconds that systemd may take to start the tasks once they have ended.
_LAUNCH = 90.0


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """Serve one request. systemd completes the restart even if the client leaves. Raises Refused, Gone."""
    job = plan.match(names.JOB, request.get("job"), "a job's name")
    attempt = plan.number(request.get("attempt"), "an attempt", 1, 10**6)
    tasks = plan.tasks_wanted(request.get("tasks")) or []
    with reserve.lock(world):
        reserve.sweep(world)
        reserve.require_started(world, job, attempt)
        units = _units(world, job, attempt, tasks)
        before = {unit.unit: _runs(world, attempt, unit) for unit in units}
        checks.still_free(world, [unit for unit in units if not unit.live])
        for task in tasks:
            book.unmark(world, job, attempt, *task)
        # A restart by a user does not count towards the limit of automatic restarts.
        world.manage("reset-failed", "--", *(unit.unit for unit in units))
        book.note(world, job, attempt, "restart", tasks)
        process = world.managing("restart", "--", *(unit.unit for unit in units))
    assert process.stderr
    with process.stderr as said:
        words = talk.attend(process, said, _LAUNCH + max(stop.grace(world, unit) for unit in units))
    _require_executed(world, attempt, units, before, bool(words))
    talk.send("restarted", {"attempt": attempt, "tasks": [list(unit.task) for unit in units]})


def _units(world: World, job: str, attempt: int, tasks: list[tuple[str, int]]) -> list[Placed]:
    """Return the tasks' units, which must all be of this attempt. Raises Refused."""
    record = book.record(world, job, attempt) or {}
    there = {unit.task: unit for unit in placed.units(world, job) if unit.run == record.get("run")}
    whole = f"tfctl restart {job} begins its next attempt; after a stop or a reboot, tfctl start JOBFILE does"
    for task in tasks:
        if task not in there:
            raise Refused(7, f"{names.task(*task)} of {job} has no unit on {host()} any more", whole)
    if not tasks or book.marked(world, job, attempt):
        raise Refused(7, f"{job} was stopped", whole)
    return [there[task] for task in tasks]


def _runs(world: World, attempt: int, unit: Placed) -> set[str]:
    """Return the unit's past and current invocation IDs."""
    ends = book.ends(world, unit.job, attempt, *unit.task)
    return {unit.shown.get("InvocationID", ""), *(end.invocation for end in ends)}


def _require_executed(
    world: World, attempt: int, units: list[Placed], before: dict[str, set[str]], failed: bool
) -> None:
    shown = settled(world, [unit.unit for unit in units], failed)
    for unit in units:
        ends = book.ends(world, unit.job, attempt, *unit.task)
        reason = why(shown[unit.unit], [end for end in ends if end.invocation not in before[unit.unit]])
        if reason:
            raise Refused(1, f"{names.task(*unit.task)} could not be started on {host()}: {reason}")
