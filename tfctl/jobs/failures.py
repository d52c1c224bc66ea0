"""Report failures and restarts of tasks while their job is followed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tfctl.jobs.state import JobState, TaskState
from tfctl.node import judge
from tfctl.node.wire import TaskName


class FailureReporter:
    """Compares successive states of a job, and reports each failure and each restart of ``tasks`` (None: all) once.

    What had happened ``before`` is not reported.
    """

    def __init__(
        self, say: Callable[[str], None], tasks: Collection[TaskName] | None = None, before: JobState | None = None
    ) -> None:
        self._say, self._tasks = say, tasks
        self._seen: dict[TaskName, tuple[int, bool]] = {}
        if before is not None:
            self._seen = {task.name: (task.status.restarts, _is_gone(task)) for task in before.tasks}

    def begin(self, attempt: int) -> None:
        """Report that an attempt has begun. All failures and restarts in it will be reported."""
        self._seen.clear()
        self._say(f"~~ attempt {attempt} has begun")

    def note(self, state: JobState) -> None:
        """Report what has happened since the state before."""
        for task in state.tasks:
            if task.state == "unknown" or (self._tasks is not None and task.name not in self._tasks):
                continue
            restarts, was_gone = self._seen.get(task.name, (0, False))
            if _is_gone(task) and not was_gone:
                self._say(f"~~ {judge.failure(task.status, task.host, task.record.memory)}")
            elif task.status.restarts > restarts:
                self._say(f"~~ {_restarted(task, state.record.policy.max_restarts)}")
            self._seen[task.name] = task.status.restarts, _is_gone(task)


def _is_gone(task: TaskState) -> bool:
    return task.state in ("failed", "lost")


def _restarted(task: TaskState, most: int) -> str:
    status, how = task.status, "ended"
    if status.last_signal:  # SIGTERM is also how `tfctl restart` ends a task
        how = f"{'ended' if status.last_signal == 'SIGTERM' else 'failed'} with {status.last_signal}"
    elif status.last_exit_code is not None:
        how = f"failed with exit code {status.last_exit_code}"
    if status.last_oom:
        how += f": {judge.out_of_memory(task.record.memory)}"
    limit = f" of {most}" if status.restarts <= most else ""
    return f"{task} on {task.host} {how}; restart {status.restarts}{limit}"
