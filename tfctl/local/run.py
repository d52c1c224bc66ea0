"""Run a job's tasks as child processes, judged, restarted and ended as they would be on hosts."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from tfctl.jobs import state
from tfctl.jobs.journal import Line
from tfctl.jobs.state import JobState, TaskState
from tfctl.jobs.wait import going
from tfctl.local.environment import environment, words
from tfctl.local.place import HERE
from tfctl.local.runtimes import Runtime, Runtimes
from tfctl.local.task import RESTART_S, LocalTask
from tfctl.model import plan
from tfctl.model.job import Job
from tfctl.model.task import Task
from tfctl.node import judge, wire

_TICK_S = 0.2


class LocalJob:
    """A job placed on this machine, to be run once in the directory of its code. ``say`` is called with messages.

    ``library`` is the first entry of the tasks' PYTHONPATH. Creating it raises PreflightFailed if a program is missing.
    """

    def __init__(
        self,
        job: Job,
        environ: Mapping[str, str],
        library: Path,
        runtimes: Runtimes,
        say: Callable[[str], None],
    ) -> None:
        self._job, self._code, self._say = job, job.layout.code, say
        self._record = plan.record(job)
        self._stopped: float | None = None
        self._announced: set[str] = set()
        self._tasks = [self._prepared(task, environ, library, runtimes[task.role]) for task in job.tasks]
        self._selector = selectors.DefaultSelector()

    @property
    def state(self) -> JobState:
        """The job's state, by the rules for jobs on hosts."""
        job, statuses = self._job, tuple(task.status() for task in self._tasks)
        shown = wire.JobStatus(job.name, job.attempt, job.run, self._record, self._stopped, statuses)
        return state.jobs({HERE.name: [shown]})[0]

    @property
    def missing_modules(self) -> dict[str, list[Task]]:
        """The modules that failed tasks could not import, with these tasks."""
        found: dict[str, list[Task]] = {}
        for task in self._tasks:
            if task.missing and task.state == "failed":
                found.setdefault(task.missing, []).append(task.task)
        return found

    def run(self, write: Callable[[Iterable[Line]], None]) -> JobState:
        """Start every task, and return when the job has ended and nothing of it is left.

        Tasks with nothing left to do are ended; with `clean: none` they are waited for. Ctrl-C or SIGTERM ends all
        tasks, and a second one kills them; KeyboardInterrupt is raised once nothing is left.
        """
        with _Interrupts() as interrupts:
            try:
                while self._tasks_left(interrupts.count):
                    self._tick(write)
            finally:
                self._kill()
                for task in self._tasks:
                    if task.child:
                        task.child.close()
                self._selector.close()
        if interrupts.count:
            raise KeyboardInterrupt
        return self.state

    def _prepared(self, task: Task, environ: Mapping[str, str], library: Path, runtime: Runtime) -> LocalTask:
        env = environment(self._job, task, environ, library, runtime)
        return LocalTask(task, words(self._job, task, env, self._code), env, self._job.layout, due=0.0)

    def _tasks_left(self, interrupts: int) -> bool:
        """Return whether any task is left, after telling tasks with nothing left to do to end."""
        if interrupts > 1:
            self._kill()
        if interrupts and self._stopped is None:
            self._stopped = time.time()
            grace = self._job.layout.rules.grace
            self._say(f"interrupted: tasks that have not ended after {grace} s, or at the next Ctrl-C, are killed")
        found = self.state
        if found.ended and (interrupts or self._job.layout.policy.clean != "none"):
            self._end(going(found))
        return not all(task.over for task in self._tasks)

    def _end(self, last: Mapping[TaskState, float]) -> None:
        """End all tasks but those in ``last``, which maps them to the time (s) they have left."""
        for task, left in last.items():
            if task.role == "evaluator" and str(task) not in self._announced:
                self._say(f"{task} may run for up to {left:.0f} s more to evaluate the last checkpoint")
                self._announced.add(str(task))
        names = {(task.role, task.index) for task in last}
        fresh = [task for task in self._tasks if task.name not in names and not task.over and not task.stopped]
        if fresh:
            self._say(f"ending {', '.join(str(task.task) for task in fresh)}")
        for each in fresh:
            each.end()

    def _tick(self, write: Callable[[Iterable[Line]], None]) -> None:
        """Start what is due, then handle what happens within one tick."""
        self._give_up()
        for task in self._tasks:
            task.keep_deadline()
            if task.due is not None and time.monotonic() >= task.due:
                self._start(task)
        found = [(key.data, key.fd) for key, _ in self._selector.select(_TICK_S)]
        for task, fd in found:
            if task.child and fd == task.child.out:
                try:
                    write(_noted(task, task.child.lines()))
                except EOFError:
                    self._selector.unregister(fd)
        for task, fd in found:
            if task.child and fd == task.child.control:
                write(_noted(task, self._reap(task)))

    def _give_up(self) -> None:
        """Start no task again that always fails at once, by the rule for hosts."""
        names = self._hopeless()
        for task in self._tasks:
            if task.name in names and not task.given_up:
                task.give_up()
                how = f"twice in the same way within {wire.AT_ONCE_S:.0f} s of its start"
                self._say(f"{task.task} has failed {how}: it is not started again")

    def _hopeless(self) -> list[tuple[str, int]]:
        """Return the tasks that are not to be started again."""
        waiting = [task for task in self._tasks if task.due is not None and task.fails_at_once and not task.stopped]
        return judge.to_give_up([task.status() for task in self._tasks]) if waiting else []

    def _start(self, task: LocalTask) -> None:
        child = task.start(self._code)
        for fd in (child.out, child.control):
            self._selector.register(fd, selectors.EVENT_READ, task)

    def _reap(self, task: LocalTask) -> list[str]:
        """Record how a task's process ended, and return its last lines."""
        assert task.child is not None
        for fd in (task.child.out, task.child.control):
            with suppress(KeyError):
                self._selector.unregister(fd)
        code, lines = task.child.reap()
        task.ended(code)
        found = self.state
        if code and not task.stopped and not found.ended:
            how = f"exit code {code}" if code > 0 else wire.signal_name(-code)
            again = f"; restart in {RESTART_S:.0f} s ({task.restarts} of {task.layout.rules.max_restarts})"
            self._say(f"{task.task} failed with {how}{again if task.due and task.name not in self._hopeless() else ''}")
        return lines

    def _kill(self) -> None:
        for task in self._tasks:
            if task.child:
                task.child.end(at_once=True)


class _Interrupts:
    """Counts Ctrl-C, SIGTERM and SIGHUP instead of raising; only the third one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup ignores SIGHUP
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 3:
            raise KeyboardInterrupt


def _noted(task: LocalTask, texts: Iterable[str]) -> list[Line]:
    """Return what a task has printed as lines of its log."""
    now, texts = time.time(), [*texts]
    for text in texts:
        task.note(text)
    return [Line(now, task.task.role, task.task.index, HERE.name, "stdout", text) for text in texts]
