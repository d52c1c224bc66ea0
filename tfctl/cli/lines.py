"""Lines from tasks' logs, and the gaps among them, as they are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfctl.cli import text
from tfctl.cli.common import say
from tfctl.cli.stdout import require_reader
from tfctl.node import names
from tfctl.wording import listed, printed, rfc3339_ms

if TYPE_CHECKING:
    from tfctl.cli.objects import LineObject, LostObject
    from tfctl.jobs.journal import Gap, Item, Line
    from tfctl.jobs.state import JobState

_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "bright_cyan", "bright_yellow", "bright_magenta")


class Printer:
    """Prints lines on stdout, prefixed ``worker/3 │`` or as one JSON object each.

    A task may log several lines at once: then each has the prefix, and the JSON object has them all, unchanged.
    In text, gaps are reported on stderr. In JSON, a gap is an object for each task, with the same keys and ``lost``.
    Raises BrokenPipeError once nobody reads stdout any more.
    """

    def __init__(self, state: JobState, timestamps: bool = False, as_json: bool = False) -> None:
        self._width = max(len(str(task)) for task in state.tasks)
        self._timestamps = timestamps
        self._json = as_json
        roles = list(dict.fromkeys(task.role for task in state.tasks))
        self._colours = {role: _COLOURS[number % len(_COLOURS)] for number, role in enumerate(roles)}

    def __call__(self, items: Iterable[Item]) -> None:
        from tfctl.jobs.journal import Line

        write = sys.stdout.write
        for item in items:
            require_reader()
            if isinstance(item, Line):
                write(self._as_json(item) if self._json else self._as_text(item))
            elif self._json:
                write(_gap_as_json(item))
            else:
                sys.stdout.flush()
                say(f"~~ {_sentence(item)}")
        sys.stdout.flush()
        require_reader()

    def _as_json(self, line: Line) -> str:
        return json.dumps(_object(line.time, line.role, line.index, line.host, line.stream, line.text)) + "\n"

    def _as_text(self, line: Line) -> str:
        name = names.task(line.role, line.index).ljust(self._width)
        prefix = text.coloured(f"{name} │", self._colours.get(line.role, ""))
        when = f"{rfc3339_ms(line.time)} " if self._timestamps else ""
        return "".join(f"{when}{prefix} {text}\n" for text in printed(line.text))


def _object(time: float, role: str, index: int, host: str, stream: str, line: str) -> LineObject:
    return {"time": rfc3339_ms(time), "role": role, "index": index, "host": host, "stream": stream, "line": line}


def _gap_as_json(gap: Gap) -> str:
    lost: LostObject = {"cause": gap.cause, "since": _time(gap.since), "until": _time(gap.until), "lines": gap.lines}
    objects: list[LineObject] = [
        {**_object(gap.time, *task, gap.host, "lost", _sentence(gap)), "lost": lost} for task in gap.tasks
    ]
    return "".join(json.dumps(each) + "\n" for each in objects)


def _sentence(gap: Gap) -> str:
    tasks = listed([names.task(*task) for task in gap.tasks])
    if gap.cause == "dropped":
        number = f"{gap.lines:,} {'line' if gap.lines == 1 else 'lines'}"
        return f"{gap.host}: {number} of {tasks} before {text.clock(gap.until)} were dropped by journald"
    if gap.cause == "cut":
        return f"{gap.host}: the line of {tasks} at {text.clock(gap.time)} was cut, because it has {gap.size:,} bytes"
    if gap.cause == "unsearched":
        return f"{gap.host}: a line of {tasks} at {text.clock(gap.time)} took too long to search and was left out"
    between = f"after {text.clock(gap.since)}"
    if gap.until is not None:
        between = f"between {text.clock(gap.since)} and {text.clock(gap.until)}"
    return f"{gap.host}: lines of {tasks} {between} are no longer in the journal"


def _time(moment: float | None) -> str | None:
    return None if moment is None else rfc3339_ms(moment)
