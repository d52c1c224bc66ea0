"""The reservation of a start in progress: written before anything is made, in a file that its process keeps locked.

If it is not locked, its process is dead, and the next caller undoes it. See starting.py for the files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple

from . import guards, jobstore, names, starting
from .asuser import as_user
from .exits import Exit
from .session import RequestRefused
from .system import System, caller, host
from .system import run as run_to_end
from .units import InstalledUnit, end_units, live_units, remove_units, run_of
from .wire import TaskName

_DIRECTORY = f"{names.RUN_DIR}/reserved"
#: Seconds to wait for another start that is writing its files.
_LOCK_TIMEOUT_S = 30.0
#: How long (s) removing an attempt may take.
_REMOVAL_S = 300.0
#: How long (s) the file system of the output directory may take to answer while other starts wait.
OUTPUT_S = 15.0
#: How long (s) another start may hold the lock: it creates its output directory and copies its code. The patience of
#: requests that must not fail because of it.
LONGEST_S = 360.0


class Reservation(NamedTuple):
    """What a start makes. ``stored``: the code's digest if it was new here; ``made``: the directories that it creates
    for its output, outermost first. ``guard``: whether the start makes a guard. ``by``: who starts, from `take` on.
    ``output``: the output directory of the job."""

    job: str
    attempt: int
    run: str
    tasks: tuple[TaskName, ...]
    ports: tuple[int, ...]
    gpus: tuple[str, ...]
    stored: str = ""
    made: tuple[str, ...] = ()
    guard: bool = False
    by: str = ""
    output: str = ""


@contextlib.contextmanager
def lock(
    system: System, patience: float = _LOCK_TIMEOUT_S, beat: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Hold the lock that all starts on this host share.

    Raises RequestRefused if another process does not release it within ``patience`` seconds; ``beat`` is called
    meanwhile.
    """
    try:
        with starting.lock(system.at(names.RUN_DIR), patience, beat):
            yield
    except starting.Held:
        what = f"another start on {host()} is still writing its files"
        raise RequestRefused(Exit.BUSY, what, "try again", retry=True) from None


def take(system: System, reservation: Reservation) -> int:
    """Write the reservation and return the descriptor that holds its lock. Call under `lock`, after `sweep`."""
    directory = system.at(_DIRECTORY)
    directory.mkdir(0o700, parents=True, exist_ok=True)
    temporary = directory / f".{os.getpid()}"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        data = json.dumps(reservation._replace(by=caller())._asdict()).encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
        temporary.rename(directory / reservation.job)
    except BaseException:
        temporary.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def keep(system: System, reservation: Reservation) -> None:
    """Remove the reservation: the start is complete and is never undone."""
    with contextlib.suppress(FileNotFoundError):
        (system.at(_DIRECTORY) / reservation.job).unlink()


def live(system: System) -> list[Reservation]:
    """Return the reservations of starts in progress."""
    return [found for found, alive in _all(system) if alive]


class Held(NamedTuple):
    """The holder, in words, of each port and of each GPU's UUID. ``starting``: the jobs of starts in progress."""

    ports: dict[int, str]
    gpus: dict[str, str]
    starting: set[str]


def held(system: System, known: list[InstalledUnit] | None = None) -> Held:
    """Return what live units and starts in progress hold. ``known``: the live units, if read. Raises RequestRefused."""
    found = Held({}, {}, set())
    for unit in live_units(system) if known is None else known:
        found.ports.update(dict.fromkeys(unit.ports, str(unit)))
        found.gpus.update(dict.fromkeys(unit.gpus, str(unit)))
    found.ports.update(guards.held_ports(system))
    for one in live(system):
        found.starting.add(one.job)
        text = f"job {one.job}, which is being started"
        for port in one.ports:
            found.ports.setdefault(port, text)
        for gpu in one.gpus:
            found.gpus.setdefault(gpu, text)
    return found


def outputs(system: System, units: Sequence[InstalledUnit]) -> dict[str, str]:
    """Return the output directory of each job that has one and that runs here, whose guard does, or that is being
    started.

    ``units``: the live units.
    """
    found = {}
    for job in {*(unit.job for unit in units), *guards.jobs(system)}:
        record = jobstore.record(system, job, jobstore.latest(system, job))
        if record is not None:
            found[job] = record.output
    found.update((one.job, one.output) for one in live(system))
    return {job: output for job, output in found.items() if output}


