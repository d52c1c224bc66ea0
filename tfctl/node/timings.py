"""The lines that tfctl_runtime records in the directory of each task: totals of steps, examples and seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from . import jobstore, names, wire
from .system import System

#: Bytes for all tasks of an answer. JSON writes a control character as six.
_ROOM = wire.LINE_LIMIT // 8


def with_timings(system: System, jobs: Sequence[wire.JobStatus]) -> tuple[wire.JobStatus, ...]:
    """Return the jobs with the timings of each task: the end of its file if the answer would become too long."""
    room = _ROOM // max(1, sum(len(job.tasks) for job in jobs))

    def timed(job: wire.JobStatus, task: wire.TaskStatus) -> wire.TaskStatus:
        path = system.at(names.timings_file(job.job, job.attempt, *task.name))
        with contextlib.suppress(OSError):
            return task._replace(timings=_last_lines(jobstore.read_untrusted(path), room))
        return task

    return tuple(job._replace(tasks=tuple(timed(job, task) for task in job.tasks)) for job in jobs)


def _last_lines(data: bytes, room: int) -> str | None:
    """Return as many whole lines as there is room for, the last ones. A line that is being written has no end yet."""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) > room:
        whole = whole[-room:].partition(b"\n")[2]
    return whole.decode("ascii", "ignore") or None
