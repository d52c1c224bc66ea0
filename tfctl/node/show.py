"""The verb `show`: send the jobs on this host and their tasks' states; with follow, send them at every change."""

from __future__ import annotations

import time
from typing import Any

from . import book, names, placed, plan, reserve, states, wire
from .talk import Talk
from .world import World, clock_zero, host

#: Seconds between polls while a client follows.
_LOOK = 0.5


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """Serve one request. Raises Refused, Gone."""
    job = request.get("job")
    if job is not None:
        plan.match(names.JOB, job, "a job's name")
    attempt = plan.attempt_wanted(request.get("attempt"))
    before = shown(world, job, attempt)
    talk.send("show", before)
    said = time.monotonic()
    while request.get("follow") is True and not talk.heard_of_end(_LOOK):
        now = shown(world, job, attempt)
        if now != before:
            talk.send("show", now)
        elif time.monotonic() - said > wire.BEAT_S:
            talk.send("beat", {})
        else:
            continue
        before, said = now, time.monotonic()


def shown(world: World, job: str | None, attempt: int | None) -> dict[str, Any]:
    """Return the answer: the given or latest attempt of ``job``, or the latest of every job. Raises Refused."""
    units = placed.units(world, job)
    starting = {(one.job, one.attempt) for one in reserve.live(world)}
    zero = clock_zero()
    found = []
    for name in [job] if job else book.jobs(world):
        number = attempt or book.latest(world, name)
        record = book.record(world, name, number)
        if record is None:
            continue
        ours = {unit.task: unit.shown for unit in units if (unit.job, unit.run) == (name, record.get("run"))}
        found.append(
            {
                "job": name,
                "attempt": number,
                "run": record.get("run"),
                "record": record,
                "stopped": book.marked(world, name, number),
                "tasks": attempt_states(world, name, number, ours, zero, reserved=(name, number) in starting),
            }
        )
    return {"host": host(), "jobs": found}


def attempt_states(
    world: World, job: str, attempt: int, units: dict[tuple[str, int], dict[str, str]], zero: float, *, reserved: bool
) -> list[dict[str, Any]]:
    """Return the STATE of each of the attempt's tasks here. ``units``: systemd's properties of the attempt's units."""
    began = book.began(world, job, attempt)
    return [
        {
            "role": role,
            "index": index,
            **states.task_state(
                units.get((role, index)),
                book.ends(world, job, attempt, role, index),
                marked=book.marked(world, job, attempt, role, index) is not None,
                reserved=reserved,
                began=began.get(f"{role}-{index}"),
                zero=zero,
            ),
        }
        for role, index in book.tasks(world, job, attempt)
    ]
