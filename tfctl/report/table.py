"""A report as text for people (rows), and as values for programs (JSON, CSV)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tfctl.report.figures import Compared, Report, RunFigures, Spread, TaskFigures, spread
from tfctl.report.findings import findings

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
    found = {name: spread(getattr(task, name) for task in run.computing) for name in _SPREADS}
    if any(found.values()):
        rows += [
            [name, "", "", _of(found["seconds"], name), "", _of(found["examples_per_second"], name), "", "", ""]
            for name in ("mean", "minimum", "maximum", "spread")
        ]
    return rows


def json_object(report: Report) -> dict[str, Any]:
    """Return what `report -o json` prints."""
    return {
        "basis": report.basis,
        "runs": [_json_run(compared) for compared in report.runs],
        "findings": [asdict(finding) for finding in findings(report)],
    }


def csv_text(report: Report) -> str:
    """Return a line for each task, with the figures of its run in the columns that begin with ``run_``."""
    lines = [
        {**{f"run_{name}": value for name, value in run.items()}, **task}
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
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _run_row(compared: Compared) -> list[str]:
    run = compared.run
    found = spread(task.examples_per_second for task in run.computing) or spread(task.seconds for task in run.computing)
    return [
        run.name,
        run.strategy,
        run.state,
        str(run.hosts),
        str(run.devices),
        _number(run.seconds),
        _number(run.examples_per_second),
        *(_of(found, name) for name in ("mean", "minimum", "maximum", "spread")),
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


def _json_run(compared: Compared) -> dict[str, Any]:
    run = compared.run
    spreads = {name: spread(getattr(task, name) for task in run.computing) for name in _SPREADS}
    return {
        **_flat_run(compared),
        "settings": dict(run.settings),
        "spread": {name: found and asdict(found) for name, found in spreads.items()},
        "tasks": [_json_task(task) for task in run.tasks],
    }


def _flat_run(compared: Compared) -> dict[str, Any]:
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


def _json_task(task: TaskFigures) -> dict[str, Any]:
    return asdict(task)


def _of(found: Spread | None, name: str) -> str:
    if found is None:
        return ""
    value: float = getattr(found, name)
    return _percent(value) if name == "spread" else _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
