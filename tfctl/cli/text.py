"""How values are shown: tables, times, and colours on terminals only. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from tfctl.wording import cell

_COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "running": "cyan",
    "starting": "blue",
    "pending": "blue",
    "stopped": "yellow",
    "unknown": "magenta",
    "silent": "yellow",
    "ready": "green",
    "fit": "green",
    "unreachable": "magenta",
    "unfit": "red",
}


def print_json(value: Any) -> None:
    """Print one JSON object, indented on a terminal. Flush it: the reader of a pipe may wait for it."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def state_word(state: str) -> str:
    """Return a state in its colour."""
    return coloured(state, _COLOURS.get(state.partition(",")[0].strip(), ""))


def coloured(word: str, colour: str) -> str:
    """Return a word in a colour if the terminal allows it (no-color.org)."""
    return typer.style(word, fg=colour) if colour and _takes_colours() else word


def table(rows: Sequence[Sequence[str]], state: int | None = None) -> str:
    """Align rows, the header first, in columns. The column numbered ``state`` is coloured on a terminal.

    On a terminal that is too narrow, the columns that do not fit continue on further lines, which are indented.
    """
    lines = [list(map(cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        line[:] = [each.ljust(width) for each, width in zip(line, widths, strict=True)]
    if state is not None:
        for line in lines[1:]:
            line[state] = state_word(line[state])
    groups = _fitting(widths, _terminal_width())
    return "\n".join(
        "\n    ".join(["  ".join(line[: groups[0]]).rstrip(), *filter(None, _continued(line, groups))])
        for line in lines
    )


def _fitting(widths: Sequence[int], most: int | None) -> list[int]:
    """Return the numbers of the columns before which a line ends, so that no line is wider than ``most``."""
    ends: list[int] = []
    used = 0
    for number, width in enumerate(widths):
        if most is not None and number and used + width > most:
            ends.append(number)
            used = 4
        used += width + 2
    return [*ends, len(widths)]


def _continued(line: Sequence[str], groups: Sequence[int]) -> list[str]:
    return ["  ".join(line[start:end]).rstrip() for start, end in itertools.pairwise(groups)]


def _terminal_width() -> int | None:
    """Return the number of columns of the terminal, or None if stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def lasted(started: float | None, finished: float | None) -> str:
    """Return a duration such as ``42 s``, ``3 min`` or ``5 h``, up to the end or now; empty if not started."""
    return "" if started is None else duration(max(0.0, (finished or time.time()) - started))


def duration(seconds: float) -> str:
    """Return a duration as ``42 s``, ``3 min`` or ``5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def cropped(line: str, width: int) -> str:
    """Return the beginning of a line, without what a terminal of this width would wrap. It may have colours."""
    found, left = "", width
    for part in re.split(r"(\033\[[0-9;]*m)", line):
        found += part if part.startswith("\033") else part[:left]
        left -= 0 if part.startswith("\033") else min(left, len(part))
    return found


def figure(value: float) -> str:
    """Return a number with three significant digits, or as an integer if it has more before its point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def clock(moment: float | None) -> str:
    """Return the local time of day, with the date if it is not today."""
    if moment is None:
        return ""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


@cache
def _takes_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
