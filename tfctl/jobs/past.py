"""Combine what hosts summarise of jobs that are over. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfctl.node import wire


@dataclass(frozen=True)
class PastJob:
    """A job that is over, as `list` shows it. Times are in epoch seconds. The fields are those of
    `tfctl.jobs.state.JobState`, which also has its tasks, inventory, reason and culprit."""

    job: str
    attempt: int
    run: str
    state: wire.JobStateName
    strategy: str
    started: float
    finished: float | None
    task_count: int
    host_count: int
    ended: bool = True
    alive: bool = False
    left: int = 0
    inventory: str = ""
    reason: str = ""
    culprit: None = None
    progress: None = None


def merged(answers: Mapping[str, Sequence[wire.Summary]]) -> tuple[list[PastJob], list[str]]:
    """Return the jobs that the hosts' summaries describe, and the names of those for which they are not enough."""
    by_job: dict[str, list[wire.Summary]] = {}
    for summaries in answers.values():
        for each in summaries:
            by_job.setdefault(each.job, []).append(each)
    found = {job: _merged(parts) for job, parts in by_job.items()}
    return [past for past in found.values() if past], [job for job, past in found.items() if past is None]


def _merged(parts: Sequence[wire.Summary]) -> PastJob | None:
    """Return the last run of a job, or None if more must be known to judge it (as tfctl.node.judge does)."""
    last = max(parts, key=lambda part: (part.started, part.attempt))
    ours = [part for part in parts if (part.attempt, part.run) == (last.attempt, last.run)]
    failures = [part.finished for part in ours if part.failed]
    stops = [part.stopped for part in ours if part.stopped is not None]
    state: wire.JobStateName
    finished: float | None
    if sum(part.succeeded for part in ours) >= last.deciders:
        state, finished = "succeeded", max((part.finished for part in ours if part.finished is not None), default=None)
    elif failures:
        state, finished = "failed", min((time for time in failures if time is not None), default=None)
    elif stops:
        state, finished = "stopped", min(stops)
    else:
        return None
    return PastJob(
        last.job, last.attempt, last.run, state, last.strategy, last.started, finished, last.tasks, last.hosts
    )
