"""When live tasks printed their last lines. A frozen task prints no more, although its unit runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Mapping

from . import names, wire
from .system import System

#: The longest time (s) to ask the journal: the states are worth more than the ages.
_LIMIT_S = 5.0


def with_ages(system: System, jobs: Iterable[wire.JobStatus]) -> tuple[wire.JobStatus, ...]:
    """Return the jobs with the age of the last line of each running task."""
    jobs = tuple(jobs)
    runs = {names.unit(job.job, *task.name): job.run for job in jobs for task in job.tasks if task.state == "running"}
    times, now = _last_times(system, runs), time.time()

    def aged(job: wire.JobStatus, task: wire.TaskStatus) -> wire.TaskStatus:
        last = times.get(names.unit(job.job, *task.name)) if task.state == "running" else None
        return task if last is None else task._replace(last_line_age=round(max(0.0, now - last), 1))

    return tuple(job._replace(tasks=tuple(aged(job, task) for task in job.tasks)) for job in jobs)


def _last_times(system: System, runs: Mapping[str, str]) -> dict[str, float]:
    """Return the time of the last entry of each unit's run. The calls of journalctl run at once: 10 ms each."""
    words = [*system.journalctl, "-q", "--no-pager", "-o", "json", "--output-fields=_TRANSPORT", "--lines=1"]
    processes: dict[str, subprocess.Popen[bytes]] = {}
    found = {}
    until = time.monotonic() + _LIMIT_S
    try:
        for unit, run in runs.items():
            processes[unit] = subprocess.Popen(
                [*words, f"TFCTL_RUN={run}", f"_SYSTEMD_UNIT={unit}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
            )
        for unit, process in processes.items():
            output, _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
            if output:
                found[unit] = wire.journal_entry(output).time
    except (OSError, subprocess.TimeoutExpired, wire.Malformed):
        pass
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return found
