"""A plugin of pytest for `scripts/mutants`: run the chosen tests, and record how each of them has ended.

Copies of the checkout load this file by itself, so it imports nothing from beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants-tests", type=Path, help="a file with the names of the tests to run; default: all")
    parser.addoption("--mutants-ends", type=Path, help="gets a line of JSON when a test begins, and one when it ends")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.mutants_ends:
        config.pluginmanager.register(_Recorder(config.option.mutants_ends))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.mutants_tests:
        chosen = set(config.option.mutants_tests.read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in chosen]


class _Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._why = ""
        self._seconds = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._why, self._seconds = "", 0.0
        self._write(begun=item.nodeid)
        found = yield
        self._write(test=item.nodeid, why=self._why, seconds=self._seconds)
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._write(shared=time.perf_counter() - began)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._why = self._why or _why(report)
        self._seconds += report.duration

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid, why=_why(report), seconds=0.0)

    def _write(self, **fields: object) -> None:
        self._file.write(json.dumps(fields) + "\n")


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the line of a report that says why a test has failed, or an empty string if it has not."""
    errors = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return (errors or ["failed"])[0].removeprefix("E").strip() if report.failed else ""
