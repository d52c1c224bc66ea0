"""The figures of a report, computed from what tasks have recorded. Pure functions over frozen data.

A *run* is one attempt of a job. A *device* is a GPU of its computing tasks or, without GPUs, such a task. Times are in
seconds. Unknown figures are None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from tfctl.node.names import task as task_name
from tfctl.node.wire import JobStateName, TaskStateName
from tfctl.report.pace import Pace


@dataclass(frozen=True)
class TaskFigures:
    """One task. ``seconds``: how long it has trained; without a record of that, or after a restart, how long it has run
    since its first start. ``gpus``: how many it has. ``first_step``: the duration of its first step. ``input_wait``:
    the part of its steps in which it waited for input, from 0 to 1. ``computes``: it trains, and is no parameter server
    and no evaluator."""

    role: str
    index: int
    host: str
    state: TaskStateName
    computes: bool = True
    gpus: int = 0
    source: Literal["timings", "log", "run time"] = "run time"
    seconds: float | None = None
    steps: int | None = None
    examples: int | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    first_step: float | None = None
    input_wait: float | None = None
    loss: float | None = None

    def __str__(self) -> str:
        return task_name(self.role, self.index)


@dataclass(frozen=True)
class Spread:
    """The values of several tasks. ``spread``: the range in relation to the mean, 0.3 for 30 %."""

    mean: float
    minimum: float
    maximum: float
    spread: float


@dataclass(frozen=True)
class RunFigures:
    """A run. ``seconds``: until its slowest computing task had trained. ``examples_per_second``: of all tasks together.
    ``settings``: what a sweep has set. ``synchronous``: its tasks wait for each other in each step. ``continues``: it
    is a retry, which may continue the work of an earlier attempt."""

    job: str
    attempt: int
    strategy: str
    state: JobStateName
    tasks: tuple[TaskFigures, ...]
    examples_per_second: float | None = None
    synchronous: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    continues: bool = False

    @property
    def computing(self) -> tuple[TaskFigures, ...]:
        return tuple(task for task in self.tasks if task.computes)

    @property
    def devices(self) -> int:
        return sum(task.gpus for task in self.computing) or len(self.computing)

    @property
    def hosts(self) -> int:
        return len({task.host for task in self.computing})

    @property
    def devices_per_host(self) -> int:
        """The number of devices on the host that has most of them."""
        have_gpus = any(task.gpus for task in self.computing)
        counts = Counter(task.host for task in self.computing for _ in range(task.gpus if have_gpus else 1))
        return max(counts.values(), default=0)

    @property
    def seconds(self) -> float | None:
        # Under parameter_server only the chief, which does not compute, records when the training has ended.
        recorded = [task for task in self.tasks if task.source == "timings"]
        return max(_known(task.seconds for task in recorded or self.computing), default=None)

    @property
    def name(self) -> str:
        """The job, and what a sweep has set."""
        return " ".join([self.job, *(f"{key}={value}" for key, value in self.settings.items())])


@dataclass(frozen=True)
class ComparedRun:
    """A run in relation to the baseline, the one with the fewest devices. ``speed_up``: how many times faster it is.
    ``efficiency``: the speed-up in relation to the devices, 1.0 if ten times the devices are ten times faster."""

    run: RunFigures
    speed_up: float | None = None
    efficiency: float | None = None


@dataclass(frozen=True)
class Report:
    """Several runs, those with fewer devices first. ``basis``: what speed-ups compare, None if there is nothing to
    compare: the throughput if all runs have it, else the time, if all succeeded in the same work in one attempt."""

    runs: tuple[ComparedRun, ...]
    basis: Literal["examples_per_second", "seconds"] | None = None


def task_figures(
    role: str,
    index: int,
    host: str,
    state: TaskStateName,
    *,
    run_time: float | None,
    pace: Pace | None = None,
    computes: bool = True,
    gpus: int = 0,
    restarts: int = 0,
) -> TaskFigures:
    """Return the figures of a task. ``run_time``: how long (s) it has run since its first start, or None.

    After ``restarts``, what the task has recorded is the time of its last run alone, which may have resumed.
    """
    if pace is None:
        return TaskFigures(role, index, host, state, computes, gpus, seconds=run_time)
    return TaskFigures(
        role,
        index,
        host,
        state,
        computes,
        gpus,
        pace.source,
        run_time if restarts or pace.seconds is None else pace.seconds,
        pace.steps,
        pace.examples,
        pace.steps_per_second,
        pace.examples_per_second,
        pace.first_step,
        pace.input_wait,
        pace.loss,
    )


def throughput(paces: Mapping[str, Pace | None], computing: Sequence[str], leads: bool) -> float | None:
    """Return the examples per second of a job, or None.

    ``paces``: by task. ``leads``: one task counts the steps of all, as the chief of parameter_server does. The sum over
    the ``computing`` tasks counts only if each of them has a rate.
    """
    found = [pace for pace in paces.values() if pace]
    for total in _known(pace.total for pace in found):
        return total
    rates = {task: pace.examples_per_second for task, pace in paces.items() if pace and not pace.leader_only}
    if leads:
        return max(_known(rates.values()), default=None)
    known = _known(rates.get(task) for task in computing)
    return sum(known) if known and len(known) == len(computing) else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the known values; None if there are fewer than two."""
    known = _known(values)
    if len(known) < 2:
        return None
    mean = fmean(known)
    return Spread(mean, min(known), max(known), (max(known) - min(known)) / mean if mean else 0.0)


def compare(runs: Iterable[RunFigures]) -> Report:
    """Compare runs with the one that has the fewest devices, and of several such runs with the first."""
    ordered = sorted(runs, key=lambda run: run.devices)
    basis = _basis(ordered)
    if basis is None:
        return Report(tuple(ComparedRun(run) for run in ordered))
    first = ordered[0]

    def compared(run: RunFigures) -> ComparedRun:
        own, base = getattr(run, basis), getattr(first, basis)
        speed_up = own / base if basis == "examples_per_second" else base / own
        return ComparedRun(run, speed_up, speed_up * first.devices / run.devices)

    return Report(tuple(compared(run) for run in ordered), basis)


def _basis(runs: Sequence[RunFigures]) -> Literal["examples_per_second", "seconds"] | None:
    if len(runs) < 2 or not all(run.devices for run in runs):
        return None
    if all(run.examples_per_second for run in runs):
        return "examples_per_second"
    whole = all(run.seconds and run.state == "succeeded" and not run.continues for run in runs)
    return "seconds" if whole else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
