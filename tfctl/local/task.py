"""One task of a local run: its process, and its state in the wire's terms."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfctl.local.child import Child
from tfctl.model.job import Policy, Task
from tfctl.node import wire

#: Time (s) between a failure and the restart, as in the units.
RESTART_S = 2.0
#: Exit code that asks for a restart (the unit's RestartForceExitStatus=).
_AGAIN = 42
#: Results after which Restart=on-failure does not restart (systemd.service(5)).
_CLEAN = (0, -signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM, -signal.SIGPIPE)


@dataclass
class LocalTask:
    """``due``: when it is to start next (time.monotonic); ``late``: it ran past its deadline; ``stopped``: it was told
    to end; ``code``: the exit code of its last run, or minus the signal number."""

    task: Task
    words: tuple[str, ...]
    env: Mapping[str, str]
    policy: Policy
    child: Child | None = None
    due: float | None = None
    late: bool = False
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
    def state(self) -> str:
        """The task's state, as a node would report it."""
        if self.child is not None:
            return "running"
        if self.due is not None:
            return "starting" if self.restarts else "pending"
        if self.stopped:
            return "stopped"
        return "succeeded" if self.code == 0 and not self.late else "failed"

    def start(self, folder: Path) -> Child:
        """Start and return its process, in the directory ``folder``."""
        self.child = Child(self.words, self.env, folder, self.policy.grace)
        self.due, self.code, self.late, self.began = None, None, False, time.monotonic()
        self.started = self.started or time.time()
        return self.child

    def end(self) -> None:
        """Tell it to end and not to restart."""
        self.stopped, self.due = True, None
        if self.child is not None:
            self.child.end()

    def keep_deadline(self) -> None:
        """End it if it has run past its deadline."""
        deadline = self.policy.deadline
        if self.child and deadline and not self.late and time.monotonic() - self.began > deadline:
            self.late = True
            self.child.end()

    def ended(self, code: int) -> None:
        """Record that its process has ended, and schedule a restart if the policy says so."""
        self.child, self.code, self.finished = None, code, time.time()
        # A task that SIGTERM ends at its deadline is not restarted (the unit's RestartPreventExitStatus=).
        again = (self.late and code != -signal.SIGTERM) or code == _AGAIN or code not in _CLEAN
        if again and not self.stopped and self.restarts < self.policy.max_restarts:
            self.restarts += 1
            self.due = time.monotonic() + RESTART_S

    def told(self) -> dict[str, Any]:
        """Return wire.STATE."""
        code = self.code if self.over else None
        return {
            "role": self.task.role,
            "index": self.task.index,
            "state": self.state,
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": wire.signal_name(-code) if code is not None and code < 0 else None,
            "started": self.started,
            "finished": self.finished if self.over else None,
            "restarts": self.restarts,
        }
