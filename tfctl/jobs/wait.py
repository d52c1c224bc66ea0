"""Follow a job's state until it has ended, then stop what is still running (`policy: clean`)."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tfctl.errors import NotFound, TfctlError, Unreachable, together
from tfctl.jobs import state
from tfctl.jobs.state import JobState, TaskState
from tfctl.jobs.stop import Name, stop
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import open_node

Say = Callable[[str], None]

_SILENCE_S = 20.0
_RETRY_S = 2.0
_TICK_S = 5.0
#: How long a task that ends by itself may take to do so once the deciders have succeeded.
_LEAVE_S = 10.0
#: Give up waiting when no host has answered for this long.
_ALONE_S = 30.0


def wait(fleet: Fleet, job: str, attempt: int, say: Say, timeout: float | None = None) -> JobState:
    """Return the job's state once it has ended and been cleaned up as its policy says, or after ``timeout`` (s).

    The fleet must hold exactly the job's hosts. Raise Unreachable if no host has answered for 30 s.
    """
    end = None if timeout is None else time.monotonic() + timeout
    found: JobState | None = None
    cleaned: Collection[str] = ()
    alive: float | None = None  # when it was last seen not to have ended: its hosts' clocks may be wrong
    for found in changes(fleet, job, attempt, end):
        alive = alive if found.ended else time.monotonic()
        last = going(found, None if alive is None else time.monotonic() - alive)
        if found.ended and not last:
            break
        if last and not cleaned:
            for task, left in last.items():
                if task.role == "evaluator":
                    say(f"{task} has up to {left:.0f} s for the last checkpoint")
            cleaned = clean(fleet, found, say, {str(task) for task in last})
    if found is None:
        raise Unreachable(f"job {job}: no host has reported its state")
    if found.ended:
        clean(fleet, found, say, cleaned)
    return found


def changes(fleet: Fleet, job: str, attempt: int, end: float | None = None) -> Iterator[JobState]:
    """Yield the job's state now, at every change and every 5 s, until ``end`` (time.monotonic) or the caller stops.

    A host that falls silent is asked again; until it answers, its tasks are unknown. Raise Unreachable if all have
    been silent for 30 s, NotFound if all answer and none knows the job.
    """
    said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    over = threading.Event()
    for host in fleet.hosts:
        threading.Thread(target=_listen, args=(fleet, host, job, attempt, said.put, over), daemon=True).start()
    answers: dict[str, Sequence[Mapping[str, Any]] | None] = {}
    errors: dict[str, TfctlError] = {}
    heard = time.monotonic()
    before, told = None, 0.0
    # However soon the end is, allow time for one first answer.
    limit = None if end is None else max(end, heard + _ALONE_S)
    try:
        while limit is None or time.monotonic() < limit:
            with suppress(queue.Empty):
                name, answer = said.get(timeout=min(1.0, max(0.01, (limit or float("inf")) - time.monotonic())))
                answers[name] = None if isinstance(answer, TfctlError) else answer
                errors.pop(name, None)
                if isinstance(answer, TfctlError):
                    errors[name] = answer
            if any(answer is not None for answer in answers.values()):
                heard = time.monotonic()
            elif time.monotonic() - heard > _ALONE_S or _hopeless(errors, fleet):
                raise together(list(errors.values())) if errors else Unreachable("no host answers")
            if len(answers) < len(fleet.hosts):
                continue
            found = state.jobs(answers)
            if not found and None not in answers.values():
                raise NotFound(f"no host knows attempt {attempt} of job {job!r} any more")
            if found and (found[0] != before or time.monotonic() > told + _TICK_S):
                before, told, limit = found[0], time.monotonic(), end
                yield before
    finally:
        over.set()


def going(ended: JobState, since: float | None = None) -> dict[TaskState, float]:
    """Return the tasks of a succeeded job that may keep running, and for how long (s).

    An evaluator may still evaluate the last checkpoint; a worker may still shut down. ``since`` is how long ago (s) the
    job ended; if None, the end was not observed and the hosts' clocks decide.
    """
    if ended.state != "succeeded" or ended.finished is None:
        return {}
    since = time.time() - ended.finished if since is None else since
    limits = {"evaluator": ended.record["policy"]["drain"], **dict.fromkeys(ended.record.get("leaves", ()), _LEAVE_S)}
    running = [task for task in ended.tasks if task.state in ("running", "starting")]
    return {task: limits[task.role] - since for task in running if limits.get(task.role, 0) > since}


def clean(fleet: Fleet, ended: JobState, say: Say, but: Collection[str] = ()) -> list[str]:
    """Clean up a job that has ended, and return the names of the tasks that need no more cleaning.

    With `policy/clean: running`, stop the tasks that still run; with `all`, also remove the units of tasks that have
    ended by themselves. Failures are reported through ``say``. ``but`` names tasks to leave alone.
    """
    policy = ended.record["policy"]["clean"]
    alive = [task for task in ended.tasks if task.alive and str(task) not in but]
    chosen = [task for task in ended.tasks if str(task) not in but] if policy == "all" else alive
    tasks: dict[str, list[Name]] = defaultdict(list)
    for task in chosen:
        tasks[task.host].append((task.role, task.index))
    if policy == "none" or not tasks:
        return []
    try:
        stop(fleet, ended.job, tasks, ended.attempt)
    except TfctlError as error:
        say(f"not everything was stopped: {error.message}\n`tfctl stop {ended.job}` stops the rest")
        return []
    if alive:
        say(f"stopped {', '.join(map(str, alive))}, which had nothing left to do")
    return [str(task) for task in chosen]


def _listen(
    fleet: Fleet, host: Any, job: str, attempt: int, put: Callable[[tuple[str, Any]], None], over: threading.Event
) -> None:
    """Follow one host's answers to `show`, reconnecting as needed. Errors are passed to ``put`` too."""
    request = wire.request("show", job=job, attempt=attempt, follow=True)
    while not over.is_set():
        try:
            with open_node(fleet.connection(host), request) as channel:
                while not over.is_set():
                    put((host.name, channel.receive(_SILENCE_S)[1]["jobs"]))
        except TfctlError as error:
            put((host.name, error))
        over.wait(_RETRY_S)


def _hopeless(errors: Mapping[str, TfctlError], fleet: Fleet) -> bool:
    """Return whether every host has failed in a way that retrying cannot fix."""
    return len(errors) == len(fleet.hosts) and not any(isinstance(error, Unreachable) for error in errors.values())
