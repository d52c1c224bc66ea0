"""The statuses of jobs and tasks on this host, from their records, units, the lines in ends.jsonl and marks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from . import guards, jobstore, judge, names, reservations, samples, states, wire
from .states import Properties
from .system import System, clock_zero
from .units import installed_and_others
from .wire import TaskName

#: Seconds between looks while a client follows.
POLL_S = 0.5


def requested(system: System, request: wire.ShowRequest) -> tuple[wire.JobStatus, ...]:
    """Return the attempt that a request names, or the latest attempt of each job. Raises RequestRefused."""
    wanted = [request.job] if request.job else jobstore.jobs(system)
    found = of_jobs(system, wanted, request.attempt, later=request.later)
    return with_samples(system, found) if request.samples else found


def with_samples(system: System, jobs: Sequence[wire.JobStatus]) -> tuple[wire.JobStatus, ...]:
    """Return the jobs with the last sample of each task."""
    found = []
    for job in jobs:
        last = samples.last(system, job.job, job.attempt)
        of = {task.name: task for task in last.tasks} if last else {}
        found.append(job._replace(tasks=tuple(task._replace(sample=of.get(task.name)) for task in job.tasks)))
    return tuple(found)


def changes(
    system: System, request: wire.ShowRequest, before: Sequence[wire.JobStatus] | None = None
) -> Iterator[wire.Shown | None]:
    """Look at the job again for each step: yield the answer if it has changed, else None. Raises RequestRefused."""
    while True:
        now = requested(system, request)
        yield None if now == before else answer(system, request, now)
        before = now


def answer(
    system: System, request: wire.ShowRequest, found: Sequence[wire.JobStatus], past: Sequence[wire.Summary] = ()
) -> wire.Shown:
    """Return the answer to a request, without the records that it allows to leave out."""
    whole, short = brief(system, found, request.brief)
    return wire.Shown(whole, time.time(), tuple(past), short)


def of_jobs(
    system: System, wanted: Sequence[str], attempt: int | None = None, *, later: bool = False
) -> tuple[wire.JobStatus, ...]:
    """Return the given or latest attempt of each of these jobs that has one here. Raises RequestRefused.

    ``later``: in place of the given attempt, the last that the guard has started after it, once the start is complete.
    """
    # Attempts first, then starts in progress, then units: a start that goes on meanwhile must not lose its tasks.
    chosen = {name: attempt or jobstore.latest(system, name) for name in wanted}
    known = {name: jobstore.attempts(system, name) for name in wanted if later}
    starting = {(one.job, one.attempt) for one in reservations.live(system)}
    if attempt and later:
        complete = {name: [one for one in known[name] if (name, one) not in starting] for name in wanted}
        chosen = {name: _last_of_guard(system, name, attempt, complete[name]) for name in wanted}
    guard_of = guards.of_jobs(system, wanted)
    units, guard_units = installed_and_others(system, wanted, guard_of)
    guarded = {guard_of[unit] for unit, found in guard_units.items() if states.is_live(found)}
    zero = clock_zero()
    found = []
    for name, number in chosen.items():
        record = jobstore.record(system, name, number)
        if record is None:
            continue
        ours = {unit.task: unit.properties for unit in units if (unit.job, unit.run) == (name, record.run)}
        tasks = of_tasks(system, record, ours, zero, reserved=(name, number) in starting)
        stopped = jobstore.marked(system, name, number)
        kept = (name, number) not in starting
        status = wire.JobStatus(name, number, record.run, record, stopped, tuple(tasks), kept)
        if record.guard:
            status = status._replace(tasks=with_causes(system, record, tasks))
            noted = guards.report(system, name, number)
            if noted is not None and name not in guarded:
                noted = noted._replace(retry_at=None)  # as after a reboot: nobody starts that attempt
            status = status._replace(guard=noted, guarded=name in guarded)
        found.append(status)
    return tuple(found)


def with_causes(system: System, record: wire.Record, tasks: Sequence[wire.TaskStatus]) -> tuple[wire.TaskStatus, ...]:
    """Return the tasks with the causes of failures and restarts that the guard has noted."""
    if not any(map(judge.is_explained, tasks)):
        return tuple(tasks)
    noted = guards.causes(system, record.job, record.attempt)

    def cause(task: wire.TaskStatus) -> wire.Cause | None:
        found = noted.get(task.name)
        return found.cause if found and judge.is_explained(task) and found.restarts == task.restarts else None

    return tuple(task._replace(cause=cause(task)) for task in tasks)


def of_tasks(
    system: System,
    record: wire.Record,
    units: Mapping[TaskName, Properties],
    zero: float = 0.0,
    *,
    reserved: bool = False,
) -> list[wire.TaskStatus]:
    """Return the status of each of the record's tasks here.

    ``units``: systemd's properties of the attempt's units; ``zero``: epoch seconds at the monotonic clock's zero;
    ``reserved``: the attempt is being started.
    """
    job, attempt = record.job, record.attempt
    began, boot = jobstore.began(system, job, attempt), system.boot()
    tasks = jobstore.tasks(system, job, attempt, record)
    invocations = {task: jobstore.invocations(system, job, attempt, *task) for task in tasks}
    found = [
        states.task_status(
            task,
            units.get(task),
            invocations[task],
            marked=jobstore.marked(system, job, attempt, *task) is not None,
            overdue=jobstore.overdue(system, job, attempt, *task),
            at_once=fails_at_once(system, job, attempt, task, invocations[task]),
            given_up=jobstore.given_up(system, job, attempt, *task),
            reserved=reserved,
            began=began.get(names.task_key(*task)),
            zero=zero,
            boot=boot,
            max_restarts=record.policy.max_restarts,
        )
        for task in tasks
    ]
    if not any(task.state == "stopped" for task in found):
        return found
    actions = jobstore.actions(system, job, attempt)
    return [task._replace(reason=_reason(task, actions)) if task.state == "stopped" else task for task in found]


def _reason(task: wire.TaskStatus, actions: Sequence[wire.UserAction]) -> str | None:
    """Return the reason of the first stop of the task since it was last restarted, or None if it has none."""
    stop: wire.UserAction | None = None
    for action in actions:
        if action.tasks is None or task.name in action.tasks:
            stop = None if action.deed == "restart" else stop or (action if action.deed == "stop" else None)
    return stop.reason if stop else None


def fails_at_once(
    system: System, job: str, attempt: int, task: TaskName, invocations: Sequence[states.Invocation]
) -> bool:
    """Return whether the task fails at once since its start or since the last restart by a user."""
    now = time.time()
    if not states.fails_at_once(invocations, now):
        return False
    restarts = [
        action.time
        for action in jobstore.actions(system, job, attempt)
        if action.deed == "restart" and (action.tasks is None or task in action.tasks)
    ]
    since = max(restarts, default=0.0)
    return states.fails_at_once([each for each in invocations if (each.began or 0.0) >= since], now)


def brief(
    system: System, found: Sequence[wire.JobStatus], allowed: bool | None
) -> tuple[tuple[wire.JobStatus, ...], tuple[wire.BriefStatus, ...]]:
    """Return the jobs with their records, and those without. ``allowed``: long records may be left out."""
    whole: list[wire.JobStatus] = []
    short: list[wire.BriefStatus] = []
    for one in found:
        digest = jobstore.digest_of_long_record(system, one.job, one.attempt) if allowed else ""
        if digest:
            short.append(one.brief(digest))
        else:
            whole.append(one)
    return tuple(whole), tuple(short)


def _last_of_guard(system: System, job: str, attempt: int, numbers: Sequence[int]) -> int:
    """Return the last of the attempts with these ``numbers`` that has the same guard as this one."""
    later = [one for one in numbers if one > attempt]
    record = jobstore.record(system, job, attempt) if later else None
    if record is None or record.guard is None:
        return attempt
    for number in reversed(later):
        other = jobstore.record(system, job, number)
        if other is not None and other.guard is not None and other.guard.origin == record.guard.origin:
            return number
    return attempt
