"""Parts of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A cell is Markdown on one line."""
    lines = ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in (headings, *rows)]
    lines.insert(1, "|" + "---|" * len(headings))
    return "\n".join(lines).replace("|  |", "| |").replace("|  |", "| |")


def paragraphs(*parts: str) -> str:
    """Join the parts that are not empty, with a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def code(text: object) -> str:
    """Return the text as code within a line."""
    return f"`{text}`"


def fenced(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def sentence(text: str) -> str:
    """Return the text with a capital letter and a full stop."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text.endswith((".", "?", ")")) else ".")


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))