def require_started(system: System, job: str, attempt: int) -> None:
    """Raise RequestRefused if that attempt is still being started."""
    by = next((one.by for one in live(system) if (one.job, one.attempt) == (job, attempt)), None)
    if by == names.GUARD_USER:
        raise guard_is_starting(job, attempt)
    if by is not None:
        what = f"job {job} is being started on {host()}"
        raise RequestRefused(Exit.BUSY, what, "end that start first, by Ctrl-C", retry=True)


def guard_is_starting(job: str, attempt: int) -> RequestRefused:
    """Return the error for a request about a job whose guard is just starting this attempt."""
    what = f"{names.guard(job)} is starting attempt {attempt} on {host()}"
    return RequestRefused(Exit.BUSY, what, "try again in a moment", retry=True)


def sweep(system: System) -> None:
    """Undo starts whose process was killed. Call under `lock`."""
    for found, alive in _all(system):
        if not alive:
            undo(system, found)


def undo(system: System, reservation: Reservation) -> None:
    """Remove everything this start made. Earlier attempts stay.

    The record goes last, because a start of the job on other hosts waits until it is gone. If systemd does not answer,
    the units may still run: the reservation stays, and the next `sweep` tries again.
    """
    job, run = reservation.job, reservation.run
    ours = {names.unit(job, *task): task for task in reservation.tasks if _is_of_run(system, job, task, run)}
    complete = False
    with contextlib.suppress(RequestRefused, OSError):
        if reservation.guard:
            guards.remove(system, job)
        # Keep the file of a unit that does not end: `stop` finds the unit by it, and starts see its ports as held.
        alive = end_units(system, list(ours), system.grace)
        ended = [task for unit, task in ours.items() if unit not in alive]
        remove_units(system, job, ended, keep_restart_files=False)
        complete = True
    undo_preparation(system, reservation)
    with contextlib.suppress(RequestRefused):  # Python's own recursion would end in a deep tree, which a task may make
        run_to_end(["/bin/rm", "-rf", "--", str(system.at(names.attempt_dir(job, reservation.attempt)))], _REMOVAL_S)
    with contextlib.suppress(OSError):  # the job's directory stays if there are other attempts
        system.at(names.job_dir(job)).rmdir()
    if complete:
        keep(system, reservation)


def _is_of_run(system: System, job: str, task: TaskName, run: str) -> bool:
    """Return whether the files of a task are those of this run. If somebody has removed its unit, nobody else's
    environment file can be there."""
    found = run_of(system, job, task)
    return found == run or (not found and system.at(names.env_file(job, *task)).exists())


def undo_preparation(system: System, reservation: Reservation) -> None:
    """Remove new code that no other attempt here has, and directories that are empty and not for the output of other
    jobs."""
    if reservation.stored and not _is_used(system, reservation.stored, reservation.run):
        from . import code  # slow to import, for it needs tarfile

        code.discard(system, reservation.stored)
    if reservation.made:
        outputs = [one.output for one in live(system) if one.job != reservation.job]
        outputs += [record.get("output", "") for record in _records(system) if record.get("job") != reservation.job]
        needed = [path for output in map(system.at, filter(None, outputs)) for path in (output, *output.parents)]
        unneeded = [made for made in map(Path, reservation.made) if made not in needed]
        with contextlib.suppress(RequestRefused):
            as_user(system, lambda: _remove_empty(unneeded), patience=OUTPUT_S)


def _is_used(system: System, digest: str, run: str) -> bool:
    """Return whether an attempt here but this run has this code: the next attempt of its job needs it."""
    return any(record.get("code") == digest and record.get("run") != run for record in _records(system))


def _records(system: System) -> Iterator[dict[str, Any]]:
    """Yield the record of each attempt here."""
    for job in jobstore.directories(system):
        for attempt in jobstore.attempts(system, job):
            record = jobstore.read_json(system.at(names.record_file(job, attempt)))
            if record is not None:
                yield record


def _all(system: System) -> Iterator[tuple[Reservation, bool]]:
    """Yield each reservation, and whether its process is alive."""
    for fields, alive in starting.reservations(system.at(names.RUN_DIR)):
        tasks = tuple((role, index) for role, index in fields["tasks"])
        found = Reservation(
            fields["job"], fields["attempt"], fields["run"], tasks, tuple(fields["ports"]), tuple(fields["gpus"]),
            fields["stored"], tuple(fields["made"]), fields.get("guard", False), fields.get("by", ""),
            fields.get("output", ""),
        )  # fmt: skip
        yield found, alive


def _remove_empty(directories: Sequence[Path]) -> None:
    for directory in reversed(directories):
        with contextlib.suppress(FileNotFoundError):  # the start ended before it created it
            directory.rmdir()
