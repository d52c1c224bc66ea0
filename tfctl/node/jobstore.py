"""The files of each job on disk: attempts with their records, ends, users' actions and stop marks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import names, states, wire
from .system import System, caller
from .wire import TaskName

#: Most bytes read from a file that another user controls: it may have any size.
UNTRUSTED = 1 << 18


def jobs(system: System) -> list[str]:
    """Return the jobs that have an attempt here, sorted by name."""
    return sorted(latest_of_all(system))


def latest_of_all(system: System) -> dict[str, int]:
    """Return the `latest` attempt of each job that has one here."""
    found = {job: latest(system, job) for job in directories(system)}
    return {job: attempt for job, attempt in found.items() if attempt}


def directories(system: System) -> list[str]:
    """Return the jobs that have a directory here, sorted by name. After a power loss during a start, none of the
    attempts of a job may have a record."""
    return sorted(name for name in listing(system.at(names.JOBS)) if names.JOB.fullmatch(name))


def latest(system: System, job: str) -> int:
    """Return the highest attempt of the job that has a record here, or 0.

    One that is just being started, or whose start was cut off by a power loss, may have none.
    """
    for attempt in reversed(attempts(system, job)):
        with contextlib.suppress(OSError):
            # A Path would take longer, and there are thousands.
            if os.stat(f"{system.prefix}{names.record_file(job, attempt)}").st_size:  # noqa: PTH116
                return attempt
    return 0


def highest(system: System, job: str) -> int:
    """Return the highest attempt of the job that has a directory here, or 0."""
    return max(attempts(system, job), default=0)


def attempts(system: System, job: str) -> list[int]:
    """Return all attempts of the job that this host knows, in ascending order."""
    # A Path would take longer than to list the directory, and there are thousands.
    return sorted([int(name) for name in listing(f"{system.prefix}{names.job_dir(job)}") if name.isdigit()])


def record(system: System, job: str, attempt: int) -> wire.Record | None:
    """Return the attempt's record, or None if there is none (yet) or it cannot be read."""
    path = f"{system.prefix}{names.record_file(job, attempt)}"
    try:
        found = os.stat(path)  # noqa: PTH116  as in `latest`
        return _decoded(path, (found.st_ino, found.st_mtime_ns, found.st_size))
    except (OSError, wire.Malformed):
        return None


@lru_cache(maxsize=16)
def _decoded(path: str, _version: tuple[int, int, int]) -> wire.Record:
    """Return the record in a file. It is immutable, so all callers share it as long as the file is the same.

    Records do not change, and who follows a job reads its record twice a second. Raises Malformed.
    """
    return wire.decode(wire.Record, read_json(Path(path)))


def digest_of_long_record(system: System, job: str, attempt: int) -> str:
    """Return the digest of the attempt's record, or "" if it is not longer than wire.LONG_RECORD."""
    try:
        data = system.at(names.record_file(job, attempt)).read_bytes()
    except OSError:
        return ""
    if len(data) <= wire.LONG_RECORD:
        return ""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def tasks(system: System, job: str, attempt: int, found: wire.Record | None = None) -> list[TaskName]:
    """Return the attempt's tasks on this host, those with a directory, in the order of its record.

    ``found``: the record, if it has been read already.
    """
    here = set(listing(system.at(names.attempt_dir(job, attempt))))
    found = found or record(system, job, attempt)
    return [task.name for task in found.tasks if names.task_key(*task.name) in here] if found else []


def invocations(system: System, job: str, attempt: int, role: str, index: int) -> list[states.Invocation]:
    """Return the invocations of a task's unit, oldest first."""
    try:
        lines = read_untrusted(system.at(names.task_dir(job, attempt, role, index)) / "ends.jsonl")
    except OSError:
        return []
    return states.read_invocations(lines.decode("utf-8", "replace"))


def read_untrusted(path: Path, room: int = UNTRUSTED) -> bytes:
    """Return the end of a file, at most ``room`` bytes, in a directory that another user controls: no link, device or
    pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        file.seek(max(0, found.st_size - room))
        return file.read(room)


def ends(system: System, job: str, attempt: int, role: str, index: int) -> list[states.InvocationEnd]:
    """Return the ends of the invocations of a task's unit, oldest first."""
    return states.ends(invocations(system, job, attempt, role, index))


def marked(system: System, job: str, attempt: int, role: str = "", index: int = 0) -> float | None:
    """Return the epoch seconds at which the job's stop mark (with a role, the task's) was written, or None."""
    try:
        return round(system.at(names.stop_mark(job, attempt, role, index)).stat().st_mtime, 3)
    except OSError:
        return None


def mark(system: System, job: str, attempt: int, role: str = "", index: int = 0) -> None:
    """Write a stop mark. An existing mark keeps its time."""
    with contextlib.suppress(FileExistsError):
        system.at(names.stop_mark(job, attempt, role, index)).touch(0o644, exist_ok=False)


