"""The verb `events`: list what happened to a job on this host, and who did it.

User actions come from the notes of start, stop and restart, ends from the end lines. The begin of a task's later runs
comes from the journal, where systemd's own message names the run by its invocation ID, as the end line does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from . import book, names, placed, plan, show
from .talk import Refused, Talk
from .world import World, host
from .world import run as run_to_end

#: sd-messages(3), SD_MESSAGE_UNIT_STARTED.
_STARTED = "39f53479d3a045ac8e11786248231fbf"
_FIELDS = "INVOCATION_ID"


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """Send one answer, empty for a job that is not known here. Raises Refused."""
    job = plan.match(names.JOB, request.get("job"), "a job's name")
    found = sorted(_events(world, job), key=lambda event: event["time"])
    talk.send("events", {"host": host(), "jobs": show.shown(world, job, None)["jobs"], "events": found})


def _events(world: World, job: str) -> Iterator[dict[str, Any]]:
    units = placed.units(world, job)
    starts: dict[str, float] | None = None
    for attempt in book.attempts(world, job):
        run_here = (book.record(world, job, attempt) or {}).get("run")
        began = book.began(world, job, attempt)
        yield from _deeds(world, job, attempt, min(began.values(), default=None))
        for task in book.tasks(world, job, attempt):
            name = "{}-{}".format(*task)
            if name in began:
                yield _event(began[name], attempt, "begin", task)
            runs = []
            for end in book.ends(world, job, attempt, *task):
                runs.append(end.invocation)
                if end.time is not None:
                    yield _event(end.time, attempt, "end", task, exit_code=end.exit_code, signal=end.signal)
            runs += [
                unit.shown.get("InvocationID", "")
                for unit in units
                if unit.live and (unit.run, unit.task) == (run_here, task)
            ]
            later = list(dict.fromkeys(runs))[1:]
            if later and starts is None:
                starts = _starts(world, job)
            for invocation in later:
                if starts and invocation in starts:
                    yield _event(starts[invocation], attempt, "begin", task)


def _deeds(world: World, job: str, attempt: int, first: float | None) -> Iterator[dict[str, Any]]:
    """Yield the user actions, one per job or per task affected. A start is noted late: use the time ``first``."""
    for note in book.notes(world, job, attempt):
        time = first if note["deed"] == "start" and first is not None else note["time"]
        for task in note["tasks"] or [None]:
            yield _event(time, attempt, note["deed"], task, by=note["by"])


def _event(
    time: float, attempt: int, event: str, task: tuple[str, int] | None, *,
    by: str | None = None, exit_code: int | None = None, signal: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    role, index = task or (None, None)
    return {
        "time": round(time, 3), "attempt": attempt, "event": event, "role": role, "index": index, "by": by,
        "exit_code": exit_code, "signal": signal,
    }  # fmt: skip


def _starts(world: World, job: str) -> dict[str, float]:
    """Return when each invocation began, as far back as the journal goes; empty if it cannot be read."""
    tasks = {task for attempt in book.attempts(world, job) for task in book.tasks(world, job, attempt)}
    units = (f"UNIT={names.unit(job, *task)}" for task in sorted(tasks))
    words = ["-q", "--no-pager", "-o", "json", f"--output-fields={_FIELDS}", "_PID=1", f"MESSAGE_ID={_STARTED}", *units]
    try:
        lines = run_to_end([*world.journalctl, *words], 20.0).output.splitlines()
    except Refused:
        return {}
    entries = [json.loads(line) for line in lines]
    return {str(entry.get("INVOCATION_ID")): int(entry["__REALTIME_TIMESTAMP"]) / 1e6 for entry in entries}
