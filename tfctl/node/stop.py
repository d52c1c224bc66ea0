"""The verb `stop`: end tasks and verify that nothing of them is left. Safe to repeat and to interrupt."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from . import again, book, ending, names, placed, plan, reserve, show, sockets, wire
from .placed import Placed
from .talk import Gone, Talk
from .world import World, host

#: Seconds beyond the longest TimeoutStopSec= of the units, for ExecStopPost and systemd's own SIGKILL.
_MORE = 15.0
#: Seconds for which a start may copy its code, under the lock: what has ended is not left for that.
_LOCK = 330.0
#: How long a port may take to be free once its process has ended.
_PORT = 2.0
#: Where the hierarchy that systemd keeps processes in is mounted: version 1, hybrid, version 2 alone.
_CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """A client that goes meanwhile changes nothing: the stop is brought to its end. Raises Refused."""
    job = plan.match(names.JOB, request.get("job"), "a job's name")
    wanted = plan.tasks_wanted(request.get("tasks"))
    with reserve.lock(world):
        reserve.sweep(world)
    only = plan.attempt_wanted(request.get("attempt"))
    attempt = only or book.latest(world, job)
    record = book.record(world, job, attempt) if attempt else None
    if record is not None:
        reserve.require_started(world, job, attempt)
    tasks = [task for task in book.tasks(world, job, attempt) if wanted is None or task in wanted]
    run = (record or {}).get("run", "")
    units = _units(world, job, run, tasks, whole=wanted is None and only is None)
    unmarked = _mark(world, job, attempt, tasks, units, whole=wanted is None) if record is not None else []
    beat = _beats(talk)
    left = _end(world, units, beat)
    with reserve.lock(world, _LOCK, beat):  # the next start may have put its own in the place of what has ended
        ended = [unit for unit in units if unit.unit not in left and reserve.run_of(world, job, unit.task) == unit.run]
        ending.forget(world, job, [unit.task for unit in ended], keep=wanted is not None)
        if wanted is None:
            again.drop(world, job)
            again.tidy(world)
    sentences = [*left.values(), *_remains(world, ended), *unmarked]
    ran = [list(unit.task) for unit in units if unit.live]
    talk.send("stopped", {"attempt": attempt if record is not None else 0, "tasks": ran, "left": sentences})


def _units(world: World, job: str, run: str, tasks: list[tuple[str, int]], *, whole: bool) -> list[Placed]:
    """The tasks' units; of a whole job all that live, also where a file was removed by hand or there is no record."""
    there = placed.units(world, job)
    found = [unit for unit in there if (unit.run == run and unit.task in tasks) or (whole and unit.live)]
    if not whole:
        return found
    without = placed.without_file(world, job, [task for task in tasks if task not in {unit.task for unit in there}])
    return [*found, *(unit for unit in without if unit.live)]


def _mark(
    world: World, job: str, attempt: int, tasks: list[tuple[str, int]], units: list[Placed], *, whole: bool
) -> list[str]:
    """Write the stop marks of what has not ended by itself: how that ended stays true. Why they cannot be written: a
    full disk keeps nothing from its end."""
    shown = {unit.task: unit.shown for unit in units}
    found = show.attempt_states(world, job, attempt, shown, 0.0, reserved=False)
    going = [(one["role"], one["index"]) for one in found if one["state"] not in ("succeeded", "failed", "stopped")]
    stopped = [task for task in tasks if task in going]
    try:
        for task in stopped:
            book.mark(world, job, attempt, *task)
        if whole and going:
            book.mark(world, job, attempt)
    except OSError as error:
        return [f"that {job} was stopped cannot be noted on {host()}: {error.strerror}"]
    if stopped:
        book.note(world, job, attempt, "stop", None if whole else stopped)
    return []


def _end(world: World, units: list[Placed], beat: Any) -> dict[str, str]:
    """A sentence for each unit that lives on."""
    seconds = max((grace(world, unit) for unit in units), default=0.0) + _MORE
    return ending.end(world, [unit.unit for unit in units], seconds, beat)


def _remains(world: World, ended: list[Placed]) -> list[str]:
    """What is left of units that have ended: processes by the kernel's word, ports by a probe."""
    found = []
    for unit in ended:
        pids = _processes(world, unit.shown.get("ControlGroup", ""))
        if pids:
            text = ", ".join(map(str, pids[:10]))
            found.append(f"{names.task(*unit.task)} on {host()} has left processes: {text}")
    until = time.monotonic() + _PORT
    for port in [port for unit in ended if unit.live for port in unit.ports]:
        while not sockets.is_free(port) and time.monotonic() < until:
            time.sleep(0.05)
        if not sockets.is_free(port):
            found.append(f"port {port} of {host()} is still held by {sockets.holder(port)}")
    return found


def _processes(world: World, group: str) -> list[int]:
    """The processes of a control group and of those below it."""
    found: set[int] = set()
    for mount in _CGROUPS if group not in ("", "/") else ():
        for place, _folders, files in os.walk(world.at(mount + group)):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    found |= {int(pid) for pid in (Path(place) / "cgroup.procs").read_text().split()}
    return sorted(found)


def grace(world: World, unit: Placed) -> float:
    """TimeoutStopSec= of the unit file."""
    with contextlib.suppress(OSError, ValueError):
        for line in world.at(names.unit_file(unit.job, *unit.task)).read_text("utf-8", "replace").split("\n"):
            if line.startswith("TimeoutStopSec="):
                value = line.partition("=")[2]
                digits = value.rstrip("mshdin")
                return float(digits) * _SECONDS[value[len(digits) :] or "s"]
    return 90.0


def _beats(talk: Talk) -> Any:
    """Called often, says something seldom; to a client that has gone, nothing."""
    last = time.monotonic()

    def beat() -> None:
        nonlocal last
        if time.monotonic() - last > wire.BEAT_S:
            last = time.monotonic()
            with contextlib.suppress(Gone):
                talk.send("beat", {})

    return beat
