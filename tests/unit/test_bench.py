"""The command line of scripts/bench. What it measures needs a lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *words], capture_output=True, text=True, timeout=30)


def test_help_is_not_taken_for_an_inventory() -> None:
    done = bench("--help")
    assert (done.returncode, done.stdout.startswith("usage: bench ")) == (0, True)


@pytest.mark.parametrize("words", [[], ["my.ini", "many"], ["my.ini", "0"], ["my.ini", "5", "more"], ["--fast"]])
def test_a_wrong_command_line_is_a_usage_error(words: list[str]) -> None:
    done = bench(*words)
    assert (done.returncode, done.stderr.startswith("usage: bench ")) == (2, True)
