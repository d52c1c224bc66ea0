"""Numbers in sentences agree with their nouns."""

from __future__ import annotations

from tfctl.wording import counted, running


def test_counted_uses_the_singular_for_one() -> None:
    assert [counted(number, "host") for number in (0, 1, 2)] == ["0 hosts", "1 host", "2 hosts"]
    assert (running(1, 1), running(6, 3)) == ("1 task runs on 1 host", "6 tasks run on 3 hosts")
