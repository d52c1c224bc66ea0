"""The verb `logs`: send one line that lists the units, then journalctl's own JSON lines.

This module works around four traps of journalctl. With a cursor, `-f` shows only ten lines unless `--no-tail` is
given. `--after-cursor` can lose an entry, so it uses the inclusive `--cursor` and the client drops the first entry.
Without `--all`, fields over 4 KiB are null. `-u` adds messages of PID 1, which a match on _SYSTEMD_UNIT does not.
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
    """Serve one request. Returns only if it follows or no unit matches; otherwise becomes journalctl.

    Raises Refused, Gone.
    """
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
        # Recent output of the tasks may still be queued in journald.
        with contextlib.suppress(Refused):
            run_to_end([*world.journalctl, "--sync"], 5.0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE, and journalctl would inherit that
        os.execv(words[0], words)


def command(world: World, run: str, units: list[str], request: dict[str, Any]) -> list[str]:
    """Return the journalctl command line for a request. Raises Refused."""
    words = [*world.journalctl, "-q", "--no-pager", "--all", "-o", "json", f"--output-fields={_FIELDS}"]
    cursor, tail = request.get("cursor"), request.get("tail")
    follow = request.get("follow") is True
    if follow:
        words.append("-f")
    if cursor is not None:
        words.append(f"--cursor={_cursor(cursor)}")
    elif request.get("since") is not None:  # journalctl accepts only one of the two
        words.append(f"--since=@{_seconds(request['since'])}")
    if request.get("until") is not None:
        words.append(f"--until=@{_seconds(request['until'])}")
    if tail is not None and cursor is None:
        words.append(f"--lines={plan.number(tail, 'a number of lines', 0, 10**9)}")
    elif follow:
        words.append("--no-tail")
    return [*words, f"TFCTL_RUN={run}", *(f"_SYSTEMD_UNIT={unit}" for unit in units)]


def _follow(talk: Talk, words: list[str]) -> None:
    """Run journalctl, which writes directly to the client, until it ends or the client closes its end."""
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
