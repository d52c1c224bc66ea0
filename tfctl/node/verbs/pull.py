"""The verb `pull`: send what a job has on this host: its tasks' unit files and TF_CONFIG, and the files of its output.

The output is read as the jobs' user, who could otherwise make root follow a link to any file.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from .. import fields, jobstore, restart_files, wire
from ..asuser import become_user, os_error
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System, host

#: Bytes that are read and sent at once.
_PIECE = 1 << 18
#: Files in one message.
_BATCH = 1000
#: A line of an environment file (tfctl.model.text.env_line).
_TF_CONFIG = re.compile(r'^TF_CONFIG="((?:[^"\\]|\\.)*)"$', re.MULTILINE)


def run(system: System, session: NodeSession, request: wire.PullRequest) -> None:
    """Serve one request, until the client closes its end. Raises RequestRefused, Gone."""
    job = fields.job_name(request.job)
    attempt = fields.optional_attempt(request.attempt) or jobstore.latest(system, job)
    record = jobstore.record(system, job, attempt) if attempt else None
    if record is None or fields.optional_run(request.run) not in (None, record.run):
        raise RequestRefused(Exit.NOT_FOUND, f"{host()} has no attempt of job {job}", "tfctl list shows the jobs")
    found = restart_files.load(system, job, attempt)
    session.send(
        wire.Files(attempt, tuple(wire.TaskFiles(*task, unit, tf_config(env)) for task, (unit, env) in found.items()))
    )
    become_user(system)
    listed = _list(session, str(system.at(record.output)) if request.output and record.output else "")
    while True:
        message = session.receive()
        if not isinstance(message, wire.Fetch):
            raise RequestRefused(Exit.USAGE, f"{type(message).__name__.lower()} is out of order in a pull")
        for position, skipped in message.files:
            fields.number(position, "a position in the listing", 0, len(listed) - 1)
            _send(session, position, listed[position], fields.number(skipped, "a number of bytes", 0, 10**15))


def tf_config(env: str) -> str | None:
    """Return the value of TF_CONFIG in the text of an environment file, or None."""
    found = _TF_CONFIG.search(env)
    return re.sub(r'\\([\\"`$])', r"\1", found.group(1)) if found else None


def _list(session: NodeSession, directory: str) -> list[wire.OutputFile]:
    """Enter the output directory and send what it contains; nothing if no directory is given.

    Raises RequestRefused, Gone.
    """
    found: list[wire.OutputFile] = []
    files: list[wire.OutputFile] = []
    skipped: list[str] = []
    sent = time.monotonic()
    try:
        os.chdir(directory)
    except FileNotFoundError:
        session.send(wire.Listing((), (), last=True))
        return found
    except OSError as error:
        raise os_error(error, "the output cannot be read") from None
    for one in _walk():
        if isinstance(one, str):
            skipped.append(one)
        else:
            files.append(one)
        if len(files) + len(skipped) == _BATCH or time.monotonic() - sent > wire.BEAT_S:
            session.send(wire.Listing(tuple(files), tuple(skipped)))
            sent = time.monotonic()
            found += files
            files, skipped = [], []
    session.send(wire.Listing(tuple(files), tuple(skipped), last=True))
    return found + files


def _walk() -> Iterator[wire.OutputFile | str]:
    """Yield each file and link in the current directory, and a sentence for each thing that cannot be sent."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder or ".") as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield f"{_shown(folder)}: {error.strerror}"
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                state = entry.stat(follow_symlinks=False)
                target = str(Path(path).readlink()) if stat.S_ISLNK(state.st_mode) else None
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                yield f"{_shown(path)}: {error.strerror}"
                continue
            if stat.S_ISDIR(state.st_mode):
                folders.append(path)
            elif not (_is_text(path) and _is_text(target or "")):
                yield f"{_shown(path)}: its name is not UTF-8"
            elif target is not None or stat.S_ISREG(state.st_mode):
                yield wire.OutputFile(path, state.st_size, *divmod(state.st_mtime_ns, 10**9), target)
            else:
                yield f"{_shown(path)}: it is neither a file nor a link"


def _send(session: NodeSession, position: int, file: wire.OutputFile, skipped: int) -> None:
    """Send a file, up to the size that was listed. Raises Gone."""
    fault = None
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "it is no longer a file")
            source.seek(skipped)
            left = file.size - skipped
            while left > 0:
                data = source.read(min(left, _PIECE))
                if not data:
                    raise OSError(0, "it was truncated while it was read")
                session.send_raw(wire.line(wire.Piece(position, len(data))) + data)
                left -= len(data)
    except OSError as error:
        fault = error.strerror or str(error)
    session.send(wire.Ended(position, fault))


def _is_text(name: str) -> bool:
    """Return whether a name can be sent: JSON has no names that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode() or "the output directory"
