"""How values are shown: tables, times, and colours on terminals only. Data goes to stdout, messages to stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState, TaskState

_COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "running": "cyan",
    "starting": "blue",
    "pending": "blue",
    "stopped": "yellow",
    "unknown": "magenta",
    "ready": "green",
    "fit": "green",
    "unreachable": "magenta",
    "unfit": "red",
}


def print_json(value: Any) -> None:
    """Print one JSON object, indented on a terminal."""
    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None))


def state_word(state: str) -> str:
    """Return a state in its colour."""
    return coloured(state, _COLOURS.get(state.strip(), ""))


def coloured(word: str, colour: str) -> str:
    """Return a word in a colour if the terminal allows it (no-color.org)."""
    return typer.style(word, fg=colour) if colour and _takes_colours() else word


def table(rows: Sequence[Sequence[str]], state: int | None = None) -> str:
    """Align rows, the header first, in columns. The column numbered ``state`` is coloured on a terminal."""
    lines = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        line[:] = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
    if state is not None:
        for line in lines[1:]:
            line[state] = state_word(line[state])
    return "\n".join("  ".join(line).rstrip() for line in lines)


def status(found: JobState) -> str:
    """Return a job's state and its reason, above a table of its tasks, failed ones first."""
    record = found.record
    head = plain(f"{found.job}  attempt {found.attempt}  {record['strategy']}  {record['stack']}  ")
    rows: list[tuple[str, ...]] = [("TASK", "HOST", "ADDRESS", "STATE", "EXIT", "RESTARTS", "STARTED", "LASTED")]
    rows += [_row(task) for task in found.by_attention()]
    reason = [f"  {plain(found.reason)}"] if found.reason else []
    return "\n".join([head + state_word(found.state), *reason, table(rows, state=3)])


def lasted(started: float | None, finished: float | None) -> str:
    """Return a duration such as ``42 s``, ``3 min`` or ``5 h``, up to the end or now; empty if not started."""
    if started is None:
        return ""
    seconds = max(0.0, (finished or time.time()) - started)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def clock(moment: float | None) -> str:
    """Return the local time of day, with the date if it is not today."""
    if moment is None:
        return ""
    then, now = time.localtime(moment), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def _row(task: TaskState) -> tuple[str, ...]:
    ending = task.signal or ("" if task.exit_code is None else str(task.exit_code))
    return (
        str(task), task.host, f"{task.address}:{task.port}", task.state, ending, str(task.restarts),
        clock(task.started), "" if task.state == "lost" else lasted(task.started, task.finished),
    )  # fmt: skip


@cache
def _takes_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
