"""tfctl's units on this host: list them, end them, remove them, and find out why one could not be executed."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Callable, NamedTuple

from . import deadlines, jobstore, names, restart_files, states, unitfile
from .states import Properties
from .system import System, host
from .wire import TaskName

_UNIT = re.compile(rf"tfctl-({names.JOB.pattern})-({names.ROLE.pattern})-(0|[1-9][0-9]{{0,6}})\.service")
#: Seconds for the kernel to end what was killed.
_KILLED_S = 5.0
#: Seconds to wait for a failed unit's ExecStopPost.
_STOP_POST_S = 5.0
#: Seconds to wait for execution if systemctl does not wait for it itself.
_EXECUTED_S = 0.3
#: TimeoutStopSec= of systemd itself.
_DEFAULT_GRACE_S = 90.0
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: systemd.exec(5): why systemd itself ended what it had forked.
_EXEC_FAILURES = {
    200: "its working directory cannot be entered", 203: "its program cannot be executed",
    214: "its scheduling policy cannot be set", 217: "its user does not exist",
    218: "its capabilities cannot be set", 226: "a directory that it may write to is missing",
    228: "its system call filter cannot be set",
}  # fmt: skip


class InstalledUnit(NamedTuple):
    """A unit file of tfctl, and systemd's properties of that unit."""

    unit: str
    job: str
    task: TaskName
    run: str
    ports: tuple[int, ...]
    gpus: tuple[str, ...]
    properties: Properties

    @property
    def live(self) -> bool:
        return states.is_live(self.properties)

    def __str__(self) -> str:
        return f"job {self.job}, task {names.task(*self.task)}"


def installed_units(system: System, job: str | None = None) -> list[InstalledUnit]:
    """Return the units here, of one job or of all. Calls systemctl once. Raises RequestRefused."""
    return installed_and_others(system, None if job is None else [job], ())[0]


def live_units(system: System) -> list[InstalledUnit]:
    """Return the live units here, at a cost that does not depend on how many have ended. Raises RequestRefused.

    `systemctl show` loads the file of each unit that it names, which takes about 7 ms for a unit that has ended.
    """
    return [unit for unit in _read(system, sorted(_live_or_queued(system)), ())[0] if unit.live]


def jobs_with_live_units(system: System) -> set[str]:
    """Return the jobs of which a task or the guard runs, starts, ends or is about to start. Raises RequestRefused."""
    return {
        match.group(1)
        for unit in _live_or_queued(system)
        if (match := _UNIT.fullmatch(unit) or names.GUARD_SERVICE.fullmatch(unit))
    }


def _live_or_queued(system: System) -> set[str]:
    """Return the units of tasks and guards that have a file and run, start, end or are about to start."""
    here = jobstore.listing(system.at(names.UNITS))
    installed = {name for name in here if _UNIT.fullmatch(name) or names.GUARD_SERVICE.fullmatch(name)}
    return installed.intersection(system.live_or_queued()) if installed else installed


def installed_and_others(
    system: System, jobs: Collection[str] | None, others: Collection[str]
) -> tuple[list[InstalledUnit], dict[str, Properties]]:
    """Return the units here of these jobs, or of all, and the properties of ``others``, from one call of systemctl."""
    wanted, chosen = [], None if jobs is None else set(jobs)
    for name in sorted(jobstore.listing(system.at(names.UNITS))):
        parts = _UNIT.fullmatch(name)
        if parts and (chosen is None or parts.group(1) in chosen):
            wanted.append(name)
    return _read(system, wanted, others)


def _read(
    system: System, units: Sequence[str], others: Collection[str]
) -> tuple[list[InstalledUnit], dict[str, Properties]]:
    """Return those units whose file can be read, and the properties of ``others``. Calls systemctl at most once."""
    found = {}
    for name in units:
        parts = _UNIT.fullmatch(name)
        if parts:
            with contextlib.suppress(OSError):
                text = system.at(f"{names.UNITS}/{name}").read_text("utf-8", "replace")
                found[name] = (parts.group(1), (parts.group(2), int(parts.group(3))), unitfile.facts(text))
    properties = system.show([*found, *others]) if found or others else {}
    read = [
        InstalledUnit(unit, job, task, facts.run, facts.ports, facts.gpus, properties[unit])
        for unit, (job, task, facts) in found.items()
    ]
    return read, {unit: properties[unit] for unit in others}


def units_without_file(system: System, job: str, tasks: Iterable[TaskName]) -> list[InstalledUnit]:
    """Return systemd's view of the units of these tasks, whose unit files are missing. Raises RequestRefused."""
    wanted = {names.unit(job, *task): task for task in tasks}
    properties = system.show(list(wanted)) if wanted else {}
    return [InstalledUnit(unit, job, task, "", (), (), properties[unit]) for unit, task in wanted.items()]


