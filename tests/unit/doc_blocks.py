"""Read the code of the documentation's Markdown pages, and the comments that say how tests treat it.

A comment holds for the blocks below it, until the next such comment of the page:

    <!-- run -->                            test_doc_blocks.py runs the commands, in one directory for the page
    <!-- run by tests/lab/test_x.py -->     these tests run the commands, perhaps with other arguments
    <!-- not run: REASON -->                no test runs them

A comment for the next block alone says what a block of YAML is:

    <!-- fragment: KEY -->                  what is below this key of a job file
    <!-- not a job file -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
_RUN = re.compile(r"<!-- ((?:run|not run)\b.*?) -->", re.DOTALL)
_KIND = re.compile(r"<!-- (fragment: \w+|not a job file) -->")
#: What stands before a command: a prompt, an arrow of a remedy, variables of the environment.
_BEFORE = re.compile(r"^\s*(?:\$ |→ )?(?:[A-Z_]+=\S+ )*")
#: What stands behind it: a description after three spaces, a comment, another command, a redirection.
_BEHIND = re.compile(r"\s{3,}| #| && | \|\|? | > |; ")


@dataclass(frozen=True)
class Block:
    """A block of code. ``run`` and ``kind``: the comments that hold for it, or an empty string. ``language``: that of a
    fence; `text` is output, or a synopsis."""

    page: str
    line: int
    language: str
    text: str
    run: str
    kind: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def programs(self) -> list[str]:
        """The other programs that are run behind a prompt."""
        return [
            name for name in re.findall(r"^\s*\$ (?:[A-Z_]+=\S+ )*(\S+)", self.text, re.MULTILINE) if name != "tfctl"
        ]

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command line of tfctl, without `tfctl` itself."""
        lines = (_BEHIND.split(_BEFORE.sub("", line))[0] for line in self.text.replace("\\\n", "").splitlines())
        found = [] if self.language == "text" else [line for line in lines if re.match(r"tfctl [a-z-]", line)]
        return [shlex.split(line)[1:] for line in found]


def pages() -> list[Path]:
    """Return the pages that describe tfctl as it is: all but the history."""
    found = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("SECURITY.md")]
    return [page for page in sorted(found) if page.name != "decisions.md"]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of code of a page, indented or fenced."""
    name, run, kind = str(page.relative_to(ROOT)), "", ""
    for token in MarkdownIt().enable("table").parse(page.read_text("utf-8")):
        if token.type == "html_block":
            run = match[1] if (match := _RUN.search(token.content)) else run
            kind = match[1] if (match := _KIND.search(token.content)) else kind
        elif token.type in ("fence", "code_block"):
            yield Block(name, token.map[0] + 1 if token.map else 0, token.info, token.content, run, kind)
            kind = ""


def inline_commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of tfctl within the text of a page, without `tfctl` and brackets."""
    for token in MarkdownIt().enable("table").parse(page.read_text("utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and re.match(r"tfctl [a-z]", child.content):
                yield child.content.replace("[", "").replace("]", "").split()[1:]
