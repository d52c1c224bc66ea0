"""Keep a summary of each job that is over, so that commands about all jobs need not read every record and task.

A summary is a cache: `show` writes it beside the record when it finds that nothing of the attempt is left to do here.
It holds as long as no user has acted on the attempt since. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from . import jobstore, judge, names, wire
from .system import System

#: That of the files. Another version of the node part may have written one.
_VERSION = 1
#: More bytes than a summary has.
_LONGEST = 1 << 16


def of(status: wire.JobStatus) -> wire.Summary | None:
    """Return the summary of an attempt, or None if it is not over here, or if its end needs all hosts to be judged."""
    record, noted = status.record, status.guard
    over = status.kept is not False and not status.guarded and all(task.state in judge.ENDED for task in status.tasks)
    if not over or (noted and (noted.reason or noted.retry_at is not None)):
        return None
    here = {task.name for task in status.tasks}
    gone = {task.name for task in status.tasks if task.state in ("failed", "lost")}
    if any(not gone.isdisjoint(group) and not here.issuperset(group) for group in record.vital):
        return None
    deciding = set(record.deciders)
    done = [task for task in status.tasks if task.name in deciding and task.state == "succeeded"]
    fallen = judge.fallen(record, status.tasks, status.stopped)
    return wire.Summary(
        job=record.job,
        attempt=record.attempt,
        run=record.run,
        started=round(record.started, 3),
        strategy=record.strategy,
        tasks=len(record.tasks),
        hosts=len({task.host for task in record.tasks}),
        deciders=len(record.deciders),
        succeeded=len(done),
        finished=fallen[0].finished if fallen else judge.latest(done),
        stopped=status.stopped,
        failed=True if fallen else None,
        head=record.guard.head if record.guard and record.guard.number > 1 else None,
    )


def read(system: System, job: str, attempt: int) -> wire.Summary | None:
    """Return the summary of an attempt, or None if there is none that holds."""
    try:
        # A file object, and a Path even more, would take longer than to read the file, and there are thousands.
        descriptor = os.open(_file(system, job, attempt, "summary.json"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _LONGEST)
        finally:
            os.close(descriptor)
        version, actions, summary = json.loads(text)
        holds = version == _VERSION and actions == stamp(system, job, attempt)
        return wire.Summary(*summary) if holds else None  # root has written it, so its values are not checked
    except (OSError, ValueError, TypeError):
        return None


def write(system: System, summary: wire.Summary, actions: int) -> None:
    """Keep a summary. ``actions``: the `stamp` from before its states were read. Never raises: it is a cache."""
    path = Path(_file(system, summary.job, summary.attempt, "summary.json"))
    with contextlib.suppress(OSError):
        jobstore.write(path, json.dumps([_VERSION, actions, wire.encode(summary)], separators=(",", ":")).encode())


def stamp(system: System, job: str, attempt: int) -> int:
    """Return a number that changes with each action of a user on the attempt: the size of the file of actions."""
    try:
        return os.stat(_file(system, job, attempt, "notes.jsonl")).st_size  # noqa: PTH116  as in `read`
    except OSError:
        return 0


def _file(system: System, job: str, attempt: int, name: str) -> str:
    return f"{system.prefix}{names.attempt_dir(job, attempt)}/{name}"
