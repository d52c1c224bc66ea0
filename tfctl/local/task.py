"""One task of a local run: its process, and its state in the wire's terms."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfctl.local.child import Child
from tfctl.model import shell
from tfctl.model.job import Layout
from tfctl.model.task import Task
from tfctl.node import wire

#: Time (s) between a failure and the restart, as in the units.
RESTART_S = 2.0


@dataclass
class LocalTask:
    """``due``: when it starts next (time.monotonic). ``timed_out``: it ran past its deadline. ``stopped``: tfctl ended
    it. ``code``: the exit code of its last run, or minus the signal number."""

    task: Task
    words: tuple[str, ...]
    env: Mapping[str, str]
    layout: Layout
    child: Child | None = None
    due: float | None = None
    timed_out: bool = False
    stopped: bool = False
    code: int | None = None
    began: float = 0.0
    started: float | None = None
    finished: float | None = None
    restarts: int = 0

    @property
    def name(self) -> tuple[str, int]:
        return self.task.role, self.task.index

    @property
    def over(self) -> bool:
        return self.child is None and self.due is None

    @property
    def state(self) -> wire.TaskStateName:
        """The task's state, as a node would report it."""
        if self.child is not None:
            return "running"
        if self.due is not None:
            return "starting" if self.restarts else "pending"
        if self.stopped:
            return "stopped"
        return "succeeded" if self.code == 0 and not self.timed_out else "failed"

    def start(self, folder: Path) -> Child:
        """Start and return its process, in the directory ``folder``."""
        mode = shell.kill_mode(self.task.slot.command)
        self.child = Child(self.words, self.env, folder, self.layout.rules.grace, mode)
        self.due, self.code, self.timed_out, self.began = None, None, False, time.monotonic()
        self.started = self.started or time.time()
        return self.child

    def end(self) -> None:
        """Tell it to end and not to restart."""
        self.stopped, self.due = True, None
        if self.child is not None:
            self.child.end()

    def keep_deadline(self) -> None:
        """End it if it has run past its deadline."""
        deadline = self.layout.policy.deadline
        if self.child and deadline and not self.timed_out and time.monotonic() - self.began > deadline:
            self.timed_out = True
            self.child.end()

    def ended(self, code: int) -> None:
        """Record that its process has ended, and schedule a restart if the policy says so."""
        self.child, self.code, self.finished = None, code, time.time()
        # With a deadline, a task that SIGTERM ends is not restarted (the unit's RestartPreventExitStatus=).
        prevented = bool(self.layout.policy.deadline) and code == -signal.SIGTERM
        restart = (self.timed_out or code != 0) and not prevented
        if restart and not self.stopped and self.restarts < self.layout.rules.max_restarts:
            self.restarts += 1
            self.due = time.monotonic() + RESTART_S

    def status(self) -> wire.TaskStatus:
        """Return the task's status as a host would report it."""
        code = self.code if self.over else None
        return wire.TaskStatus(
            role=self.task.role,
            index=self.task.index,
            state=self.state,
            exit_code=code if code is not None and code >= 0 else None,
            signal=wire.signal_name(-code) if code is not None and code < 0 else None,
            started=self.started,
            finished=self.finished if self.over else None,
            restarts=self.restarts,
        )
