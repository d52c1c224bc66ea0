"""Draw a report: the speed-up of runs beside the ideal one, and the spread over the tasks of each run.

The only file that imports matplotlib, which is in the extra `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfctl.errors import TfctlError, UsageError
from tfctl.report.figures import Report

SUFFIXES = (".svg", ".png")


def require(path: Path) -> None:
    """Raise UsageError for a file of another kind, TfctlError if matplotlib is not installed."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--plot: {path} is neither an .svg nor a .png file")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TfctlError(
            "--plot needs matplotlib, which is not installed",
            "run uv tool install '.[report]' in a checkout of tfctl, or uv tool install 'FILE.whl[report]' with its "
            "wheel",
        ) from None


def speed_ups(report: Report) -> list[tuple[int, float, str]]:
    """Return devices, speed-up and name of each run that has a speed-up."""
    return [(each.run.devices, each.speed_up, each.run.name) for each in report.runs if each.speed_up is not None]


def ideal(report: Report) -> list[tuple[int, float]]:
    """Return the line on which the speed-up grows with the devices, from the baseline to the largest run."""
    devices = [number for number, _, _ in speed_ups(report)]
    return [(devices[0], 1.0), (devices[-1], devices[-1] / devices[0])] if devices else []


def by_task(report: Report) -> tuple[str, list[tuple[str, list[float]]]]:
    """Return a label, and for each run the values of its computing tasks: rates if all have them, else seconds."""
    runs = [each.run for each in report.runs]
    rates = all(task.examples_per_second is not None for run in runs for task in run.computing)
    name, label = ("examples_per_second", "examples/s per task") if rates else ("seconds", "seconds per task")
    values = [(run.name, [getattr(task, name) for task in run.computing]) for run in runs]
    return label, [(run, [value for value in found if value is not None]) for run, found in values]


def draw(report: Report, path: Path) -> None:
    """Write the plot. Call `require` first. Raise OSError if the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = speed_ups(report)
    left.plot([number for number, _ in ideal(report)], [value for _, value in ideal(report)], "--", label="ideal")
    left.plot([number for number, _, _ in points], [value for _, value, _ in points], "o", label="measured")
    for number, value, name in points:
        left.annotate(name, (number, value), textcoords="offset points", xytext=(5, -10), fontsize="small")
    left.margins(x=0.15)  # room for the names
    left.set(xlabel="devices", ylabel="speed-up")
    left.legend()
    label, values = by_task(report)
    _dots(right, values)
    right.set(ylabel=label, ylim=(0, None))
    figure.savefig(path)


def _dots(axes: object, values: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Draw a dot for each task: with few tasks, that shows more than a box."""
    for place, (_, found) in enumerate(values):
        axes.plot([place] * len(found), found, "o", alpha=0.5)  # type: ignore[attr-defined]
    axes.set_xticks(range(len(values)), [name for name, _ in values], rotation=20, ha="right")  # type: ignore[attr-defined]
