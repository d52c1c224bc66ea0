"""How far a task is: read from its lines, and from what tfctl_runtime records, while it runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tfctl.node.progress import FORMATS, Progress, format_of

KERAS_2 = (
    "\r {0}/200 [====>.........] - ETA: 5s - loss: 0.9\b\b\r{0}/200 [=====>...] - 5s 20ms/step - loss: 0.50 - acc: 0.80"
)
KERAS_3 = (
    "\r\x1b[1m  1/200\x1b[0m \x1b[37m━━━━\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - loss: 0.9"
    "\r\x1b[1m{0}/200\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - acc: 0.80 - loss: 0.50"
)


def search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return pattern.search(text)


def progress(*lines: str, pattern: str | None = None, total: int | None = None) -> Progress:
    found = Progress([format_of(pattern)] if pattern else list(FORMATS.values()), total)
    for line in lines:
        found.read(line, search)
    return found


def known(found: Progress, now: float = 1000.0) -> dict[str, Any]:
    return {name: value for name, value in found.sample(now).items() if value is not None}


@pytest.mark.parametrize("bar", [KERAS_2, KERAS_3], ids=["Keras 2", "Keras 3"])
def test_bar_of_keras_says_how_far_the_whole_training_is(bar: str) -> None:
    found = known(progress("Epoch 3/10", bar.format(50)))
    assert {name: found[name] for name in ("step", "total", "epoch", "percent")} == {
        "step": 450, "total": 2000, "epoch": 3, "percent": 22.5,
    }  # fmt: skip
    assert found["figures"] == {"loss": 0.5, "acc": 0.8}
    assert found["pace"] == 50.0, "of 20 ms a step"


def test_training_of_one_epoch_has_no_line_that_announces_it() -> None:
    found = known(progress(KERAS_3.format(50)))
    assert (found["step"], found["total"], found["percent"]) == (50, 200, 25.0)


def test_bars_of_evaluate_do_not_count_as_training() -> None:
    evaluated = KERAS_3.format(50).replace("/200", "/313")
    found = known(progress("Epoch 1/2", KERAS_3.format(200), evaluated))
    assert (found["step"], found["total"]) == (200, 400)


def test_time_left_follows_from_the_pace_of_the_last_minutes() -> None:
    found = progress(pattern=r"step (?P<step>\d+)", total=1000)
    for second in range(0, 100, 10):
        found.read(f"step {second}", search)
        last = found.sample(1000.0 + second)
    assert (last["percent"], last["pace"], last["left"]) == (9.0, 1.0, 910.0)


def test_a_standstill_makes_the_time_left_longer() -> None:
    found = progress(pattern=r"step (?P<step>\d+)/(?P<total>\d+)")
    for second in (0, 100):
        found.read(f"step {second}/1000", search)
        found.sample(1000.0 + second)
    assert found.sample(1500.0)["left"] == 4500.0


def test_a_task_that_was_started_again_begins_a_new_pace() -> None:
    found = progress(pattern=r"step (?P<step>\d+)/(?P<total>\d+) of (?P<epochs>\d+) (?P<epoch>\d+)")
    for at, line in enumerate(("step 1/100 of 1 1", "step 90/100 of 1 1", "step 1/100 of 1 1", "step 2/100 of 1 1")):
        found.read(line, search)
        last = found.sample(1000.0 + 10 * at)
    assert (last["step"], last["pace"], last["left"]) == (2, 0.1, 980.0)


@pytest.mark.parametrize(
    ("pattern", "lines", "expected"),
    [
        (r"epoch (?P<epoch>\d+)/(?P<total>\d+)", ["epoch 3/12"], {"epoch": 3, "percent": 25.0}),
        (r"(?P<step>\d+) of (?P<total>\d+)", ["5 of 20"], {"step": 5, "total": 20, "percent": 25.0}),
        (r"(?P<step>\d+) (?P<rate>\S+)/s", ["5 1e2/s"], {"step": 5, "rate": 100.0}),
        (r"(?P<step>\d+) l=(?P<loss>\S+)", ["5 l=-1.5"], {"step": 5, "figures": {"loss": -1.5}}),
        (r"(?P<step>\d+) l=(?P<loss>\S+)", ["5 l=nan", "6 l=inf"], {"step": 6}),
        (r"all (?P<total_examples_per_second>\d+)", ["all 960"], {"job_rate": 960.0}),
    ],
)
def test_named_groups_of_a_pattern_are_what_they_are_called(
    pattern: str, lines: list[str], expected: dict[str, Any]
) -> None:
    assert known(progress(*lines, pattern=pattern)) == expected


def test_steps_that_begin_again_with_each_epoch_are_added_if_the_job_file_says_how_many_there_are() -> None:
    lines = ["step 50", "step 100", "step 50", "step 100", "step 10"]
    found = known(progress(*lines, pattern=r"step (?P<step>\d+)", total=1000))
    assert (found["step"], found["percent"]) == (210, 21.0)


def test_timings_of_the_runtime_count_more_than_lines() -> None:
    found = progress("Epoch 1/2", KERAS_3.format(50))
    for moment, steps in ((1000.0, 100), (1010.0, 150)):
        found.take_timings({"time": moment, "steps": steps, "total": 400, "epoch": 1, "examples": 32 * steps})
        last = found.sample(moment + 1)
    assert (last["step"], last["total"], last["percent"], last["rate"], last["pace"]) == (150, 400, 37.5, 160.0, 5.0)
    assert last["left"] == 50.0
    assert last["figures"] == {"loss": 0.5, "acc": 0.8}


@pytest.mark.parametrize("value", [-1, True, "x", None, 1e300, [], float("nan")])
def test_whatever_a_task_writes_as_its_timings_gives_a_sample(value: Any) -> None:
    found = progress()
    found.take_timings(dict.fromkeys(("time", "steps", "total", "epoch", "examples"), value))
    found.sample(1000.0)


def test_number_of_figures_that_a_task_can_name_is_limited() -> None:
    line = "1/2 - 1s - " + " - ".join(f"m{number}: 1.0" for number in range(1000))
    assert len(known(progress(line))["figures"]) == 20
