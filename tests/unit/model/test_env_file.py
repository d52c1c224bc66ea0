"""Files of environment variables: what each line means, and which lines are refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tfctl.errors import BadFile
from tfctl.model import env_file


def parse(text: str) -> dict[str, str]:
    return env_file.parse(text, Path(".env"))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("A = 1  ", "1"),
        ("export A=1", "1"),
        ("  A=", ""),
        ("A=a b # comment", "a b"),
        ("A=a#b", "a#b"),
        ("A= # comment", ""),
        ("A=#b", "#b"),
        ("A='a # b' # comment", "a # b"),
        ("A='${B} \\n $C'", "${B} \\n $C"),
        ('A="a # b"', "a # b"),
        (r'A="a \"b\" \\ \$ \x"', 'a "b" \\ $ \\x'),
        (r'A="a\nb\tc"', "a\nb\tc"),
        ('A="a\nb"', "a\nb"),
        (r'A="\${B} $${C}"', "${B} ${C}"),
        ("A=$${B} $C", "${B} $C"),
        ("A=it's", "it's"),
        ("A={role}", "{role}"),
        ("A=größer", "größer"),
        ("A=https://me:a@b/?q=1", "https://me:a@b/?q=1"),
    ],
)
def test_a_line_has_a_name_and_a_value(line: str, value: str) -> None:
    assert parse(f"# first\n\n{line}\nB=2") == {"A": value, "B": "2"}


@given(some.text(some.characters(exclude_categories=("Cc", "Cs", "Cn", "Zl", "Zp", "Co")), max_size=40))
def test_a_value_in_the_quotes_of_a_shell_is_read_as_the_shell_reads_it(value: str) -> None:
    if "'" not in value:
        assert parse(f"A={shlex.quote(value)}") == {"A": value}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A=1\nhunter2\n", ".env, line 2: this is not NAME=VALUE"),
        ("A: hunter2", ".env, line 1: this is not NAME=VALUE"),
        ("=hunter2", ".env, line 1: this is not NAME=VALUE"),
        ("A-B=hunter2", ".env, line 1: 'A-B' is not a variable name"),
        ("1A=hunter2", ".env, line 1: '1A' is not a variable name"),
        ("TF_CONFIG=hunter2", ".env, line 1: TF_CONFIG is set by tfctl itself"),
        ("A=1\n\nA=hunter2", ".env, line 3: A: given twice"),
        ("A='hunter2", ".env, line 1: A: the quote is not closed"),
        ('A="hunter2\nB=1\n', ".env, line 1: A: the quote is not closed"),
        ("A='hunter2' b", ".env, line 1: A: there is text after the closing quote"),
        ('A="1\n2"\nB="${C}hunter2"', ".env, line 3: B: tfctl does not replace `${C}`"),
        ("A=${C}hunter2", ".env, line 1: A: tfctl does not replace `${C}`"),
        ("A=hunter2\0", ".env, line 1: A: control character '\\x00' at position 7"),
        (f"A=hunter2{'x' * 2**17}", ".env, line 1: A: longer than 130816 bytes"),
    ],
)
def test_a_line_that_is_refused_is_named_without_its_value(text: str, sentence: str) -> None:
    with pytest.raises(BadFile) as caught:
        parse(text)
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_is_read_as_editors_on_any_system_write_it(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"\xef\xbb\xbfA=1\r\nB='2'\r\n")
    assert env_file.load(file) == {"A": "1", "B": "2"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    with pytest.raises(BadFile, match="does not exist\n  create it, or remove"):
        env_file.load(file)
    with pytest.raises(BadFile, match="cannot be read: Is a directory"):
        env_file.load(tmp_path)
    file.write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(BadFile, match=r"\.env, line 2: not UTF-8"):
        env_file.load(file)
    file.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(BadFile, match="larger than 1 MiB"):
        env_file.load(file)
