"""Draw a report: speed-up beside the ideal one, the spread over tasks, and where the time of each task went.

The only file that imports matplotlib, which is in the extra `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError, UsageError
from tfctl.report.figures import Report, RunFigures, TaskFigures
from tfctl.wording import counted, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")

#: The colors of the page in light mode: `--h0` to `--h11`, then those of its other variables (ui/static/page.css).
HUES = (
    "#0a5cb8", "#b3440b", "#1a7f37", "#8a2fa8", "#0a6e7c", "#b01e5b", "#6b6200", "#4b4fc4", "#8f5a00", "#00735a",
    "#a33a3a", "#4a6572",
)  # fmt: skip
INK, QUIET_INK, RULE, USE, IDLE, ODD = "#1b1e23", "#5a626d", "#e2e3e0", "#2b97a5", "#f2c879", "#7a3fb0"

_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": QUIET_INK,
    "axes.edgecolor": RULE,
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET_INK,
    "ytick.color": QUIET_INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.hashsalt": "tfctl",
}
_TIMES = "\N{MULTIPLICATION SIGN}"
#: With more rows than this, a panel shows the first, the last and those between at equal distances by name.
_NAMED = 32
#: The most characters of a name.
_NAME = 28
#: Sizes in inches: of a panel, of a row, and of what stands above and below the rows.
_WIDTH, _ROW, _AROUND = 4.6, 0.24, 1.7


@dataclass(frozen=True)
class Span:
    """Where the time (s) of a task went. ``rest``: the steps after the first one, without their waits for input.
    ``unknown``: time of which no more is known."""

    name: str
    first_step: float = 0.0
    input_wait: float = 0.0
    rest: float = 0.0
    unknown: float = 0.0


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
    """Return a label, and the values of computing tasks: rates if all have them, else seconds. One run alone has a row
    for each task; several have one each."""
    runs = [each.run for each in report.runs]
    rates = all(task.examples_per_second is not None for run in runs for task in run.computing)
    name, label = ("examples_per_second", "examples/s") if rates else ("seconds", "seconds")

    def known(tasks: Sequence[TaskFigures]) -> list[float]:
        return [value for task in tasks if (value := getattr(task, name)) is not None]

    if len(runs) == 1:
        return label, [(str(task), known([task])) for task in runs[0].computing]
    return label, [(run.name, known(run.computing)) for run in runs]


def time_line(report: Report) -> list[Span]:
    """Return where the time of each task of a run went, or with several runs, of the slowest task of each."""
    runs = [each.run for each in report.runs]
    if len(runs) == 1:
        return [_span(str(task), task) for task in runs[0].computing]
    return [_span(run.name, _slowest(run)) for run in runs]


def _slowest(run: RunFigures) -> TaskFigures | None:
    return max(run.computing, key=lambda task: task.seconds or 0.0, default=None)


def _span(name: str, task: TaskFigures | None) -> Span:
    seconds = (task and task.seconds) or 0.0
    if task is None or task.first_step is None:
        return Span(name, unknown=seconds)
    first = min(task.first_step, seconds)
    wait = (task.input_wait or 0.0) * (seconds - first)
    return Span(name, first, wait, seconds - first - wait)


def draw(report: Report, path: Path) -> None:
    """Write the plot. Call `require` first. Raise OSError if the file cannot be written."""
    with style():
        figure(report).savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def style() -> AbstractContextManager[None]:
    """Return a context in which figures have our fonts, grid and colors."""
    import matplotlib as mpl

    return mpl.rc_context(_STYLE)  # type: ignore[arg-type]


def figure(report: Report) -> Figure:
    """Return the figure: two panels, or three for runs that can be compared. Call it within `style`."""
    from matplotlib.figure import Figure

    compared = len({devices for devices, _, _ in speed_ups(report)}) > 1
    rows = max(len(by_task(report)[1]), 1)
    panels = 3 if compared else 2
    size = (_WIDTH * panels, max(3.6, _AROUND + _ROW * min(rows, _NAMED)))
    drawn = Figure(figsize=size, layout="constrained")
    drawn.suptitle(_title(report), x=0.01, ha="left", fontsize=13, fontweight="bold")
    axes = list(drawn.subplots(1, panels))
    if compared:
        _speed_up(axes.pop(0), report)
    _spread(axes[0], report)
    _times(axes[1], report)
    return drawn


def _title(report: Report) -> str:
    runs = [each.run for each in report.runs]
    if len(runs) == 1:
        [run] = runs
        where = f"{counted(run.devices, 'device')} on {counted(run.hosts, 'host')}"
        return f"{_name(run.name)}: {run.strategy}, {where}"
    return f"{len(runs)} runs, {runs[0].devices} to {counted(runs[-1].devices, 'device')}"


def _speed_up(axes: Axes, report: Report) -> None:
    """Draw a point for each run. Its color is that of its row in the other panels."""
    points = speed_ups(report)
    line = ideal(report)
    axes.plot(*zip(*line, strict=True), "--", color=QUIET_INK, linewidth=1.2, label="ideal")
    best = {devices: max(value for number, value, _ in points if number == devices) for devices, _, _ in points}
    axes.plot(list(best), list(best.values()), color=RULE, linewidth=2, zorder=1)
    for place, (devices, value, _) in enumerate(points):
        axes.plot(devices, value, "o", markersize=8, color=_hue(place), zorder=3)
    (first, _), (last, top) = line
    logarithmic = last >= 8 * first
    if logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        ticks = [2.0**power for power in range(-1, 20) if 2.0**power <= top * 1.1]
        axes.set_yticks(ticks)
    axes.margins(0.12)
    shown = _apart(list(best), logarithmic=logarithmic)
    axes.set_xticks(shown, [str(each) for each in shown])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{_TIMES}")
    for devices in shown[1:]:
        words, point = f"{best[devices]:.2g}{_TIMES}", (devices, best[devices])
        axes.annotate(words, point, (0, -9), textcoords="offset points", ha="center", va="top", fontsize=9)
    axes.set(title="Speed-up", xlabel="devices")
    axes.legend(loc="upper left")


def _apart(values: Sequence[int], *, logarithmic: bool) -> list[int]:
    """Return the values that can stand side by side on an axis: the last one, and others at some distance."""
    from math import log2

    def place(value: int) -> float:
        return log2(value) if logarithmic else value

    whole = place(values[-1]) - place(values[0]) or 1.0
    kept = [values[-1]]
    for value in reversed(values[:-1]):
        if (place(kept[-1]) - place(value)) / whole >= 0.09:
            kept.append(value)
    return kept[::-1]


def _spread(axes: Axes, report: Report) -> None:
    """Draw a dot for each task: with few tasks, that shows more than a box."""
    label, rows = by_task(report)
    one = len(report.runs) == 1
    for place, (_, found) in enumerate(rows):
        color = HUES[0] if one else _hue(place)
        size = 6 if len(rows) <= _NAMED else 3
        axes.plot(found, [place] * len(found), "o", markersize=size, color=color, alpha=0.55, markeredgewidth=0)
        if len(found) > 1:
            axes.plot([fmean(found)], [place], "|", color=INK, markersize=12)
    known = [value for _, found in rows for value in found]
    if one and len(known) > 1:
        axes.axvline(fmean(known), color=QUIET_INK, linewidth=1.2, linestyle="--", label=f"mean {fmean(known):,.3g}")
        axes.legend(loc="lower left")
    if not known:
        axes.text(0.5, 0.5, "no figures", transform=axes.transAxes, ha="center", color=QUIET_INK)
    _name_rows(axes, [name for name, _ in rows], colored=not one)
    axes.set_xlim(0, max(known, default=1.0) * 1.08 or 1.0)
    axes.set(title="Per task", xlabel=f"{label} of each task")


def _times(axes: Axes, report: Report) -> None:
    spans = time_line(report)
    places = range(len(spans))
    begin = [0.0] * len(spans)
    kinds = (
        ("first_step", "first step", ODD),
        ("input_wait", "waits for input", IDLE),
        ("rest", "steps", USE),
        ("unknown", "not measured", RULE),
    )
    for key, label, color in kinds:
        widths = [getattr(span, key) for span in spans]
        if any(widths):
            axes.barh(places, widths, left=begin, height=0.7, color=color, label=label, linewidth=0)
        begin = [start + width for start, width in zip(begin, widths, strict=True)]
    if any(begin):
        axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", ncols=4, handlelength=1)
    else:
        axes.text(0.5, 0.5, "no figures", transform=axes.transAxes, ha="center", color=QUIET_INK)
    _name_rows(axes, [span.name for span in spans], colored=len(report.runs) > 1)
    axes.tick_params(labelleft=False)  # the same rows as at its left
    axes.set_xlim(0, max(begin, default=1.0) * 1.02 or 1.0)
    axes.set(title="Time" if len(report.runs) == 1 else "Time of the slowest task", xlabel="seconds")


def _name_rows(axes: Axes, rows: Sequence[str], *, colored: bool) -> None:
    """Name the rows from top to bottom, of many only some."""
    every = max(1, -(-len(rows) // _NAMED))
    places = range(0, len(rows), every)
    axes.set_yticks(list(places), [_name(rows[place]) for place in places])
    for place, label in zip(places, axes.get_yticklabels(), strict=True):
        label.set_color(_hue(place) if colored else INK)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)


def _hue(place: int) -> str:
    return HUES[place % len(HUES)]


def _name(text: str) -> str:
    """Return a name as matplotlib shows it: `$` would begin a formula."""
    name = plain(text)
    return (name if len(name) <= _NAME else name[: _NAME - 1] + "…").replace("$", r"\$")
