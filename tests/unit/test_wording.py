"""Wording that several commands share."""

from __future__ import annotations

from tests.linked_package import PACKAGE
from tfctl.wording import counted, running, with_remedy


def test_counted_uses_the_singular_for_one() -> None:
    assert [counted(number, "host") for number in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]
    assert (running(1, 1), running(6, 3)) == ("1 task runs on 1 host", "6 tasks run on 3 hosts")


def test_remedy_stands_behind_an_arrow_below_the_message() -> None:
    assert with_remedy("a: wrong", "") == "a: wrong"
    assert with_remedy("a: wrong\nand bad", "do this\nor that") == "a: wrong\n  and bad\n  → do this\n  → or that"


def test_arrows_before_remedies_are_written_in_one_place() -> None:
    """`provision` and `preflight` print them in a column beside the names of the hosts."""
    places = [path.name for path in sorted(PACKAGE.rglob("*.py")) if "→ {" in path.read_text(encoding="utf-8")]
    assert places == ["host_results.py", "wording.py"]
