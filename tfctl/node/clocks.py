"""Convert the times of a host whose clock is wrong: clients and guards compare the times of several hosts."""

from __future__ import annotations

from collections.abc import Iterable

from .wire import TaskStatus

#: Smaller differences (s) are neither reported nor corrected.
LIMIT_S = 2.0


def correction(ahead: float | None) -> float:
    """Return what to subtract from the times of a host (s): 0 unless its clock differs by more than LIMIT_S.

    ``ahead``: by how many seconds its clock is ahead, negative if it is behind, or None if that is not known.
    """
    return ahead if ahead is not None and abs(ahead) > LIMIT_S else 0.0


def earlier(time: float | None, seconds: float) -> float | None:
    """Return the time ``seconds`` before ``time``. None, an unknown time, stays None."""
    return None if time is None else time - seconds


def corrected_tasks(tasks: Iterable[TaskStatus], seconds: float) -> tuple[TaskStatus, ...]:
    """Return a host's tasks with their times converted to the clock of this one. ``seconds``: see `correction`."""
    if not seconds:
        return tuple(tasks)
    return tuple(_corrected(task, seconds) for task in tasks)


def _corrected(task: TaskStatus, seconds: float) -> TaskStatus:
    cause = task.cause and task.cause._replace(time=task.cause.time - seconds)
    return task._replace(started=earlier(task.started, seconds), finished=earlier(task.finished, seconds), cause=cause)
