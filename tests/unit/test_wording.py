"""Wording that several commands share."""

from __future__ import annotations

import json
import sys
import unicodedata

from tests.linked_package import PACKAGE
from tfctl.wording import Lines, cell, counted, lines_of, plain, printed, running, shown, with_remedy

#: Unicode's categories of characters that are not shown: controls, formats, surrogates, separators.
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def test_counted_uses_the_singular_for_one() -> None:
    assert [counted(number, "host") for number in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]
    assert (running(1, 1), running(6, 3)) == ("1 task runs on 1 host", "6 tasks run on 3 hosts")


def test_remedy_stands_behind_an_arrow_below_the_message() -> None:
    assert with_remedy("a: wrong", "") == "a: wrong"
    found = with_remedy(Lines("a: wrong", "and bad"), Lines("do this", "or that"))
    assert found == "a: wrong\n  and bad\n  → do this\n  → or that"


def test_lines_stay_lines_when_text_is_added_to_them() -> None:
    found = "tfctl: " + Lines("a", Lines("b", "c\nd")) + " (" + Lines("e", "f") + ")"
    assert lines_of(found) == ("tfctl: a", "b", "c\nd (e", "f)")
    assert found == "tfctl: a\nb\nc\nd (e\nf)"
    assert lines_of(f"{Lines('a', 'b')}") == ("a\nb",)
    assert json.loads(json.dumps(Lines("a", "b"))) == "a\nb"


def test_further_lines_of_foreign_text_begin_with_a_bar() -> None:
    assert shown("a: E: no space\r\nE: \x1b[2Jdpkg ended\n") == "a: E: no space\n  │ E: ?[2Jdpkg ended"
    assert shown(Lines("a", "b\u2028c")) == "a\nb\n  │ c"
    assert shown("") == ""


def test_characters_that_a_terminal_obeys_or_hides_are_replaced_and_no_others() -> None:
    """By the categories of this Python's Unicode. Later versions have some characters that this one does not know."""
    unseen = {chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in HIDDEN} - {"\t"}
    replaced = {chr(code) for code in range(sys.maxunicode + 1) if plain(chr(code)) == "?"} - {"?"}
    assert unseen <= replaced
    assert {unicodedata.category(char) for char in replaced - unseen} <= {"Cn", "Mn"}


def test_a_cell_has_single_spaces_only() -> None:
    assert cell(" a  b\tc\xa0\u3000d\u2800\u3164e\nf ") == "a b c d e?f"


def test_what_was_printed_at_once_is_shown_line_by_line() -> None:
    assert printed("a\r\n 1/9\r 9/9\r\nb\tc\n") == ["a", " 9/9", "b\tc"]
    assert (printed(""), printed("\n"), printed("a\n\n")) == ([""], [""], ["a", ""])


def test_arrows_before_remedies_are_written_in_one_place() -> None:
    """`provision` and `preflight` print them in a column beside the names of the hosts."""
    places = [path.name for path in sorted(PACKAGE.rglob("*.py")) if "→ {" in path.read_text(encoding="utf-8")]
    assert places == ["host_results.py", "wording.py"]
