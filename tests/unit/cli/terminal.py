"""A stream that says that it is a terminal."""

from __future__ import annotations

import io

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Make stdout a terminal of this width without colours. Fixtures cannot: pytest sets stdout again after them."""
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
