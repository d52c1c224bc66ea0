"""The plot of a report: what it draws, that its labels can be read, and that it looks like the page."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.report.test_figures import PUBLISHED
from tfctl.errors import TfctlError, UsageError
from tfctl.report import plot
from tfctl.report.figures import Report, RunFigures, TaskFigures, compare

if TYPE_CHECKING:
    from matplotlib.text import Text

CSS = Path(__file__).parents[3] / "tfctl" / "ui" / "static" / "page.css"


def trained(name: str, tasks: int, *, seconds: float = 100.0, **more: float) -> RunFigures:
    """Return a run whose tasks have recorded their timings."""
    figures = {"first_step": 10.0, "input_wait": 0.25, "examples_per_second": 500.0, **more}
    return RunFigures(
        name,
        1,
        "multi_worker_mirrored",
        "succeeded",
        tuple(
            TaskFigures("worker", index, f"node{index}", "succeeded", source="timings", seconds=seconds, **figures)  # type: ignore[arg-type]
            for index in range(tasks)
        ),
        tasks * figures["examples_per_second"],
    )


def reports() -> dict[str, Report]:
    return {
        "published": compare(PUBLISHED),
        "one run": compare([trained("digits", 3)]),
        "200 tasks": compare([trained("big", 200)]),
        "two runs": compare([trained("one", 1), trained("two", 2)]),
        "the same devices": compare([trained("first", 2), trained("second", 2)]),
        "a sweep": compare([trained(f"resnet-{number} batch={number * 64}", number) for number in range(1, 18)]),
        "long names, a formula": compare([trained("x" * 60, 1), trained("$a$" * 9, 64)]),
        "nothing known": compare([RunFigures("none", 1, "custom", "failed", (TaskFigures("a", 0, "h", "failed"),))]),
    }


def test_plot_shows_each_run_beside_the_ideal_line() -> None:
    report = compare(PUBLISHED)
    assert [(devices, round(value, 1)) for devices, value, _ in plot.speed_ups(report)] == [(1, 1), (4, 3.4), (16, 8.1)]
    assert plot.ideal(report) == [(1, 1.0), (16, 16.0)]
    label, values = plot.by_task(report)
    assert (label, values[0], len(values[2][1])) == ("seconds", ("one", [7299.0]), 16)


def test_time_line_of_one_run_has_a_row_per_task() -> None:
    report = compare([trained("digits", 3)])
    assert plot.by_task(report) == ("examples/s", [(f"worker/{index}", [500.0]) for index in range(3)])
    assert plot.time_line(report)[2] == plot.Span("worker/2", first_step=10.0, input_wait=22.5, rest=67.5)


def test_time_line_of_several_runs_has_their_slowest_tasks_and_says_what_is_not_measured() -> None:
    unmeasured = RunFigures("a", 1, "custom", "succeeded", (TaskFigures("worker", 0, "h", "succeeded", seconds=9.0),))
    assert plot.time_line(compare([unmeasured, trained("b", 2)])) == [
        plot.Span("a", unknown=9.0), plot.Span("b", first_step=10.0, input_wait=22.5, rest=67.5),
    ]  # fmt: skip


@pytest.mark.parametrize("name", reports())
def test_plot_has_labels_that_neither_overlap_nor_leave_it(name: str) -> None:
    with plot.style():
        figure = plot.figure(reports()[name])
        figure.draw_without_rendering()
        whole = figure.bbox
        boxes = {text: text.get_window_extent() for text in _texts(figure) if text.get_text() and text.get_visible()}
    assert len(boxes) > 8
    for text, box in boxes.items():
        inside = box.x0 >= whole.x0 and box.y0 >= whole.y0 and box.x1 <= whole.x1 and box.y1 <= whole.y1
        assert inside, text.get_text()
    over = [
        (one.get_text(), other.get_text()) for one, other in combinations(boxes, 2) if boxes[one].overlaps(boxes[other])
    ]
    assert not over


def _texts(figure: object) -> list[Text]:
    """Return the texts that are drawn."""
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    hidden = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        if isinstance(axis, Axis)
        for tick in axis.get_major_ticks()
        for label, shown in ((tick.label1, tick.label1.get_visible()), (tick.label2, False))
        if not shown or not _inside(axis, tick.get_loc())
    }
    return [text for text in figure.findobj(match=_is_text) if text not in hidden]  # type: ignore[misc]


def _inside(axis: object, place: float) -> bool:
    low, high = sorted(axis.get_view_interval())  # type: ignore[attr-defined]
    return bool(low <= place <= high)


def _is_text(artist: object) -> bool:
    from matplotlib.text import Text

    return isinstance(artist, Text)


def test_plot_counts_whole_devices() -> None:
    for report in reports().values():
        for axes in plot.figure(report).axes:
            if axes.get_xlabel() == "devices":
                devices = {each.run.devices for each in report.runs}
                assert {int(label.get_text()) for label in axes.get_xticklabels()} <= devices


def test_plot_has_the_colors_of_the_page() -> None:
    light = CSS.read_text().split("@media")[0]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    assert tuple(colors[f"h{number}"] for number in range(12)) == plot.HUES
    ours = (plot.INK, plot.QUIET_INK, plot.RULE, plot.USE, plot.IDLE, plot.ODD)
    assert tuple(colors[name] for name in ("ink", "quiet-ink", "rule", "use", "idle", "odd")) == ours


def test_plot_of_the_published_runs_is_the_picture_of_the_documentation(tmp_path: Path) -> None:
    """Kept in the directory that TFCTL_TEST_PICTURES names."""
    folder = Path(os.environ.get("TFCTL_TEST_PICTURES") or tmp_path)
    runs = [replace(run, job=f"resnet-{run.devices}") for run in PUBLISHED]
    plot.draw(compare(runs), folder / "report.png")
    assert (folder / "report.png").stat().st_size > 10_000


@pytest.mark.parametrize("suffix", plot.SUFFIXES)
def test_plot_is_the_same_file_each_time(tmp_path: Path, suffix: str) -> None:
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    for path in (one, other):
        plot.draw(compare(PUBLISHED), path)
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size > 10_000


def test_plot_needs_a_known_suffix_and_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"speed\.pdf is neither an \.svg nor a \.png file"):
        plot.require(Path("speed.pdf"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TfctlError, match="--plot needs matplotlib") as raised:
        plot.require(Path("speed.svg"))
    assert raised.value.remedy == (
        "run uv tool install '.[report]' in a checkout of tfctl, or uv tool install 'FILE.whl[report]' with its wheel"
    )
