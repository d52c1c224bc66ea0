"""The verb `exec`: run a command beside a task, with its environment, as the jobs' user and restricted as jobs are.

The command is a unit of its own in the job's slice, so the drop-in of all tasks applies to it. It writes to two pipes
that this process reads. It ends with this process or with its client.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import checks, fields, jobstore, names, restart_files, unitfile, wire
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System, host
from ..units import end_units, stop_slice

#: The lines of a task's unit that also apply to a command beside it.
_KEPT = ("UnsetEnvironment", "WorkingDirectory", "ReadWritePaths", "MemoryMax", "MemorySwapMax", "CPUQuota")
#: Seconds between SIGTERM and SIGKILL.
_GRACE_S = 5
#: The most that a command line may have, in bytes.
_LONGEST = 1 << 17
_PIECE = 1 << 18
#: How often (s) to look whether the command has ended.
_POLL_S = 1.0


def run(system: System, session: NodeSession, request: wire.ExecRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    job, run = fields.job_name(request.job), fields.match(names.RUN, request.run, "a run")
    task = fields.task_name((request.role, request.index))
    _check_words(request.words)
    attempt = jobstore.latest(system, job)
    record = jobstore.record(system, job, attempt) if attempt else None
    if record is None or record.run != run or task not in [one.name for one in record.tasks]:
        raise RequestRefused(Exit.NOT_FOUND, f"{host()} has no {names.task(*task)} of this run of {job}", "try again")
    system.user()
    checks.drop_in(system)
    _sweep(system)
    lines = _of_task(system, record, task) if request.environment else _of_stack(record)
    key = os.urandom(4).hex()
    with _place(system, job, key) as pipes:
        text = _unit(job, key, lines, request.words)
        jobstore.write(system.at(f"{names.UNITS}/{names.exec_unit(job, key)}"), text.encode())
        ended = _supervise(system, session, names.exec_unit(job, key), pipes)
    session.send(ended)


def _check_words(words: Sequence[str]) -> None:
    if not words or not words[0] or any("\0" in word for word in words):
        raise RequestRefused(Exit.USAGE, "the command is empty or contains a null character")
    if sum(len(word.encode()) for word in words) > _LONGEST:
        raise RequestRefused(Exit.USAGE, f"the command has more than {_LONGEST} bytes", "put it in a file")


def _of_task(system: System, record: wire.Record, task: wire.TaskName) -> list[str]:
    """Return the lines of the task's unit that apply. Raises RequestRefused if its files are gone."""
    found = restart_files.load(system, record.job, record.attempt).get(task)
    if found is None:
        raise RequestRefused(
            Exit.NOT_FOUND,
            f"the environment of {names.task(*task)} is no longer on {host()}",
            "a stop or a reboot removes it; tfctl start starts the job again",
        )
    env = names.env_file(record.job, *task)
    if not system.at(env).exists():
        env = f"{names.ended_dir(record.job)}/{names.stem(record.job, *task)}.env"
    kept = [line for line in found[0].split("\n") if line.partition("=")[0] in _KEPT]
    return [f"EnvironmentFile={env}", *kept]


def _of_stack(record: wire.Record) -> list[str]:
    stack = fields.match(names.STACK, record.stack, "a stack's name")
    path = names.PATH if stack == "none" else f"{names.stack_dir(stack)}/bin:{names.PATH}"
    return [f'Environment="PATH={path}"', "WorkingDirectory=/"]


def _unit(job: str, key: str, lines: Sequence[str], words: Sequence[str]) -> str:
    """Return the unit's text. It contains the lines of the drop-in, as the units of tasks do."""
    place, restrictions = names.exec_dir(key), unitfile.restrictions()
    return "\n".join(
        [
            "[Unit]",
            f"Description=tfctl exec for {job}",
            *restrictions["Unit"],
            "",
            "[Service]",
            "Type=oneshot",
            *restrictions["Service"],
            f"Slice={names.job_slice(job)}",
            *lines,
            f"ExecStart=:/usr/bin/env {' '.join(map(unitfile.word, words))}",
            "StandardInput=null",
            f"StandardOutput=file:{place}/1",
            f"StandardError=file:{place}/2",
            "KillMode=mixed",
            "TimeoutStartSec=infinity",
            f"TimeoutStopSec={_GRACE_S}s",
            "",
        ]
    )


