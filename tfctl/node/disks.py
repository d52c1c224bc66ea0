"""Free space where jobs are kept and where they write, and how much of it the code of jobs takes."""

from __future__ import annotations

import contextlib
import os
import posixpath
import time
from collections.abc import Iterable
from pathlib import Path

from . import jobstore, names
from .system import System
from .wire import Disk

_SETTINGS = "/etc/tfctl/node.json"
_ROOTS = ["/srv/tfctl"]
#: How long (s) to add up sizes of files.
COUNT_S = 1.0


def output_roots(system: System) -> list[str]:
    """Return the directories in which the inventory allows outputs."""
    settings = jobstore.read_json(system.at(_SETTINGS)) or {}
    return [posixpath.normpath(str(root)) for root in settings.get("output_roots") or _ROOTS]


def disks(system: System) -> tuple[Disk, ...]:
    """Return the directory of the jobs, then each output directory that exists."""
    found = (disk(system, path) for path in dict.fromkeys((names.JOBS, *output_roots(system))))
    return tuple(each for each in found if each is not None)


def disk(system: System, path: str) -> Disk | None:
    """Return the file system of a directory, or of the nearest existing one above a directory of tfctl itself."""
    for place in (path, posixpath.dirname(path)) if path.startswith(names.STATE_DIR) else (path,):
        with contextlib.suppress(OSError):
            info, device = os.statvfs(system.at(place)), system.at(place).stat().st_dev
            return Disk(path, device, info.f_bavail * info.f_frsize // 2**20, info.f_blocks * info.f_frsize // 2**20)
    return None


def stored_mib(system: System) -> int | None:
    """Return the size (MiB) of all stored code and of what tasks have written beside it.

    None if counting takes longer than a second.
    """
    return size_mib((system.at(names.CODE_STORE), system.at(names.JOBS)), time.monotonic() + COUNT_S)


def size_mib(directories: Iterable[Path], until: float) -> int | None:
    """Return the size (MiB) of all files in these directories, or None if counting goes on at ``until`` (monotonic)."""
    total, waiting = 0, [str(top) for top in directories]
    while waiting:  # os.walk is recursive before Python 3.12, and a task may make a deep tree
        if time.monotonic() > until:
            return None
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total // 2**20
