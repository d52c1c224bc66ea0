"""The verb `logs`: one line that says which units, then journalctl's own JSON lines.

journalctl's traps that are stepped around here: with a cursor `-f` shows ten lines unless told `--no-tail`;
`--after-cursor` can lose an entry, so the inclusive `--cursor` is used and the client drops the first; fields beyond
4 KiB are null without `--all`; `-u` brings PID 1's own messages, which match by _SYSTEMD_UNIT does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Any

from . import book, names, plan
from .talk import Refused, Talk
from .world import World, host
from .world import run as run_to_end

_FIELDS = "MESSAGE,PRIORITY,_TRANSPORT,_SYSTEMD_UNIT,_STREAM_ID,_LINE_BREAK"


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """Does not return unless it follows, or there is nothing to read. Raises Refused, Gone."""
    job = plan.match(names.JOB, request.get("job"), "a job's name")
    wanted = plan.tasks_wanted(request.get("tasks"))
    attempt = plan.attempt_wanted(request.get("attempt")) or book.latest(world, job)
    record = book.record(world, job, attempt) if attempt else None
    if record is None:
        raise Refused(7, f"{host()} knows no attempt of job {job}", "tfctl list shows the jobs")
    units = {
        names.unit(job, *task): list(task)
        for task in book.tasks(world, job, attempt)
        if wanted is None or task in wanted
    }
    words = command(world, str(record.get("run")), list(units), request)
    talk.send("logs", {"attempt": attempt, "run": record.get("run"), "units": units})
    if not units:
        return
    if request.get("follow") is True:
        _follow(talk, words)
    else:
        # What the tasks have written may still be on its way through journald.
        with contextlib.suppress(Refused):
            run_to_end([*world.journalctl, "--sync"], 5.0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is executed would inherit that
        os.execv(words[0], words)


def command(world: World, run: str, units: list[str], request: dict[str, Any]) -> list[str]:
    """journalctl's words for a request. Raises Refused."""
    words = [*world.journalctl, "-q", "--no-pager", "--all", "-o", "json", f"--output-fields={_FIELDS}"]
    cursor, tail = request.get("cursor"), request.get("tail")
    follow = request.get("follow") is True
    if follow:
        words.append("-f")
    if cursor is not None:
        words.append(f"--cursor={_cursor(cursor)}")
    elif request.get("since") is not None:  # journalctl takes one of the two
        words.append(f"--since=@{_seconds(request['since'])}")
    if request.get("until") is not None:
        words.append(f"--until=@{_seconds(request['until'])}")
    if tail is not None and cursor is None:
        words.append(f"--lines={plan.number(tail, 'a number of lines', 0, 10**9)}")
    elif follow:
        words.append("--no-tail")
    return [*words, f"TFCTL_RUN={run}", *(f"_SYSTEMD_UNIT={unit}" for unit in units)]


def _follow(talk: Talk, words: list[str]) -> None:
    """Until the client closes its end; journalctl writes to the client by itself."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        while process.poll() is None and not talk.heard_of_end(1.0):
            pass
    finally:
        process.kill()
        process.wait(5)


def _cursor(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) < 1024 or not value.isprintable():
        raise Refused(2, "that is not a cursor of the journal")
    return value


def _seconds(value: Any) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e11:
        raise Refused(2, f"{value!r:.40} is not a time")
    return f"{value:.6f}"
