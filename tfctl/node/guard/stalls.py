"""Notice that tasks make no progress: from the samples of this host (`Watcher`), and of the whole job (`stalled`)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .. import names, samples, wire
from ..system import System
from ..wire import TaskName
from .link import Pace, Standstill


class _Task(NamedTuple):
    """``position``: the epoch, the step and the percentage, if one is known. ``since``: when it was reached (monotonic
    clock) or, if it is not known, when the last line was printed."""

    position: tuple[float | None, ...] | None
    since: float


class Watcher:
    """The tasks of an attempt on this host. One that moves on in the samples makes progress. What happens after the
    latest sample is not known, so that a host that cannot measure its tasks does not make them stand."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._attempt = 0
        self._sampled = 0.0
        self._tasks: dict[TaskName, _Task] = {}

    def read(self, system: System, job: str, attempt: int) -> None:
        """Take the samples that were kept before this guard was started, as far as they matter."""
        now = time.time()
        for sample in samples.read(system, job, attempt, since=now - self._limit - 2 * wire.SAMPLE_S):
            self.add(attempt, sample, age=max(0.0, now - sample.time))

    def add(self, attempt: int, sample: wire.Sample, age: float = 0.0) -> None:
        """Take a sample that was made ``age`` seconds ago."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._tasks.clear()
        moment = self._sampled = time.monotonic() - age
        for task in sample.tasks:
            if task.silent is None:  # it has printed nothing yet, or has ended
                self._tasks.pop(task.name, None)
                continue
            found = (task.epoch, task.step, task.percent)
            position = None if all(one is None for one in found) else found
            before = self._tasks.get(task.name)
            if before is None or position is None or position != before.position:
                self._tasks[task.name] = _Task(position, moment - task.silent if position is None else moment)

    def pace(self, attempt: int) -> Pace:
        """Return which tasks of an attempt make progress, as far as the samples show."""
        if attempt != self._attempt:  # there is no sample of it yet
            return Pace()
        stood = {name: self._sampled - task.since for name, task in self._tasks.items()}
        moving = [name for name, seconds in stood.items() if seconds <= self._limit]
        standing = [
            Standstill(*name, round(seconds, 1), self._tasks[name].position is not None)
            for name, seconds in stood.items()
            if seconds > self._limit
        ]
        return Pace(tuple(moving), tuple(standing))


def stalled(tasks: Iterable[wire.TaskStatus], pace: Pace) -> tuple[TaskName, ...]:
    """Return the tasks because of which the job makes no progress, or nothing.

    These are the ones that have made steps and make none any more. An evaluator does not count, because it waits for
    checkpoints. Where no task has made a step for so long, the job makes no progress if no task prints anything: many
    tasks, such as parameter servers, print nothing while all is well.
    """
    states = {task.name: task.state for task in tasks}
    if "unknown" in states.values():
        return ()
    standing = [task for task in pace.standing if states.get(task.name) == "running"]
    by_steps = tuple(task.name for task in standing if task.steps and task.role != "evaluator")
    if by_steps or any(states.get(name) == "running" for name in pace.moving):
        return by_steps
    return tuple(task.name for task in standing)


def reason(tasks: Collection[TaskName], pace: Pace, hosts: Mapping[TaskName, str], limit: int) -> str:
    """Return a sentence about the tasks that `stalled` has returned. ``hosts``: by task."""
    by_name = {task.name: task for task in pace.standing}
    first = max(tasks, key=lambda name: by_name[name].seconds)
    what = "made no step" if by_name[first].steps else "printed nothing"
    others = len(tasks) - 1
    more = f", nor {'has' if others == 1 else 'have'} {others} other task{'' if others == 1 else 's'}" if others else ""
    return f"{names.task(*first)} on {hosts[first]} has {what} for {limit} s{more} (policy: stall)"
