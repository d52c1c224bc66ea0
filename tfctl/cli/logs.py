"""tfctl logs: show what tasks print, read from their hosts."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobOption, Output, OutputOption, find_job, say
from tfctl.errors import Exit, TfctlError, UsageError, first_of
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.jobs.logs import Line
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet

_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "bright_cyan", "bright_yellow", "bright_magenta")


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl logs worker 3    tfctl logs ps -f    tfctl logs --since 10m --grep loss")(logs)


def logs(
    role: Annotated[
        str | None, typer.Argument(metavar="[ROLE", show_default=False, help="A role, or one task, such as worker/3.")
    ] = None,
    index: Annotated[
        int | None, typer.Argument(metavar="[INDEX]]", show_default=False, help="One of its tasks.")
    ] = None,
    job: JobOption = None,
    inventory: InventoryOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines too, until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N lines.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="Lines since 10m (ago) or 2026-11-22T13:00.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="Lines up to this time.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", show_default=False, help="Only lines that match.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Begin each line with its time.")] = False,
    output: OutputOption = Output.text,
) -> int:
    """Show what tasks print, merged in order of time. Works during the job and after it."""
    from tfctl.jobs import logs as job_logs
    from tfctl.jobs import show
    from tfctl.remote.fleet import Fleet

    role, index = _task(role, index)
    times = moment(since, "--since"), moment(until, "--until")
    wanted = None if grep is None else job_logs.pattern(grep)
    found, name = find_job(None, job, inventory)
    with Fleet(found.hosts) as fleet:
        state, _ = show.one(fleet, name)
        if name is None:
            say(f"job: {state.job}")
        fleet.narrow(state.hosts)
        query = job_logs.Query(job_logs.tasks_of(state, role, index), *times, tail, wanted)
        printer = Printer(state, timestamps, output is Output.json)
        if follow and not state.ended:
            for lines in job_logs.follow(fleet, state, query, _end_of(fleet, state), say):
                printer(lines)
            return Exit.OK
        errors: list[TfctlError] = []
        printer(job_logs.read(fleet, state, query, errors.append))
    for error in errors:
        say(f"tfctl: {error.message}")
    return first_of(error.exit for error in errors)


class Printer:
    """Prints lines on stdout, prefixed ``worker/3 │`` or as one JSON object each."""

    def __init__(self, state: JobState, timestamps: bool = False, as_json: bool = False) -> None:
        from tfctl.jobs.state import rfc3339_ms

        self._time = rfc3339_ms
        self._width = max(len(str(task)) for task in state.tasks)
        self._timestamps = timestamps
        self._json = as_json
        roles = list(dict.fromkeys(task.role for task in state.tasks))
        self._colours = {role: _COLOURS[number % len(_COLOURS)] for number, role in enumerate(roles)}

    def __call__(self, lines: Iterable[Line]) -> None:
        write = sys.stdout.write
        for line in lines:
            write(self._as_json(line) if self._json else self._as_text(line))
        sys.stdout.flush()

    def _as_json(self, line: Line) -> str:
        value = {
            "time": self._time(line.time),
            "role": line.role,
            "index": line.index,
            "host": line.host,
            "stream": line.stream,
            "line": line.text,
        }
        return json.dumps(value) + "\n"

    def _as_text(self, line: Line) -> str:
        name = f"{line.role}/{line.index}".ljust(self._width)
        prefix = text.coloured(f"{name} │", self._colours.get(line.role, ""))
        when = f"{self._time(line.time)} " if self._timestamps else ""
        # A progress bar overwrites itself with \r; show its last state.
        shown = plain(line.text.rstrip("\r").rpartition("\r")[2])
        return f"{when}{prefix} {shown}\n"


def moment(word: str | None, option: str) -> float | None:
    """Parse ``10m`` (ago), or a time such as 2026-11-22T13:00, local unless it has an offset. Raise UsageError."""
    if word is None:
        return None
    if re.fullmatch(r"\d[\ddhms]*", word):
        from tfctl.cli.wait import seconds

        return time.time() - (seconds(word, option) or 0.0)
    try:
        return datetime.fromisoformat(word).timestamp()
    except ValueError:
        raise UsageError(
            f"{option}: {word!r} is neither a duration such as 10m nor a time such as 2026-11-22T13:00"
        ) from None


def _task(role: str | None, index: int | None) -> tuple[str | None, int | None]:
    """Treat ``worker/3`` like ``worker 3``."""
    if role is None or "/" not in role:
        return role, index
    name, _, number = role.partition("/")
    if not number.isdecimal() or index is not None:
        raise UsageError(f"{role!r} is not a task", "write worker 3, or worker/3")
    return name, int(number)


def _end_of(fleet: Fleet, state: JobState) -> threading.Event:
    """Return an event that is set once the job has ended, or cannot be watched any more."""
    from tfctl.jobs.wait import changes

    over = threading.Event()

    def watch() -> None:
        try:
            for later in changes(fleet, state.job, state.attempt):
                if later.ended:
                    break
        except TfctlError as error:
            say(f"tfctl: {error.message}")
        finally:
            over.set()

    threading.Thread(target=watch, daemon=True).start()
    return over
