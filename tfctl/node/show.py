"""The verb `show`: send the jobs on this host and their tasks' states; with follow, send them at every change."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from . import fields, give_up, guards, jobstore, names, reservations, states, summaries, wire
from .session import Session
from .states import Properties
from .system import System, clock_zero
from .units import going_jobs, installed_and_others

#: Seconds between polls while a client follows.
POLL_S = 0.5


def run(system: System, session: Session, request: wire.ShowRequest) -> None:
    """Serve one request. Raises Refused, Gone."""
    job = None if request.job is None else fields.job_name(request.job)
    attempt = fields.optional_attempt(request.attempt)
    if request.jobs is not None or request.summaries:
        session.send(_of_many(system, request))
        return
    if request.rebooted and job and attempt:
        jobstore.note_rebooted(system, job, attempt, request.rebooted)
    before = jobs(system, job, attempt, later=request.later)
    first = before
    if request.lines:
        first = _aged(system, first)
    if request.timings:
        from . import timings

        first = timings.with_timings(system, first)
    session.send(_answer(system, request, first))
    sent = time.monotonic()
    later = changes(system, request, before)
    while request.follow and not session.heard_of_end(POLL_S):
        shown = next(later)
        if shown is not None:
            session.send(shown)
        elif time.monotonic() - sent > wire.BEAT_S:
            session.send(wire.Beat())
        else:
            continue
        sent = time.monotonic()


def changes(
    system: System, request: wire.ShowRequest, before: Sequence[wire.JobStatus] | None = None
) -> Iterator[wire.Shown | None]:
    """Look at the job again for each step: yield the answer if it has changed, else None. Raises Refused."""
    while True:
        now = jobs(system, request.job, request.attempt, later=request.later)
        yield None if now == before else _answer(system, request, now)
        before = now


def _of_many(system: System, request: wire.ShowRequest) -> wire.Shown:
    """Return the latest attempt of all jobs, or of those that the request names. Raises Refused."""
    if request.jobs is None:
        latest = jobstore.latest_of_all(system)
    else:
        latest = {fields.job_name(one): jobstore.latest(system, one) for one in request.jobs}
    wanted = sorted(latest)
    past: list[wire.Summary] = []
    if request.summaries:
        going = {*going_jobs(system), *(one.job for one in reservations.live(system))}
        kept = {job: summaries.read(system, job, latest[job]) for job in wanted if job not in going}
        past = [summary for summary in kept.values() if summary]
        wanted = [job for job in wanted if not kept.get(job)]
    stamps = {job: summaries.stamp(system, job, latest[job]) for job in wanted}
    found = _shown(system, wanted)
    if request.summaries:
        for status in found:
            summary = summaries.of(status)
            if summary:
                summaries.write(system, summary, stamps[status.job])
                past.append(summary)
        over = {summary.job for summary in past}
        found = tuple(status for status in found if status.job not in over)
    return _answer(system, request, _aged(system, found) if request.lines else found, past)


def _answer(
    system: System, request: wire.ShowRequest, found: Sequence[wire.JobStatus], past: Sequence[wire.Summary] = ()
) -> wire.Shown:
    whole, short = brief(system, found, request.brief)
    return wire.Shown(whole, time.time(), tuple(past), short)


def brief(
    system: System, found: Sequence[wire.JobStatus], allowed: bool | None
) -> tuple[tuple[wire.JobStatus, ...], tuple[wire.BriefStatus, ...]]:
    """Return the jobs with their records, and those without. ``allowed``: long records may be left out."""
    whole: list[wire.JobStatus] = []
    short: list[wire.BriefStatus] = []
    for one in found:
        digest = jobstore.digest_of_long_record(system, one.job, one.attempt) if allowed else ""
        if digest:
            short.append(
                wire.BriefStatus(
                    one.job, one.attempt, one.run, digest, one.stopped, one.tasks, one.kept, one.guard, one.guarded
                )
            )
        else:
            whole.append(one)
    return tuple(whole), tuple(short)


def _aged(system: System, found: tuple[wire.JobStatus, ...]) -> tuple[wire.JobStatus, ...]:
    from . import last_lines

    return last_lines.with_ages(system, found)


def jobs(system: System, job: str | None, attempt: int | None, *, later: bool = False) -> tuple[wire.JobStatus, ...]:
    """Return the given or latest attempt of ``job``, or the latest of every job. Raises Refused.

    ``later``: in place of the given attempt, the last that the guard has started after it, once the start is complete.
    """
    return _shown(system, [job] if job else jobstore.jobs(system), attempt, later=later)


def _shown(
    system: System, wanted: Sequence[str], attempt: int | None = None, *, later: bool = False
) -> tuple[wire.JobStatus, ...]:
    """Return the given or latest attempt of each of these jobs. Raises Refused."""
    # Attempts first, then starts in progress, then units: a start that goes on meanwhile must not lose its tasks.
    known = {name: jobstore.attempts(system, name) for name in wanted}
    starting = {(one.job, one.attempt) for one in reservations.live(system)}
    chosen = {name: attempt or max(numbers, default=0) for name, numbers in known.items()}
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
        tasks = task_statuses(system, record, ours, zero, reserved=(name, number) in starting)
        stopped = jobstore.marked(system, name, number)
        kept = (name, number) not in starting
        status = wire.JobStatus(name, number, record.run, record, stopped, tuple(tasks), kept)
        if record.guard:
            status = status._replace(guard=guards.report(system, name, number), guarded=name in guarded)
        found.append(status)
    return tuple(found)


def _last_of_guard(system: System, job: str, attempt: int, numbers: Sequence[int]) -> int:
    """Return the last of the attempts with these ``numbers`` that has the same guard as this one."""
    record = jobstore.record(system, job, attempt)
    if record is None or record.guard is None:
        return attempt
    for number in reversed([one for one in numbers if one > attempt]):
        other = jobstore.record(system, job, number)
        if other is not None and other.guard is not None and other.guard.origin == record.guard.origin:
            return number
    return attempt


def task_statuses(
    system: System,
    record: wire.Record,
    units: Mapping[wire.TaskName, Properties],
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
    runs = {task: jobstore.runs(system, job, attempt, *task) for task in tasks}
    return [
        states.task_status(
            task,
            units.get(task),
            runs[task],
            marked=jobstore.marked(system, job, attempt, *task) is not None,
            overdue=jobstore.overdue(system, job, attempt, *task),
            at_once=give_up.fails_at_once(system, job, attempt, task, runs[task]),
            given_up=jobstore.given_up(system, job, attempt, *task),
            reserved=reserved,
            began=began.get(names.task_key(*task)),
            zero=zero,
            boot=boot,
            max_restarts=record.policy.max_restarts,
        )
        for task in tasks
    ]
