"""What commands beside tasks write arrives in pieces, which end anywhere."""

from __future__ import annotations

import sys

import pytest
from records import make_state

from tests.unit.cli.terminal import Terminal
from tfctl.cli.exec import _Raw
from tfctl.jobs.exec import Splitter


def test_characters_and_ends_of_lines_stay_whole_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    raw = _Raw()
    for stream, piece in (1, b"M\xc3"), (2, b"x"), (1, b"\xa4rz\r"), (1, b"\n50%\r\033[2J"), (1, b"\xe2\x82"):
        raw(make_state(), stream, piece)
    assert out.getvalue() == "M\u00e4rz\n50%\n?[2J"
    raw.close()
    assert (out.getvalue(), err.getvalue()) == ("M\u00e4rz\n50%\n?[2J\ufffd", "x")


def test_lines_are_put_together_from_pieces() -> None:
    splitter = Splitter()
    assert [splitter.add(piece) for piece in (b"a", b"b\n\nc\xc3", b"", b"\xa4\n", b"end")] == [
        [], ["ab", ""], [], ["c\u00e4"], [],
    ]  # fmt: skip
    assert (splitter.rest(), splitter.rest()) == ("end", "")


@pytest.mark.timeout(20)
def test_a_long_line_costs_no_more_than_its_pieces() -> None:
    splitter = Splitter()
    for _ in range(1 << 14):
        assert splitter.add(b"x" * (1 << 12)) == []
    assert [len(line) for line in splitter.add(b"\n")] == [1 << 26]
