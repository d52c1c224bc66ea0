"""How far a job is, from the last sample of each of its tasks. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfctl.node import wire


@dataclass(frozen=True)
class Progress:
    """What is known of a job. ``percent``: of its steps or epochs. ``rate``: examples per second of the whole job.
    ``left``: seconds to its end, at the pace of the last minutes. Unknown values are None."""

    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    percent: float | None = None
    rate: float | None = None
    left: float | None = None


def of_tasks(record: wire.Record, tasks: Sequence[wire.TaskStatus], *, ended: bool = False) -> Progress | None:
    """Return the progress of the slowest of the tasks that decide the job or, if they report none, of the others.

    Return None if nothing is known. A job that has ``ended`` has neither a rate nor time left.
    """
    samples = [task.sample for task in tasks if task.sample is not None]
    reporting = [sample for sample in samples if _known(sample)]
    if not reporting:
        return None
    deciding = [sample for sample in reporting if sample.name in record.deciders]
    slowest = min(deciding or reporting, key=_position)
    said = [sample.job_rate for sample in samples if sample.job_rate is not None]
    own = [sample.rate for sample in samples if sample.rate is not None]
    rate = said[0] if said else sum(own) if own else None
    found = Progress(slowest.step, slowest.total, slowest.epoch, slowest.percent, rate, slowest.left)
    return Progress(found.step, found.total, found.epoch, found.percent) if ended else found


def _known(sample: wire.TaskSample) -> bool:
    values = (sample.step, sample.epoch, sample.percent, sample.rate, sample.job_rate)
    return any(value is not None for value in values)


def _position(sample: wire.TaskSample) -> tuple[float, float]:
    """Return what is smaller the less a task has done. A task that reports only a rate is not the slowest."""
    inf = float("inf")
    return inf if sample.percent is None else sample.percent, inf if sample.step is None else sample.step
