"""The objects that the page gets about jobs and tasks. Times are epoch seconds: the page shows them in local time.

Sentences are passed through `plain`, so that text of a host looks the same here as on a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from tfctl.node import judge
from tfctl.node.wire import GpuSample
from tfctl.wording import plain, plain_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfctl.errors import TfctlError
    from tfctl.jobs.past import PastJob
    from tfctl.jobs.progress import Progress
    from tfctl.jobs.state import JobState, TaskState


class ProblemObject(TypedDict):
    """An error with its remedy, and the hosts that it is about."""

    message: str
    remedy: str
    hosts: list[str]


class ProgressObject(TypedDict):
    """See tfctl.jobs.progress.Progress. ``left``: seconds."""

    step: int | None
    total: int | None
    epoch: int | None
    percent: float | None
    rate: float | None
    left: float | None


class BriefJob(TypedDict):
    """A job in a list of jobs. ``left``: how many tasks are alive that should not be."""

    job: str
    attempt: int
    state: str
    reason: str
    strategy: str
    started: float
    finished: float | None
    tasks: int
    hosts: int
    left: int
    progress: ProgressObject | None


class GpuUse(TypedDict):
    """A GPU of a task. ``use``: percent; ``memory``: MiB."""

    uuid: str
    use: int | None
    memory: int | None
    celsius: int | None
    watts: int | None


class TaskRow(TypedDict):
    """A task. ``how``: how it ended, as a sentence, or why it was stopped. ``silent``: how long ago it printed its last
    line (s), by its last sample."""

    task: str
    host: str
    state: str
    started: float | None
    finished: float | None
    restarts: int
    exit: str
    how: str
    silent: float | None
    cpu: float | None
    memory: int | None
    step: int | None
    figures: dict[str, float]
    gpus: list[GpuUse]


class WholeJob(BriefJob):
    """The job of a page. ``culprit``: the task that made it fail, or null. ``over``: no other attempt begins.
    ``why``: what its failure follows from and what to do, if that is known. ``silent``: the hosts that do not answer,
    each with the reason."""

    run: str
    stack: str
    inventory: str
    output: str
    culprit: str | None
    why: list[str]
    over: bool
    rows: list[TaskRow]
    silent: dict[str, str]


def problems(errors: Iterable[TfctlError]) -> list[ProblemObject]:
    return [
        {"message": plain_lines(error.message), "remedy": plain_lines(error.remedy), "hosts": list(error.hosts)}
        for error in errors
    ]


def brief_job(job: JobState | PastJob) -> BriefJob:
    return {
        "job": job.job,
        "attempt": job.attempt,
        "state": job.state,
        "reason": plain(job.reason),
        "strategy": plain(job.strategy),
        "started": job.started,
        "finished": job.finished,
        "tasks": job.task_count,
        "hosts": job.host_count,
        "left": job.left,
        "progress": progress(job.progress),
    }


def whole_job(job: JobState, silent: dict[str, str]) -> WholeJob:
    return {
        **brief_job(job),
        "run": job.run,
        "stack": plain(job.record.stack),
        "inventory": plain(job.inventory),
        "output": plain(job.record.output),
        "culprit": str(job.culprit) if job.culprit else None,
        "why": [plain(found.sentence), plain(found.remedy)] if (found := job.why) else [],
        "over": job.over,
        "rows": [task_row(task) for task in job.tasks],
        "silent": {host: plain(why) for host, why in silent.items() if host in job.hosts},
    }


def progress(found: Progress | None) -> ProgressObject | None:
    if found is None:
        return None
    return {
        "step": found.step, "total": found.total, "epoch": found.epoch, "percent": found.percent, "rate": found.rate,
        "left": found.left,
    }  # fmt: skip


def task_row(task: TaskState) -> TaskRow:
    status, sample = task.status, task.status.sample
    failed = task.state in ("failed", "lost")
    return {
        "task": str(task),
        "host": task.host,
        "state": task.state,
        "started": status.started,
        "finished": status.finished,
        "restarts": status.restarts,
        "exit": task.ending,
        "how": plain(judge.failure(status, task.host, task.record.memory) if failed else status.reason or ""),
        "silent": sample.silent if sample else None,
        "cpu": sample.cpu if sample else None,
        "memory": sample.memory if sample else None,
        "step": sample.step if sample else None,
        "figures": {plain(name): value for name, value in ((sample and sample.figures) or {}).items()},
        "gpus": gpus(task),
    }


def gpus(task: TaskState) -> list[GpuUse]:
    """Return the GPUs of a task, with their readings if its last sample has them."""
    readings = (task.status.sample and task.status.sample.gpus) or ()
    padded = [*readings, *[GpuSample()] * (len(task.record.gpus) - len(readings))]
    return [
        {
            "uuid": uuid,
            "use": read.use,
            "memory": read.memory,
            "celsius": read.celsius,
            "watts": read.watts,
        }
        for uuid, read in zip(task.record.gpus, padded, strict=False)
    ]


def plain_values(value: Any) -> object:
    """Return a value of JSON whose texts are those of `plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [plain_values(each) for each in value]
    if isinstance(value, dict):
        return {plain(str(name)): plain_values(each) for name, each in value.items()}
    return value
