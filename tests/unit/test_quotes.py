"""Messages that docs/troubleshooting.md quotes are messages that tfctl prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def quotes() -> Iterator[str]:
    """Yield the messages on the page: the first column of a table of what a command says, and what follows `says`."""
    for table in re.findall(r"^\| `tfctl \w+` says \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        yield from re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    yield from re.findall(r"`(?:tfctl )?(?:verify|restart|start|wait|stop)[^`]*`[^|`]*? says `([^`]+)`", PAGE)


@cache
def sources() -> list[str]:
    return [path.read_text() for path in (*ROOT.glob("tfctl/**/*.py"), *ROOT.glob("playbooks/**/*.py"))]


def messages(quote: str) -> Iterator[re.Pattern[str]]:
    """Yield every string with three words or more, from its first letter to its last, in those files of tfctl's code
    that have two neighbouring words of the quote.

    What is filled in when it runs matches anything.
    """
    pairs = [" ".join(pair) for pair in pairwise(quote.split())]
    for source in sources():
        if any(pair in source for pair in pairs):
            yield from strings(source)


@cache
def strings(source: str) -> list[re.Pattern[str]]:
    found = []
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
        literal = [text for text in texts if isinstance(text, str)]
        if len(re.findall(r"[a-z]{2,}", " ".join(literal))) >= 3:
            pattern = "".join("\0" if text is None else str(text) for text in texts).strip("\0:;, \n")
            found.append(re.compile(re.escape(pattern).replace(re.escape("\0"), ".*")))
    return found


def test_the_page_quotes_messages() -> None:
    assert len(list(quotes())) >= 6


@pytest.mark.parametrize("quote", list(quotes()))
def test_a_quoted_message_is_one_that_tfctl_prints(quote: str) -> None:
    assert any(message.search(quote) for message in messages(quote)), f"no message of tfctl reads {quote!r}"
