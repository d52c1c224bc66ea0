"""A report as text for people (rows), and as values for programs (JSON, CSV)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, TypedDict, cast

from tfctl.report.figures import ComparedRun, Report, RunFigures, Spread, TaskFigures, spread
from tfctl.report.findings import findings
from tfctl.wording import cell

Rows = list[list[str]]

_RUN_HEADINGS = (
    "RUN", "STRATEGY", "STATE", "HOSTS", "DEVICES", "SECONDS", "EXAMPLES/S", "MEAN", "MIN", "MAX", "SPREAD", "SPEED-UP",
    "EFFICIENCY",
)  # fmt: skip
_TASK_HEADINGS = ("TASK", "HOST", "STATE", "SECONDS", "STEPS", "EXAMPLES/S", "STEPS/S", "FIRST STEP", "INPUT WAIT")
_SPREADS = ("seconds", "examples_per_second")


def run_rows(report: Report) -> Rows:
    """Return a row for each run, below the headings.

    Mean, minimum, maximum and spread are those of the computing tasks: of their examples per second, or without those
    of their seconds.
    """
    return [list(_RUN_HEADINGS), *(_run_row(compared) for compared in report.runs)]


def task_rows(run: RunFigures) -> Rows:
    """Return a row for each task, below the headings, then the mean, minimum, maximum and spread of computing tasks."""
    rows = [list(_TASK_HEADINGS), *(_task_row(task) for task in run.tasks)]
    spreads = {name: spread(getattr(task, name) for task in run.computing) for name in _SPREADS}
    if any(spreads.values()):
        rows += [
            [name, "", "", _of(spreads["seconds"], name), "", _of(spreads["examples_per_second"], name), "", "", ""]
            for name in ("mean", "minimum", "maximum", "spread")
        ]
    return rows


class TaskFiguresObject(TypedDict):
    """One task. ``computes``: whether it trains, and is no parameter server and no evaluator.

    ``gpus``: how many it has. ``source``: where the figures are from. ``seconds``: how long it has trained; with the
    source `run time`, or after a restart, how long it has run. ``first_step``: the duration of its first step, in
    seconds. ``input_wait``: the part of its steps in which it waited for input, from 0 to 1. ``steps``, ``examples``,
    ``steps_per_second``, ``examples_per_second``, ``loss``: the latest values; null if unknown, like all figures.
    """

    role: str
    index: int
    host: str
    state: str
    computes: bool
    gpus: int
    source: Literal["timings", "log", "run time"]
    seconds: float | None
    steps: int | None
    examples: int | None
    steps_per_second: float | None
    examples_per_second: float | None
    first_step: float | None
    input_wait: float | None
    loss: float | None


class SpreadObject(TypedDict):
    """The values of the computing tasks. ``mean``, ``minimum``, ``maximum``: of a figure.

    ``spread``: the range in relation to the mean, 0.3 for 30 %.
    """

    mean: float
    minimum: float
    maximum: float
    spread: float


class FlatRunObject(TypedDict):
    """One run, an attempt of a job. ``name``: the job, and what a sweep has set. ``hosts``: the number of hosts.

    ``devices``: the GPUs of the computing tasks; without GPUs, these tasks. ``seconds``: until its slowest task had
    trained. ``examples_per_second``: of all tasks together. ``speed_up``: how many times faster it is than the run with
    the fewest devices. ``efficiency``: the speed-up in relation to the devices. Unknown figures are null.
    """

    name: str
    job: str
    attempt: int
    strategy: str
    state: str
    hosts: int
    devices: int
    seconds: float | None
    examples_per_second: float | None
    speed_up: float | None
    efficiency: float | None


class RunFiguresObject(FlatRunObject):
    """One run, with its tasks. ``settings``: what a sweep has set. ``spread``: how the tasks differ, by figure.

    ``tasks``: all of them.
    """

    settings: dict[str, str]
    spread: dict[str, SpreadObject | None]
    tasks: list[TaskFiguresObject]


class FindingObject(TypedDict):
    """What may make a run slow.

    ``cause``: the part of the system. ``run``: its name. ``why``: the figures that say so. ``check``: what to do next.
    """

    cause: Literal["straggler", "input pipeline", "network"]
    run: str
    why: str
    check: str


class ReportObject(TypedDict):
    """``basis``: what speed-ups compare, or null. ``runs``: those with fewer devices first. ``findings``: what may make
    runs slow."""

    basis: Literal["examples_per_second", "seconds"] | None
    runs: list[RunFiguresObject]
    findings: list[FindingObject]


def json_object(report: Report) -> ReportObject:
    """Return what `report -o json` prints."""
    return {
        "basis": report.basis,
        "runs": [_json_run(compared) for compared in report.runs],
        "findings": [cast("FindingObject", asdict(finding)) for finding in findings(report)],
    }


def csv_text(report: Report) -> str:
    """Return a line for each task, with the figures of its run in the columns that begin with ``run_``."""
    lines = [
        {
            name: cell(value) if isinstance(value, str) else value
            for name, value in {**{f"run_{name}": value for name, value in run.items()}, **task}.items()
        }
        for compared in report.runs
        for run in [_flat_run(compared)]
        for task in map(_json_task, compared.run.tasks)
    ]
    buffer = io.StringIO()
    names = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of Markdown."""
    lines = [[re.sub(r"([\\|])", r"\\\1", cell(each)) for each in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _run_row(compared: ComparedRun) -> list[str]:
    run = compared.run
    pace = spread(task.examples_per_second for task in run.computing) or spread(task.seconds for task in run.computing)
    return [
        run.name,
        run.strategy,
        run.state,
        str(run.hosts),
        str(run.devices),
        _number(run.seconds),
        _number(run.examples_per_second),
        *(_of(pace, name) for name in ("mean", "minimum", "maximum", "spread")),
        "" if compared.speed_up is None else f"{compared.speed_up:.2f}",
        _percent(compared.efficiency),
    ]


def _task_row(task: TaskFigures) -> list[str]:
    return [
        str(task),
        task.host,
        task.state,
        _number(task.seconds),
        "" if task.steps is None else str(task.steps),
        _number(task.examples_per_second),
        _number(task.steps_per_second),
        "" if task.first_step is None else f"{task.first_step:.1f} s",
        _percent(task.input_wait),
    ]


def _json_run(compared: ComparedRun) -> RunFiguresObject:
    run = compared.run
    spreads = {name: spread(getattr(task, name) for task in run.computing) for name in _SPREADS}
    return {
        **_flat_run(compared),
        "settings": dict(run.settings),
        "spread": {name: _spread_object(figures) for name, figures in spreads.items()},
        "tasks": [_json_task(task) for task in run.tasks],
    }


def _spread_object(figures: Spread | None) -> SpreadObject | None:
    return None if figures is None else cast("SpreadObject", asdict(figures))


def _flat_run(compared: ComparedRun) -> FlatRunObject:
    run = compared.run
    return {
        "name": run.name,
        "job": run.job,
        "attempt": run.attempt,
        "strategy": run.strategy,
        "state": run.state,
        "hosts": run.hosts,
        "devices": run.devices,
        "seconds": run.seconds,
        "examples_per_second": run.examples_per_second,
        "speed_up": compared.speed_up,
        "efficiency": compared.efficiency,
    }


def _json_task(task: TaskFigures) -> TaskFiguresObject:
    return cast("TaskFiguresObject", asdict(task))


def _of(figures: Spread | None, name: str) -> str:
    if figures is None:
        return ""
    value: float = getattr(figures, name)
    return _percent(value) if name == "spread" else _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
