"""The deadline of each task: a timer that counts from the task's start, whatever restarts systemd makes meanwhile.

The timer starts a service as root, which runs tfctl.node.verbs.deadline. Both are files beside the task's unit file,
and are started, restarted and removed together with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from . import jobstore, names
from .system import System
from .wire import TaskName

#: After= orders the two if one systemctl call starts or restarts them: the timer then begins once the task has begun.
_TIMER = """\
[Unit]
Description=Deadline of tfctl {job} {task}
After={unit}

[Timer]
OnActiveSec={seconds}
AccuracySec=1s
"""
#: The service is repeated until it has succeeded, as when the lock is held for long.
_SERVICE = """\
[Unit]
Description=End tfctl {job} {task} at its deadline

[Service]
Type=oneshot
ExecStart={program} deadline {job} {run} {role} {index}
Restart=on-failure
RestartSec=10s
"""


def write(system: System, job: str, run: str, task: TaskName, seconds: int) -> None:
    """Write the timer and the service of a task that may run for this long."""
    role, index = task
    values = {
        "job": job, "run": run, "role": role, "index": index, "seconds": seconds, "task": names.task(role, index),
        "unit": names.unit(job, role, index), "program": names.PROGRAM,
    }  # fmt: skip
    for name, text in zip(names.deadline_units(job, role, index), (_TIMER, _SERVICE)):
        jobstore.write(system.at(names.UNITS) / name, text.format(**values).encode())


def timers(system: System, job: str, tasks: Iterable[TaskName]) -> list[str]:
    """Return the timers of those tasks that have one."""
    return [unit for unit in installed(system, job, tasks) if unit.endswith(".timer")]


def installed(system: System, job: str, tasks: Iterable[TaskName]) -> list[str]:
    """Return the timers and services that are there."""
    units = (unit for task in tasks for unit in names.deadline_units(job, *task))
    return [unit for unit in units if (system.at(names.UNITS) / unit).exists()]


def remove(system: System, job: str, tasks: Iterable[TaskName]) -> list[str]:
    """Stop and remove the timers and services of these tasks. Return their names. Raises RequestRefused."""
    units = installed(system, job, tasks)
    if units:
        system.manage("stop", "--", *units)
    for unit in units:
        with contextlib.suppress(FileNotFoundError):
            (system.at(names.UNITS) / unit).unlink()
    return units
