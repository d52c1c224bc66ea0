"""The verb `prune`: list what this host keeps of jobs, and delete attempts that are over. Nothing else deletes them.

Directories are moved aside under the lock that starts share, and deleted once it is free. What an interrupted prune has
moved aside, the next one deletes.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from .. import code, disks, fields, guards, jobstore, names, reservations, restart_files, wire
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System, host
from ..units import installed_units, jobs_with_live_units, remove_units
from ..wire import AttemptName

#: Begins the names of directories that were moved aside.
_ASIDE = ".pruned-"
#: How long to wait for a start that writes its files (s): the client expects a sign of life within 30 s.
_PATIENCE_S = 20.0
#: How long the guards of jobs that have just ended may take to leave (s), and how often to look.
_LEAVES_S, _LOOK_S = 15.0, 0.2
#: How long deleting may take (s).
_LIMIT_S = 3600.0


def run(system: System, session: NodeSession, request: wire.PruneRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    if request.attempts is None:
        job = None if request.job is None else fields.job_name(request.job)
        _let_guards_leave(system, job)
        session.send(wire.Stored(tuple(_stored(system, job))))
        return
    with reservations.lock(system, _PATIENCE_S):
        reservations.sweep(system)
        deleted, kept = _set_aside(system, request.attempts)
        _set_unused_code_aside(system)
    aside = [path for top in (names.JOBS, names.CODE_STORE) for path in system.at(top).glob(f"{_ASIDE}*")]
    mib = disks.size_mib(aside, time.monotonic() + disks.COUNT_S)
    _delete(session, aside)
    session.send(wire.Pruned(tuple(deleted), mib, tuple(kept)))


def _let_guards_leave(system: System, only: str | None) -> None:
    """Wait for the guards of jobs of which nothing else lives here: as a rule, these jobs have just ended.

    If all jobs are meant, only those that are over as far as this host knows: of the others, tasks may run elsewhere.
    Raises RequestRefused.
    """
    until = time.monotonic() + _LEAVES_S
    while time.monotonic() < until and any(_is_left(system, job, only is not None) for job in _guarded(system, only)):
        time.sleep(_LOOK_S)


def _guarded(system: System, only: str | None) -> list[str]:
    return [job for job in guards.jobs(system) if only in (None, job)]


def _is_left(system: System, job: str, named: bool) -> bool:
    """Return whether of this job only the guard lives. Raises RequestRefused."""
    if not guards.is_live(system, job) or any(unit.live for unit in installed_units(system, job)):
        return False
    if job in {one.job for one in reservations.live(system)}:
        return False
    return named or not guards.is_needed(system, job)


def _stored(system: System, only: str | None) -> Iterator[wire.StoredAttempt]:
    """Yield each attempt that is here. Raises RequestRefused."""
    busy, until = _busy(system), time.monotonic() + disks.COUNT_S
    for job in jobstore.directories(system) if only is None else [only]:
        for attempt in jobstore.attempts(system, job):
            record = jobstore.read_json(system.at(names.record_file(job, attempt))) or {}
            folder = system.at(names.attempt_dir(job, attempt))
            last = _last_change(folder)
            yield wire.StoredAttempt(
                job,
                attempt,
                run=str(record.get("run", "")),
                started=float(record.get("started", last)),
                hosts=len({task["host"] for task in record.get("tasks", ())}),
                age=max(0.0, round(time.time() - last, 1)),
                alive=job in busy,
                mib=disks.size_mib([folder], until),
            )


def _busy(system: System) -> set[str]:
    """Return the jobs that run, are being started or have a guard. Raises RequestRefused."""
    return {*jobs_with_live_units(system), *(one.job for one in reservations.live(system))}


def _last_change(folder: Path) -> float:
    """Return when a task of the attempt last began or ended, or a user last acted on it, in epoch seconds.

    The time of the directory counts only if there is no record: a summary that is written later changes it.
    """
    times, record = [0.0], folder / "job.json"
    first = record if record.exists() else folder
    for path in (first, *folder.glob("*/ends.jsonl"), folder / "stopped", folder / "notes.jsonl"):
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max(times)


def _set_aside(system: System, attempts: Collection[AttemptName]) -> tuple[list[AttemptName], list[str]]:
    """Move these attempts aside. Return those that were, and why others were not. Call under the lock.

    Raises RequestRefused, before anything is moved if a name is malformed, and OSError.
    """
    wanted = [(fields.job_name(each.job), fields.attempt_number(each.attempt), each) for each in attempts]
    busy = _busy(system)
    place: Path | None = None
    deleted, kept = [], []
    for job, attempt, each in wanted:
        folder = system.at(names.attempt_dir(job, attempt))
        found = (jobstore.read_json(folder / "job.json") or {}).get("run", "")
        if job in busy:
            kept.append(f"{job} runs on {host()}, or is being started there")
        elif folder.is_dir() and found == each.run:
            if attempt == jobstore.latest(system, job):
                _forget(system, job)
            place = place or Path(tempfile.mkdtemp(prefix=_ASIDE, dir=system.at(names.JOBS)))
            folder.rename(place / f"{job}-{attempt}")
            deleted.append(each)
            with contextlib.suppress(OSError):  # there are other attempts
                folder.parent.rmdir()
    return deleted, list(dict.fromkeys(kept))


def _forget(system: System, job: str) -> None:
    """Remove the units of an ended job, what its guard has left, and its restart files. Raises RequestRefused."""
    if guards.installed(system, job):
        guards.remove(system, job)
    remove_units(system, job, [unit.task for unit in installed_units(system, job)], keep_restart_files=False)
    restart_files.delete(system, job)


def _set_unused_code_aside(system: System) -> None:
    """Move aside stored code that no attempt here uses and no start holds."""
    stored = {name for name in jobstore.listing(system.at(names.CODE_STORE)) if names.DIGEST.fullmatch(name)}
    for job in jobstore.jobs(system) if stored else ():
        for attempt in jobstore.attempts(system, job):
            record = jobstore.read_json(system.at(names.record_file(job, attempt))) or {}
            stored.discard(str(record.get("code", "")))
    for digest in sorted(stored):
        code.set_aside(system, digest, _ASIDE)


def _delete(session: NodeSession, directories: Collection[Path]) -> None:
    """Delete directories, with beats meanwhile. Raises RequestRefused, Gone."""
    if not directories:
        return
    process = subprocess.Popen(
        ["/bin/rm", "-rf", "--", *map(str, directories)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stderr
    with process.stderr as errors:
        complaints = session.read_output(process, errors, _LIMIT_S)
    if complaints:
        last = complaints.rpartition("\n")[2]
        raise RequestRefused(
            Exit.FAILED, f"not everything could be deleted on {host()}: {last}", "run tfctl prune again"
        )
