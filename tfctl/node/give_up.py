"""Give up tasks that fail at once whenever they are started: they have failed, and systemd does not start them again.

A host knows only its own tasks. Whether a task may be given up depends on all tasks of the job (judge.to_give_up), so
whoever knows all hosts decides it, and calls `give_up` on the host of each task.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from . import jobstore, reservations, states
from .system import System
from .units import installed_units
from .wire import TaskName

#: How long to wait for the lock while a start copies code.
_LOCK_S = 330.0


def give_up(system: System, job: str, run: str, tasks: Collection[TaskName]) -> list[TaskName]:
    """Mark those of the tasks that are alive and still fail at once, and let systemd stop their units. Return them.

    Nothing happens if ``run`` is not the job's current run here. Does not wait for the end of the units. Safe to
    repeat. Raises Refused, OSError.
    """
    with reservations.lock(system, _LOCK_S):
        attempt = jobstore.latest(system, job)
        chosen = [
            unit
            for unit in installed_units(system, job)
            if unit.run == run
            and unit.task in tasks
            and unit.live
            and jobstore.marked(system, job, attempt, *unit.task) is None
            and fails_at_once(system, job, attempt, unit.task, jobstore.runs(system, job, attempt, *unit.task))
        ]
        if chosen:
            try:
                for unit in chosen:
                    jobstore.mark_given_up(system, job, attempt, *unit.task)
            finally:  # on a full disk too
                system.manage("stop", "--no-block", "--", *(unit.unit for unit in chosen))
        return [unit.task for unit in chosen]


def fails_at_once(system: System, job: str, attempt: int, task: TaskName, runs: Sequence[states.Run]) -> bool:
    """Return whether the task fails at once since its start or since the last restart by a user."""
    now = time.time()
    if not states.fails_at_once(runs, now):
        return False
    restarts = [
        action.time
        for action in jobstore.actions(system, job, attempt)
        if action.deed == "restart" and (action.tasks is None or task in action.tasks)
    ]
    since = max(restarts, default=0.0)
    return states.fails_at_once([run for run in runs if (run.began or 0.0) >= since], now)
