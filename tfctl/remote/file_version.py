"""Notice when a file has changed, so that what was read from it can be used again."""

from __future__ import annotations

import os
import time
from functools import lru_cache

Version = tuple[int, int, int]


def version(path: str) -> Version | None:
    """Return the inode, modification time (ns) and size of a file, or None if there is none.

    Each file is looked at only once a second: every system call may switch threads, and hundreds of hosts usually have
    the same files.
    """
    return _version(path, this_second())


def this_second() -> int:
    """Return a number that is the same for a second, for the key of a cache."""
    return int(time.monotonic())


@lru_cache(maxsize=256)
def _version(path: str, _second: int) -> Version | None:
    try:
        state = os.stat(path)  # noqa: PTH116 - a Path would take longer than the call
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size
