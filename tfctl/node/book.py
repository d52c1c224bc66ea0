"""The files of each job on disk: attempts with their records, ends, notes and stop marks."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from . import names, states
from .world import World, caller

#: Most bytes read from a task's end lines: the jobs' user may write anything there.
_ENDS = 1 << 18


def jobs(world: World) -> list[str]:
    """Return the jobs that have an attempt here, sorted by name."""
    return sorted(name for name in listing(world.at(names.JOBS)) if names.JOB.fullmatch(name) and latest(world, name))


def latest(world: World, job: str) -> int:
    """Return the highest attempt of the job that this host knows, or 0."""
    return max(attempts(world, job), default=0)


def attempts(world: World, job: str) -> list[int]:
    """Return all attempts of the job that this host knows, in ascending order."""
    return sorted(int(name) for name in listing(world.at(names.job_dir(job))) if name.isdigit())


def record(world: World, job: str, attempt: int) -> dict[str, Any] | None:
    """Return the attempt's RECORD, or None if there is none (yet)."""
    return read_json(world.at(names.record_file(job, attempt)))


def tasks(world: World, job: str, attempt: int) -> list[tuple[str, int]]:
    """Return the attempt's tasks on this host, those with a directory, in the order of its record."""
    here = set(listing(world.at(names.attempt_dir(job, attempt))))
    known = (record(world, job, attempt) or {}).get("tasks", [])
    pairs = [(str(task["role"]), int(task["index"])) for task in known]
    return [(role, index) for role, index in pairs if f"{role}-{index}" in here]


def ends(world: World, job: str, attempt: int, role: str, index: int) -> list[states.End]:
    """Return the ends of a task's runs. Open the file with care: the jobs' user controls it."""
    path = world.at(names.task_dir(job, attempt, role, index)) / "ends.jsonl"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return []
        file.seek(max(0, found.st_size - _ENDS))
        return states.read_ends(file.read(_ENDS).decode("utf-8", "replace"))


def marked(world: World, job: str, attempt: int, role: str = "", index: int = 0) -> float | None:
    """Return the epoch seconds at which the job's stop mark (with a role, the task's) was written, or None."""
    try:
        return round(world.at(names.stop_mark(job, attempt, role, index)).stat().st_mtime, 3)
    except OSError:
        return None


def mark(world: World, job: str, attempt: int, role: str = "", index: int = 0) -> None:
    """Write a stop mark. An existing mark keeps its time."""
    with contextlib.suppress(FileExistsError):
        world.at(names.stop_mark(job, attempt, role, index)).touch(0o644, exist_ok=False)


def unmark(world: World, job: str, attempt: int, role: str, index: int) -> None:
    """Remove a task's stop mark, for a task that is to run again."""
    with contextlib.suppress(FileNotFoundError):
        world.at(names.stop_mark(job, attempt, role, index)).unlink()


def note(world: World, job: str, attempt: int, deed: str, tasks: list[tuple[str, int]] | None = None) -> None:
    """Note that the caller did ``deed`` to the job or to some of its tasks just now. Never raises."""
    told = {"time": round(time.time(), 3), "deed": deed, "by": caller(), "tasks": tasks}
    with contextlib.suppress(OSError), _notes(world, job, attempt).open("a") as file:
        file.write(json.dumps(told, separators=(",", ":")) + "\n")


def notes(world: World, job: str, attempt: int) -> list[dict[str, Any]]:
    """Return the notes, oldest first: "time", "deed", "by" and "tasks" (None: the whole job)."""
    found = []
    with contextlib.suppress(OSError):
        for line in _notes(world, job, attempt).read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def began(world: World, job: str, attempt: int) -> dict[str, float]:
    """Return when each task's first run began, as ``{"worker-0": epoch seconds}``."""
    return read_json(_began(world, job, attempt)) or {}


def keep_began(world: World, job: str, attempt: int, times: dict[str, float]) -> None:
    """Write those times: systemd forgets them as soon as a unit succeeds."""
    write(_began(world, job, attempt), json.dumps(times).encode())


def listing(directory: Path) -> list[str]:
    """Return the names in a directory, or an empty list if it cannot be read."""
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file that root owns, or None if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that root owns, atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # an error of write(), such as a full file system, names no file
        raise


def _notes(world: World, job: str, attempt: int) -> Path:
    return world.at(names.attempt_dir(job, attempt)) / "notes.jsonl"


def _began(world: World, job: str, attempt: int) -> Path:
    return world.at(names.attempt_dir(job, attempt)) / "began.json"
