"""One task of a local run: its process, and its state in the wire's terms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfctl.local.advice import missing_module
from tfctl.local.child import Child
from tfctl.model import shell
from tfctl.model.job import Layout
from tfctl.model.task import Task
from tfctl.node import wire

#: Time (s) between a failure and the restart, as in the units.
RESTART_S = 2.0


@dataclass
class LocalTask:
    """``due``: when it starts next (time.monotonic). ``overdue``: tfctl ended it at its deadline. ``stopped``: tfctl
    ended it for another reason. ``code``: the exit code of its last run, or minus the signal number. ``ends_at``: its
    deadline (time.monotonic), from when it has been started. ``missing``: the module that its last run could not
    import, or "". ``given_up``: it is not started again, because it fails at once."""

    task: Task
    words: tuple[str, ...]
    env: Mapping[str, str]
    layout: Layout
    child: Child | None = None
    due: float | None = None
    overdue: bool = False
    stopped: bool = False
    code: int | None = None
    ends_at: float | None = None
    started: float | None = None
    finished: float | None = None
    restarts: int = 0
    missing: str = ""
    given_up: bool = False
    _began: float = 0.0
    _failures: list[int] = field(default_factory=list)

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
        if self.overdue or self.given_up:
            return "failed"
        if self.stopped:
            return "stopped"
        return "succeeded" if self.code == 0 else "failed"

    def start(self, folder: Path) -> Child:
        """Start and return its process, in the directory ``folder``."""
        mode = shell.kill_mode(self.task.slot.command)
        self.child = Child(self.words, self.env, folder, self.layout.rules.grace, mode)
        self.due, self.code, self.missing, self._began = None, None, "", time.monotonic()
        if self.started is None:
            self.started, deadline = time.time(), self.layout.policy.deadline
            self.ends_at = time.monotonic() + deadline if deadline else None
        return self.child

    @property
    def fails_at_once(self) -> bool:
        """Whether it has failed at least twice, and always within ten seconds and with one exit code, as on hosts."""
        goes_on = self.child is None or self._ends_at_once
        return len(self._failures) > 1 and len({*self._failures}) == 1 and self._failures[0] > 0 and goes_on

    @property
    def _ends_at_once(self) -> bool:
        return time.monotonic() - self._began < wire.AT_ONCE_S

    def give_up(self) -> None:
        """Do not start it again, because it fails at once."""
        self.given_up = True
        if self.child is not None:
            self.child.end()
        else:
            self.due, self.restarts = None, self.restarts - 1  # the restart that it waits for

    def note(self, line: str) -> None:
        """Take note of a line that it has printed."""
        if line.startswith("Traceback (most recent call last)"):
            self.missing = ""  # it has gone on after what it could not import before
        self.missing = missing_module(line) or self.missing

    def end(self) -> None:
        """Tell it to end and not to restart."""
        self.stopped, self.due = True, None
        if self.child is not None:
            self.child.end()

    def keep_deadline(self) -> None:
        """End it for good at its deadline, which counts from its first start."""
        if self.ends_at is None or time.monotonic() < self.ends_at or self.over or self.stopped or self.overdue:
            return
        self.overdue = True
        if self.child is not None:
            self.child.end()
        else:
            self.due, self.restarts = None, self.restarts - 1  # the restart that it waits for

    def ended(self, code: int) -> None:
        """Record that its process has ended, and schedule a restart if the policy says so."""
        self.child, self.finished = None, time.time()
        self.code = self._failures[-1] if self.given_up else code
        self._failures = [*self._failures, code] if code > 0 and self._ends_at_once else [0]
        may_restart = (
            not (self.stopped or self.overdue or self.given_up) and self.restarts < self.layout.rules.max_restarts
        )
        if code != 0 and may_restart:
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
            overdue=True if self.overdue and self.over else None,
            fails_at_once=True if self.fails_at_once else None,
            given_up=True if self.given_up else None,
            last_exit_code=self._failures[-1] if self.restarts and self._failures[-1:] > [0] else None,
        )
