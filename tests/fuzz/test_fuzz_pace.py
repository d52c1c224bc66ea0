"""The lines that tasks print about their speed, and those that tfctl_runtime records, which a task may write itself."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fuzz.cases import FUZZER, Cases
from tfctl.node.progress import FORMATS
from tfctl.report import pace
from tfctl.report.figures import task_figures, throughput

pytestmark = FUZZER

VALUES: list[Any] = [
    None, 0, 1, -1, 1e308, 1e400, float("nan"), 10**400, "x", True, [], {}, 23.4, 5, 400, 1.5e9,
]  # fmt: skip
FIELDS = (
    "time", "began", "steps", "examples", "seconds", "first_step", "first_steps", "input_wait", "evaluation",
)  # fmt: skip
NUMBERS = ["9" * 400, "1e5", "0", "7"]


def test_timings_of_any_content_give_figures() -> None:
    cases = Cases(20_000)
    for number, draw in cases:
        one = {name: draw.choice(VALUES) for name in FIELDS if draw.random() < 0.95}
        try:
            found = pace.of_timings(json.dumps(one) + "\n" + draw.choice(["", "{", "[[", "1", "[" * 5000]))
            took = draw.choice([None, 0.0, 5.0])
            figures = task_figures(
                "worker", 0, "n", "running", run_time=took, pace=found, computes=True, gpus=0, restarts=0
            )
            throughput({"worker/0": found}, ["worker/0"], leads=False)
            repr(figures)
        except Exception as error:
            cases.fault(number, f"{type(error).__name__}: {error}", one)
    cases.require_none(least=1000)


def line(draw: Random) -> str:
    number = [draw.choice(NUMBERS) for _ in range(4)]
    return draw.choice(
        [
            "10/10 [====] - 5s 1e400ms/step - loss: 1e400",
            f"{number[0]}/{number[1]} - 5s {number[2]}ms/step - loss: {number[3]}",
            f"{'9' * 5000}\timages/sec: 1e400 +/- 1 (jitter = 1)",
            "10 images/sec: 1e999 +/- 0.0 (jitter = 0.0) 7.5",
            f"Iter #1: {number[0]} img/sec per GPU",
            "Epoch 1/2",
        ]
    )


def test_progress_of_any_content_gives_figures() -> None:
    cases = Cases(5000)
    for number, draw in cases:
        lines = [line(draw) for _ in range(4)]
        for kind in (None, *FORMATS.values()):
            try:
                pace.of_lines(lines, kind)
            except Exception as error:
                cases.fault(number, f"{kind and kind.name}: {type(error).__name__}: {error}", lines)
    cases.require_none(least=500)
