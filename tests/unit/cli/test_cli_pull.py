"""The line that `tfctl pull` shows on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from tests.unit.cli.terminal import Terminal
from tfctl.cli.pull import PullLine
from tfctl.jobs.pull import PullProgress


def test_pull_shows_its_progress_in_one_line_and_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    with PullLine() as line:
        line.take(PullProgress(500_000, 1_000_000, 1, 2))
        assert "\r\033[K1 of 2 files, 500 kB of 1.0 MB" in shown.getvalue()
    assert shown.getvalue().endswith("/s\r\033[K")


@pytest.mark.parametrize(("terminal", "kind"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_pull_writes_no_line_into_a_pipe_or_on_a_dumb_terminal(
    terminal: type[io.StringIO], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys, "stderr", shown := terminal())
    with PullLine() as line:
        line.take(PullProgress(500_000, 1_000_000, 1, 2))
    assert shown.getvalue() == ""
