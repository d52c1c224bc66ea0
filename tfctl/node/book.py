"""What is on disk of each job: attempts, their records, ends and stop marks. Reading, and the marks' writing."""

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

#: Of a task's end lines so many bytes are read: its user may write there what it likes.
_ENDS = 1 << 18


def jobs(world: World) -> list[str]:
    """Every job that has an attempt here, by name."""
    return sorted(name for name in listing(world.at(names.JOBS)) if names.JOB.fullmatch(name) and latest(world, name))


def latest(world: World, job: str) -> int:
    """The highest attempt of the job that this host knows, or 0."""
    return max(attempts(world, job), default=0)


def attempts(world: World, job: str) -> list[int]:
    """Every attempt of the job that this host knows, the first first."""
    return sorted(int(name) for name in listing(world.at(names.job_dir(job))) if name.isdigit())


def record(world: World, job: str, attempt: int) -> dict[str, Any] | None:
    """RECORD of the attempt; None where there is none, or none yet."""
    return read_json(world.at(names.record_file(job, attempt)))


def tasks(world: World, job: str, attempt: int) -> list[tuple[str, int]]:
    """The attempt's tasks on this host, in the order of its record: those that have a directory."""
    here = set(listing(world.at(names.attempt_dir(job, attempt))))
    known = (record(world, job, attempt) or {}).get("tasks", [])
    pairs = [(str(task["role"]), int(task["index"])) for task in known]
    return [(role, index) for role, index in pairs if f"{role}-{index}" in here]


def ends(world: World, job: str, attempt: int, role: str, index: int) -> list[states.End]:
    """How the runs of a task ended. Opened with care: the file is in the hands of the job's user."""
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
    """When the job's stop mark (or with a role, the task's) was written: epoch seconds; None: there is none."""
    try:
        return round(world.at(names.stop_mark(job, attempt, role, index)).stat().st_mtime, 3)
    except OSError:
        return None


def mark(world: World, job: str, attempt: int, role: str = "", index: int = 0) -> None:
    """Write a stop mark; one that is there keeps its time."""
    with contextlib.suppress(FileExistsError):
        world.at(names.stop_mark(job, attempt, role, index)).touch(0o644, exist_ok=False)


def unmark(world: World, job: str, attempt: int, role: str, index: int) -> None:
    """Take a task's stop mark away: it runs again."""
    with contextlib.suppress(FileNotFoundError):
        world.at(names.stop_mark(job, attempt, role, index)).unlink()


def note(world: World, job: str, attempt: int, deed: str, tasks: list[tuple[str, int]] | None = None) -> None:
    """Who did what to the job, or to some of its tasks, at this moment. Never fails: it is done."""
    told = {"time": round(time.time(), 3), "deed": deed, "by": caller(), "tasks": tasks}
    with contextlib.suppress(OSError), _notes(world, job, attempt).open("a") as file:
        file.write(json.dumps(told, separators=(",", ":")) + "\n")


def notes(world: World, job: str, attempt: int) -> list[dict[str, Any]]:
    """What was noted, first to last: "time", "deed", "by" and "tasks" (None: the whole job)."""
    found = []
    with contextlib.suppress(OSError):
        for line in _notes(world, job, attempt).read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def began(world: World, job: str, attempt: int) -> dict[str, float]:
    """When each task began, ``{"worker-0": epoch seconds}``: of several runs the first."""
    return read_json(_began(world, job, attempt)) or {}


def keep_began(world: World, job: str, attempt: int, times: dict[str, float]) -> None:
    """Keep those times: systemd forgets them as soon as a unit ends well."""
    write(_began(world, job, attempt), json.dumps(times).encode())


def listing(directory: Path) -> list[str]:
    """The names in a directory; none when it cannot be read."""
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of root's; None when there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put a file of root's there whole, or not at all."""
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
            error.filename = str(path)  # a full file system says so when it is written to, without a name
        raise


def _notes(world: World, job: str, attempt: int) -> Path:
    return world.at(names.attempt_dir(job, attempt)) / "notes.jsonl"


def _began(world: World, job: str, attempt: int) -> Path:
    return world.at(names.attempt_dir(job, attempt)) / "began.json"
