"""The verb `show`: send the jobs on this host and their tasks' states; with follow, send them at every change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from .. import fields, jobstore, names, reservations, statuses, summaries, wire
from ..session import NodeSession
from ..system import System, run_at_once
from ..units import jobs_with_live_units

#: The longest time (s) to ask the journal for last lines: the states are worth more than the ages.
_JOURNAL_S = 5.0
#: Bytes for the timings of all tasks of an answer. JSON writes a control character as six.
_TIMINGS_ROOM = wire.LINE_LIMIT // 8


def run(system: System, session: NodeSession, request: wire.ShowRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    job = None if request.job is None else fields.job_name(request.job)
    attempt = fields.optional_attempt(request.attempt)
    if request.jobs is not None or request.summaries:
        session.send(_of_many(system, request))
        return
    if request.rebooted and job and attempt:
        jobstore.note_rebooted(system, job, attempt, request.rebooted)
    before = statuses.requested(system, request)
    first = before
    if request.lines:
        first = _with_ages(system, first)
    if request.timings:
        first = _with_timings(system, first)
    session.send(statuses.answer(system, request, first))
    sent = time.monotonic()
    later = statuses.changes(system, request, before)
    while request.follow and not session.heard_of_end(statuses.POLL_S):
        shown = next(later)
        if shown is not None:
            session.send(shown)
        elif time.monotonic() - sent > wire.BEAT_S:
            session.send(wire.Beat())
        else:
            continue
        sent = time.monotonic()


def _of_many(system: System, request: wire.ShowRequest) -> wire.Shown:
    """Return the latest attempt of all jobs, or of those that the request names. Raises RequestRefused."""
    if request.jobs is None:
        latest = jobstore.latest_of_all(system)
    else:
        latest = {fields.job_name(one): jobstore.latest(system, one) for one in request.jobs}
    wanted = sorted(latest)
    past: list[wire.Summary] = []
    if request.summaries:
        live = {*jobs_with_live_units(system), *(one.job for one in reservations.live(system))}
        kept = {job: summaries.read(system, job, latest[job]) for job in wanted if job not in live}
        past = [summary for summary in kept.values() if summary]
        wanted = [job for job in wanted if not kept.get(job)]
    stamps = {job: summaries.stamp(system, job, latest[job]) for job in wanted}
    found = statuses.of_jobs(system, wanted)
    if request.summaries:
        for status in found:
            summary = summaries.of(status)
            if summary:
                summaries.write(system, summary, stamps[status.job])
                past.append(summary)
        over = {summary.job for summary in past}
        found = tuple(status for status in found if status.job not in over)
    if request.samples:
        found = statuses.with_samples(system, found)
    return statuses.answer(system, request, _with_ages(system, found) if request.lines else found, past)


def _with_ages(system: System, jobs: Sequence[wire.JobStatus]) -> tuple[wire.JobStatus, ...]:
    """Return the jobs with the age of the last line of each running task. A frozen task prints no more, although its
    unit runs."""
    runs = {names.unit(job.job, *task.name): job.run for job in jobs for task in job.tasks if task.state == "running"}
    times, now = _last_times(system, runs), time.time()

    def aged(job: wire.JobStatus, task: wire.TaskStatus) -> wire.TaskStatus:
        last = times.get(names.unit(job.job, *task.name)) if task.state == "running" else None
        return task if last is None else task._replace(last_line_age=round(max(0.0, now - last), 1))

    return tuple(job._replace(tasks=tuple(aged(job, task) for task in job.tasks)) for job in jobs)


def _last_times(system: System, runs: Mapping[str, str]) -> dict[str, float]:
    """Return the time of the last entry of each unit's run. The calls of journalctl run at once: 10 ms each."""
    words = [*system.journalctl, "-q", "--no-pager", "-o", "json", "--output-fields=_TRANSPORT", "--lines=1"]
    commands = {unit: [*words, f"TFCTL_RUN={run}", f"_SYSTEMD_UNIT={unit}"] for unit, run in runs.items()}
    found = {}
    with contextlib.suppress(wire.Malformed):
        for unit, output in run_at_once(commands, _JOURNAL_S).items():
            if output:
                found[unit] = wire.journal_entry(output).time
    return found


def _with_timings(system: System, jobs: Sequence[wire.JobStatus]) -> tuple[wire.JobStatus, ...]:
    """Return the jobs with the timings of each task, the lines that tfctl_runtime records in its directory: the end of
    the file if the answer would become too long."""
    room = _TIMINGS_ROOM // max(1, sum(len(job.tasks) for job in jobs))

    def timed(job: wire.JobStatus, task: wire.TaskStatus) -> wire.TaskStatus:
        path = system.at(names.timings_file(job.job, job.attempt, *task.name))
        with contextlib.suppress(OSError):
            return task._replace(timings=_whole_lines(jobstore.read_untrusted(path), room))
        return task

    return tuple(job._replace(tasks=tuple(timed(job, task) for task in job.tasks)) for job in jobs)


def _whole_lines(data: bytes, room: int) -> str | None:
    """Return as many whole lines as there is room for, the last ones. A line that is being written has no end yet."""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) > room:
        whole = whole[-room:].partition(b"\n")[2]
    return whole.decode("ascii", "ignore") or None