@contextlib.contextmanager
def _place(system: System, job: str, key: str) -> Iterator[tuple[int, int]]:
    """Make the pipes of a unit. Yield the ends to read. End the unit and remove everything at the end of the block."""
    folder = system.at(names.exec_dir(key))
    folder.parent.mkdir(0o755, parents=True, exist_ok=True)
    user = system.user()
    descriptors = [_make_locked(folder)]
    try:
        for name in ("1", "2"):
            os.mkfifo(folder / name, 0o600)
            # The command may open /dev/stderr again.
            os.chown(folder / name, user.pw_uid, user.pw_gid)
            # Also open to write, so that there is no end of file before the command has opened it.
            descriptors.append(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        yield descriptors[1], descriptors[2]
    finally:
        _remove(system, job, key)
        for descriptor in descriptors:
            os.close(descriptor)


def _make_locked(folder: Path) -> int:
    """Make a directory, and return the descriptor that holds its lock, so that `_sweep` leaves it alone.

    The `_sweep` of another command may be faster, and remove the directory before it is locked.
    """
    while True:
        folder.mkdir(0o700)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                return descriptor
            os.close(descriptor)


def _supervise(system: System, session: NodeSession, unit: str, pipes: tuple[int, int]) -> wire.Exited:
    """Run the unit to its end and send its output. Return how it ended. Raises Gone, RequestRefused."""
    beat = time.monotonic() + wire.BEAT_S
    errors = bytearray()
    process = system.managing("start", "--", unit)
    assert process.stderr
    try:
        while process.poll() is None:
            ready = session.readable([*pipes, process.stderr.fileno()], _POLL_S)
            _forward(session, pipes)
            if process.stderr.fileno() in ready:
                data = os.read(process.stderr.fileno(), 4096)
                if not data:
                    break
                errors += data
            if time.monotonic() > beat:
                session.send(wire.Beat())
                beat = time.monotonic() + wire.BEAT_S
        status = process.wait(_POLL_S)
        _forward(session, pipes)
    finally:
        process.kill()
        process.wait(5)
        process.stderr.close()
    if status == 0:
        return wire.Exited(0)
    found = system.show([unit])[unit]
    code, number = found.get("ExecMainCode", "0"), int(found.get("ExecMainStatus") or 0)
    if code == "0":
        said = errors.decode("utf-8", "replace").strip()
        raise RequestRefused(
            Exit.FAILED, f"systemd on {host()} did not run the command: {said}", "see journalctl on the host"
        )
    return wire.Exited(number) if code == "1" else wire.Exited(None, wire.signal_name(number))


def _forward(session: NodeSession, pipes: Sequence[int]) -> None:
    """Send what the command has written."""
    for position, pipe in enumerate(pipes, 1):
        with contextlib.suppress(BlockingIOError):
            while data := os.read(pipe, _PIECE):
                session.send_raw(wire.line(wire.Piece(position, len(data))) + data)


def _sweep(system: System) -> None:
    """Remove what processes that were killed have left."""
    beginning = names.EXEC_DIR.rpartition("/")[2]
    found = [name for name in jobstore.listing(system.at(names.RUN_DIR)) if name.startswith(beginning)]
    for key in [name[len(beginning) :] for name in found]:
        with contextlib.suppress(OSError, RequestRefused):
            descriptor = os.open(system.at(names.exec_dir(key)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in jobstore.listing(system.at(names.UNITS)):
                    if name.startswith("tfctl-EXEC-") and name.endswith(f"-{key}.service"):
                        _remove(system, name[len("tfctl-EXEC-") : -len(f"-{key}.service")], key)
                _remove_pipes(system, key)
            finally:
                os.close(descriptor)


def _remove(system: System, job: str, key: str) -> None:
    """End the unit if it runs, and remove it and its pipes. Raises RequestRefused."""
    unit = names.exec_unit(job, key)
    path = system.at(f"{names.UNITS}/{unit}")
    try:
        if path.exists():
            end_units(system, [unit], 2.0 * _GRACE_S)
    finally:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        _remove_pipes(system, key)
    system.manage("reset-failed", "--", unit)  # fails for a unit that did not fail, which does no harm
    system.settle([unit], "not-found")
    stop_slice(system, job)


def _remove_pipes(system: System, key: str) -> None:
    folder = system.at(names.exec_dir(key))
    for path in (folder / "1", folder / "2"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()
