from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tfctl.model import text
from tfctl.node import unitfile

# What may reach a process: any text but controls other than tab and newline.
PASSABLE = some.text(
    some.one_of(some.characters(exclude_categories=("Cc", "Cs")), some.sampled_from("\t\n\"\\%$`'{}; ")), max_size=60
)


@given(PASSABLE)
def test_a_word_of_a_unit_is_one_that_hosts_accept(value: str) -> None:
    assert re.fullmatch(unitfile._WORD, text.unit_word(value))


@given(PASSABLE)
def test_an_environment_line_holds_its_value_byte_for_byte(value: str) -> None:
    """Read back by the rules of systemd.exec(5): in double quotes a backslash takes what follows as it is."""
    line = text.env_line("NAME", value)
    assert line.startswith('NAME="')
    assert line.endswith('"\n')
    assert _read_env(line[6:-2]) == value


@given(PASSABLE)
def test_quoted_word_of_a_unit_is_one_line_and_keeps_its_value(value: str) -> None:
    word = text.unit_word(value)
    assert "\n" not in word
    assert _read_unit(word) == value


@given(some.lists(some.text(some.characters(exclude_categories=("Cc", "Cs")), min_size=1), min_size=1))
def test_a_quoted_command_is_split_as_a_shell_would(words: list[str]) -> None:
    assert text.split(shlex.join(words)) == tuple(words)


@pytest.mark.parametrize(
    ("command", "word"),
    [("a && b", "&&"), ("a | b", "|"), ("a; b", ";"), ("a > b", ">"), ("a < b", "<"), ("a $X", "$"), ("a `b`", "`")],
)
def test_a_command_that_needs_a_shell_is_refused(command: str, word: str) -> None:
    with pytest.raises(ValueError, match=r"\[sh, -c, 'exec …'\]"):
        text.split(command)
    quoted = command.replace(word, f"'{word}'")
    assert word in "".join(text.split(quoted))


@pytest.mark.parametrize(
    ("given", "seconds"), [(90, 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("45", None)]
)
def test_a_duration_is_parsed_as_seconds(given: object, seconds: int | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="duration"):
            text.seconds(given)
    else:
        assert text.seconds(given) == seconds


@pytest.mark.parametrize("bad", ["nul\0", "bell\a", "escape\x1b[0m", "return\r", "\ud800", "x" * 140_000])
def test_text_that_cannot_reach_a_process_unchanged_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=r"control character|longer than"):
        text.clean(bad)


@pytest.mark.parametrize("bad", ["\uffff", "\ufffe", "\ufdd0", "\U0010ffff", "\u2028", "\u2029"])
def test_a_character_that_systemd_does_not_take_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="position 1 is not allowed in a unit; put the text in a file"):
        text.clean(f"a{bad}")
    assert text.clean("\ufffd\ufdcf") == "\ufffd\ufdcf"


@pytest.mark.parametrize("bad", ["relative", "/a/../b", "/a b", "/a\nb", "/a%b", '/a"b', "", f"/{201 * 'a'}"])
def test_a_path_that_is_not_plain_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="plain absolute path"):
        text.absolute_path(bad)


@pytest.mark.parametrize("hidden", ["/home/me/out", "/root", "/run/user/1000/x", "//home//me"])
def test_an_output_that_tasks_cannot_see_is_refused(hidden: str) -> None:
    with pytest.raises(ValueError, match="which tasks cannot see"):
        text.output_path(hidden)
    assert text.output_path("/srv/home") == "/srv/home"


def test_doubled_and_trailing_slashes_are_removed() -> None:
    assert text.absolute_path("//srv//tfctl/./x/") == "/srv/tfctl/x"


def _read_env(quoted: str) -> str:
    read, rest = "", iter(quoted)
    for char in rest:
        read += next(rest) if char == "\\" else char
    return read


def _read_unit(word: str) -> str:
    assert word[0] == word[-1] == '"'
    read, rest = "", iter(word[1:-1])
    for char in rest:
        if char == "\\":
            char = {"n": "\n", "t": "\t"}.get(following := next(rest), following)
        elif char == "%":
            assert next(rest) == "%"
        read += char
    return read
