"""How values are shown: tables, times, and colours on terminals only. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import typer

from tfctl.cli.common import say
from tfctl.wording import cell, counted

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


class Rendered(NamedTuple):
    """Tables as text. ``left_out``: the headings of the columns for which the terminal is too narrow."""

    text: str
    left_out: tuple[str, ...] = ()


def table(
    rows: Sequence[Sequence[str]], ranks: Sequence[int] = (), state: int | None = None, wide: bool = False
) -> Rendered:
    """Align rows, the header first, in columns. The column numbered ``state`` is coloured on a terminal.

    On a terminal that is too narrow, only columns that fit are shown, those with a low number in ``ranks`` first.
    Columns of rank 0 always are, and with ``wide`` all are. If these do not fit, they continue on further lines, which
    are indented.
    """
    lines = [list(map(cell, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    most = _terminal_width()
    kept = list(range(len(widths))) if wide or most is None else _kept(widths, ranks or [0] * len(widths), most)
    left_out = tuple(heading for number, heading in enumerate(lines[0]) if number not in kept)
    for line in lines:
        line[:] = [each.ljust(width) for each, width in zip(line, widths, strict=True)]
    if state is not None:
        for line in lines[1:]:
            line[state] = state_word(line[state])
    parts = _parts(kept, widths, most)
    return Rendered("\n".join(itertools.chain.from_iterable(_wrapped(line, parts) for line in lines)), left_out)


def joined(tables: Sequence[Rendered]) -> Rendered:
    """Return tables with an empty line between them."""
    left_out = dict.fromkeys(heading for each in tables for heading in each.left_out)
    return Rendered("\n\n".join(each.text for each in tables), tuple(left_out))


def show(tables: Rendered) -> None:
    """Print tables. Say on stderr which columns are left out."""
    typer.echo(tables.text)
    if tables.left_out:
        columns = counted(len(tables.left_out), "column is", "columns are")
        say(f"{columns} left out: {', '.join(tables.left_out)}; -o wide shows all")


def _kept(widths: Sequence[int], ranks: Sequence[int], most: int) -> list[int]:
    """Return the numbers of the columns of rank 0, and of those others, in the order of ranks, that still fit."""
    kept = [number for number, rank in enumerate(ranks) if not rank]
    for number in sorted((number for number, rank in enumerate(ranks) if rank), key=lambda number: ranks[number]):
        if sum(widths[each] + 2 for each in (*kept, number)) - 2 <= most:
            kept.append(number)
    return sorted(kept)


def _parts(columns: Sequence[int], widths: Sequence[int], most: int | None) -> list[list[int]]:
    """Distribute the columns over as many lines as they need so that none is wider than ``most``."""
    parts: list[list[int]] = [[]]
    used = 0
    for number in columns:
        if most is not None and parts[-1] and used + widths[number] > most:
            parts.append([])
            used = 4
        parts[-1].append(number)
        used += widths[number] + 2
    return parts


def _wrapped(line: Sequence[str], parts: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the cells of a row, on several lines if there are several parts. Empty further lines are omitted."""
    first, *rest = ("  ".join(line[number] for number in part).rstrip() for part in parts)
    yield first
    yield from (f"    {each}" for each in rest if each)


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
