"""Each rule about the lines of a task finds its cause in a log that a program has really printed.

A file of tests/unit/node/causes begins with a line `kind | source | sentence`. The rest is the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tfctl.node import causes

LOGS = sorted((Path(__file__).parent / "causes").glob("*.log"))


def read(path: Path) -> tuple[str, str, str, list[str]]:
    head, *lines = path.read_text().splitlines()
    kind, source, sentence = (part.strip() for part in head.split("|"))
    return kind, source, sentence, lines


def found(lines: Sequence[str]) -> causes.Found | None:
    return causes.find([(float(number), line) for number, line in enumerate(lines)])


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_rule_finds_its_cause_in_a_recorded_log(path: Path) -> None:
    kind, _, sentence, lines = read(path)
    cause = found(lines)
    assert cause is not None, "no rule applies"
    assert (cause.rule.kind, cause.sentence) == (kind, sentence)
    assert cause.remedy and "{" not in cause.remedy.replace("{NCCL", "")


def test_each_rule_has_a_recorded_log_from_its_source() -> None:
    recorded = {(kind, source) for kind, source, _, _ in map(read, LOGS)}
    assert {(cause.kind, cause.source) for cause in causes.RULES} == recorded


def test_lines_of_a_healthy_training_have_no_cause() -> None:
    lines = [
        "2026-11-29 11:23:54.1: I tensorflow/core/distributed_runtime/coordination/coordination_service.cc:535] "
        "/job:worker/replica:0/task:1 has connected to coordination service. Incarnation: 1",
        "20/20 - 0s - loss: 1.3221 - 85ms/epoch - 4ms/step",
        "WARNING:tensorflow:AutoGraph could not transform <function> and will run it as-is.",
        "validation error 0.25, exit 0",
    ]
    assert found(lines) is None


def test_a_cause_counts_before_a_consequence_and_the_first_rule_before_later_ones() -> None:
    consequence = "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed"
    assert found([consequence]).rule.consequence  # type: ignore[union-attr]
    both = found([consequence, "ValueError: shapes differ", "ModuleNotFoundError: No module named 'einops'"])
    assert both is not None and both.rule.kind == "missing module"


def test_hostile_lines_are_searched_quickly() -> None:
    texts = ["NotFoundError:_temp" * 800, "FileNotFoundError: No such file or directory: " * 300]
    began = time.process_time()
    assert causes.find([(0.0, f"x {text}") for text in texts * 20]) is None
    assert time.process_time() - began < 4
