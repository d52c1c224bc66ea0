"""The starts in progress on this host, and the lock that they share. The playbooks' modules use this file too.

FOLDER/lock             held while a start checks and writes, never while it waits for a client
FOLDER/reserved/JOB     the reservation of a start, as JSON; if it is not locked, its process is dead
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

#: FOLDER, unless the node part works in a directory tree of a test.
STARTS = Path("/run/tfctl")


class Held(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def lock(folder: Path, patience: float, beat: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock that all starts on this host share.

    Raises Held if another process does not release it within ``patience`` seconds; ``beat`` is called
    meanwhile.
    """
    folder.mkdir(0o755, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience
    try:
        while not _flock(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > until:
                raise Held
            beat()
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def reservations(folder: Path) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each reservation, and whether its process is alive."""
    try:
        names = os.listdir(folder / "reserved")  # noqa: PTH208  quicker, and each request of a client asks
    except FileNotFoundError:
        names = []
    for path in (folder / "reserved" / name for name in sorted(names)):
        if path.name.startswith("."):
            continue  # a start is just writing it
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, ValueError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                alive = not _flock(descriptor, fcntl.LOCK_SH)
                if os.fstat(descriptor).st_nlink == 0:
                    continue  # kept or undone just now
                fields = json.loads(path.read_text("utf-8"))
            finally:
                os.close(descriptor)
            yield fields, alive


def _flock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
