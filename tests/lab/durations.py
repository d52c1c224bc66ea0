"""Print how long the tests of each file took, with their fixtures, at the end of a run."""

from __future__ import annotations

from collections import defaultdict

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if seconds:
        terminalreporter.section("time of each file, with fixtures")
    for name, taken in sorted(seconds.items(), key=lambda each: each[1], reverse=True):
        terminalreporter.write_line(f"{taken:7.1f} s  {name}")