def run_of(system: System, job: str, task: TaskName) -> str:
    """Return the run that the task's unit file belongs to now, or "" if there is none."""
    try:
        return unitfile.facts(system.at(names.unit_file(job, *task)).read_text("utf-8", "replace")).run
    except OSError:
        return ""


def grace(system: System, unit: InstalledUnit) -> float:
    """Return TimeoutStopSec= of the unit file, in seconds."""
    with contextlib.suppress(OSError, ValueError):
        for line in system.at(names.unit_file(unit.job, *unit.task)).read_text("utf-8", "replace").split("\n"):
            if line.startswith("TimeoutStopSec="):
                value = line.partition("=")[2]
                digits = value.rstrip("mshdin")
                return float(digits) * _SECONDS[value[len(digits) :] or "s"]
    return _DEFAULT_GRACE_S


def end_units(
    system: System,
    units: Sequence[str],
    limit: float,
    beat: Callable[[], object] = lambda: None,
    killed: float = _KILLED_S,
) -> dict[str, str]:
    """Stop the units in one call and kill those that live after ``limit`` seconds. Return an error for each that still
    lives ``killed`` seconds later.

    ``beat`` is called again and again meanwhile. Raises RequestRefused.
    """
    if not units:
        return {}
    # All of them, because one may be about to start. --no-block: systemd goes on even if this process is killed.
    system.manage("stop", "--no-block", "--", *units)
    alive = _wait_for_end(system, units, limit, beat)
    if alive:
        system.manage("kill", "--signal=SIGKILL", "--", *alive)
        alive = _wait_for_end(system, alive, killed, beat)
    return {unit: f"{unit} on {host()} does not end, not even by SIGKILL" for unit in alive}


def remove_units(system: System, job: str, tasks: Sequence[TaskName], *, keep_restart_files: bool) -> None:
    """Remove unit files, environment files and deadlines of tasks that have ended, and have systemd forget the units.

    Raises RequestRefused.
    """
    if not tasks:
        return
    units = [*(names.unit(job, *task) for task in tasks), *deadlines.remove(system, job, tasks)]
    if keep_restart_files:
        restart_files.save(system, job, tasks)
    for task in tasks:
        for path in (names.unit_file(job, *task), names.env_file(job, *task)):
            with contextlib.suppress(FileNotFoundError):
                system.at(path).unlink()
    system.manage("reset-failed", "--", *units)  # fails for a unit that did not fail, which does no harm
    system.settle(units, "not-found")
    stop_slice(system, job)


def stop_slice(system: System, job: str) -> None:
    """Stop the job's slice, with the commands of `exec` in it, unless a task of the job has a unit file here.

    systemd would keep the empty slice. Raises RequestRefused.
    """
    found = [_UNIT.fullmatch(name) for name in jobstore.listing(system.at(names.UNITS))]
    if not any(parts and parts.group(1) == job for parts in found):
        system.manage("stop", "--no-block", "--", names.job_slice(job))


def wait_for_execution(system: System, units: Sequence[str], failed: bool) -> dict[str, Properties]:
    """Return systemd's properties of units just started. If the start ``failed``, wait until they have ended.

    Raises RequestRefused.
    """
    if not system.sees_execution():
        time.sleep(_EXECUTED_S)
        failed = True
    until = time.monotonic() + _STOP_POST_S
    while True:
        found = system.show(units)
        ending = any(one["ActiveState"] == "deactivating" or one["SubState"] == "start" for one in found.values())
        if not (failed and ending) or time.monotonic() > until:
            return found
        time.sleep(0.05)


def exec_failure(properties: Properties, ends: Sequence[states.InvocationEnd]) -> str:
    """Return why systemd could not execute a task, or "". A program that ran counts as started, even if it ended.

    ExecStopPost may then have written no end line either.
    """
    by_systemd = states.end_from_systemd(properties)
    for end in [*ends, *([by_systemd] if by_systemd else [])]:
        if end.not_executed:
            return _EXEC_FAILURES.get(end.exit_code or 0, f"EXIT_STATUS {end.exit_code} of systemd.exec(5)")
    if not ends and not by_systemd and properties.get("ActiveState") in ("failed", "inactive"):
        result = properties.get("Result", "")
        return "systemd gives no reason" if result in ("", "success") else f"systemd says: {result}"
    return ""


def _wait_for_end(system: System, units: Sequence[str], limit: float, beat: Callable[[], object]) -> list[str]:
    """Return the units that still live after ``limit`` seconds."""
    until, pause = time.monotonic() + limit, 0.02
    invocations: dict[str, str | None] = {}
    while True:
        # Once a unit has ended, the next start may reuse its name. Its invocation tells the two apart.
        units = [
            unit
            for unit, found in system.show(units).items()
            if states.is_live(found)
            and invocations.setdefault(unit, found.get("InvocationID")) == found.get("InvocationID")
        ]
        if not units or time.monotonic() > until:
            return units
        beat()
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)