def unmark(system: System, job: str, attempt: int, role: str, index: int) -> None:
    """Remove the marks of a task that is to run again."""
    for path in (
        names.stop_mark(job, attempt, role, index),
        names.deadline_mark(job, attempt, role, index),
        names.given_up_mark(job, attempt, role, index),
    ):
        with contextlib.suppress(FileNotFoundError):
            system.at(path).unlink()


def overdue(system: System, job: str, attempt: int, role: str, index: int) -> bool:
    """Return whether tfctl has ended the task, or ends it, at its deadline."""
    return system.at(names.deadline_mark(job, attempt, role, index)).exists()


def mark_overdue(system: System, job: str, attempt: int, role: str, index: int) -> None:
    """Note that tfctl ends the task at its deadline."""
    system.at(names.deadline_mark(job, attempt, role, index)).touch(0o644)


def given_up(system: System, job: str, attempt: int, role: str, index: int) -> bool:
    """Return whether tfctl does not start the task again because it fails at once."""
    return system.at(names.given_up_mark(job, attempt, role, index)).exists()


def mark_given_up(system: System, job: str, attempt: int, role: str, index: int) -> None:
    """Note that tfctl does not start the task again because it fails at once."""
    system.at(names.given_up_mark(job, attempt, role, index)).touch(0o644)


def rebooted(system: System, job: str, attempt: int) -> set[str]:
    """Return the hosts that were rebooted during the attempt, as far as a client has told this host."""
    try:
        return set(json.loads(system.at(names.rebooted_file(job, attempt)).read_bytes()))
    except (OSError, ValueError):
        return set()


def note_rebooted(system: System, job: str, attempt: int, hosts: Collection[str]) -> None:
    """Note that these hosts were rebooted during the attempt. Never raises."""
    found = record(system, job, attempt)
    known = rebooted(system, job, attempt)
    more = {task.host for task in found.tasks if task.host in hosts} - known if found else set()
    if more:
        with contextlib.suppress(OSError):
            write(system.at(names.rebooted_file(job, attempt)), json.dumps(sorted(known | more)).encode())


def add_action(
    system: System,
    job: str,
    attempt: int,
    what: str,
    tasks: Sequence[TaskName] | None = None,
    reason: str | None = None,
) -> None:
    """Note that the caller did ``what`` to the job or to some of its tasks just now. Never raises."""
    action = wire.UserAction(round(time.time(), 3), what, caller(), None if tasks is None else tuple(tasks), reason)
    append_action(_actions(system, job, attempt), action)


def append_action(path: Path, action: wire.UserAction) -> None:
    """Add a line to a file of actions. Never raises: a full disk keeps nobody from acting."""
    with contextlib.suppress(OSError), path.open("a") as file:
        file.write(json.dumps(wire.encode(action), separators=(",", ":")) + "\n")


def actions(system: System, job: str, attempt: int) -> list[wire.UserAction]:
    """Return what users did, oldest first."""
    try:
        return parse_actions(_actions(system, job, attempt).read_bytes())
    except OSError:
        return []


def parse_actions(lines: bytes) -> list[wire.UserAction]:
    """Return the actions in the lines of such a file. Skip what is not one."""
    found = []
    for line in lines.splitlines():
        with contextlib.suppress(wire.Malformed):
            found.append(wire.decode(wire.UserAction, wire.parse(line)))
    return found


def began(system: System, job: str, attempt: int) -> dict[str, float]:
    """Return when the first invocation of each task's unit began, as ``{"worker-0": epoch seconds}``."""
    return read_json(_began(system, job, attempt)) or {}


def set_began(system: System, job: str, attempt: int, times: dict[str, float]) -> None:
    """Write when the first invocation of each task's unit began: systemd forgets it as soon as a unit succeeds."""
    write(_began(system, job, attempt), json.dumps(times).encode())


def listing(directory: Path | str) -> list[str]:
    """Return the names in a directory, or an empty list if it cannot be read."""
    try:
        return os.listdir(directory)  # noqa: PTH208  ten times as fast: there are thousands of attempts
    except OSError:
        return []


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file that root owns, or None if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_record(system: System, record: wire.Record) -> None:
    """Write the attempt's record. It is on the disk then, for without it a power loss would hide the attempt."""
    write(system.at(names.record_file(record.job, record.attempt)), wire.record_file(record), on_disk=True)


def write(path: Path, data: bytes, mode: int = 0o644, *, on_disk: bool = False) -> None:
    """Write a file that root owns, atomically. ``on_disk``: wait until its content and its name are on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            if on_disk:
                file.flush()
                os.fsync(descriptor)
        temporary.replace(path)
        if on_disk:
            _sync(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # an error of write(), such as a full file system, names no file
        raise


def _sync(folder: Path) -> None:
    """Wait until the names of the files in a directory are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _actions(system: System, job: str, attempt: int) -> Path:
    return system.at(names.attempt_dir(job, attempt)) / "notes.jsonl"


def _began(system: System, job: str, attempt: int) -> Path:
    return system.at(names.attempt_dir(job, attempt)) / "began.json"
