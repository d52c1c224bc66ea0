"""What local runs keep in the user's cache: directories that are made once, used by many runs, and pruned.

    ~/.cache/tfctl/run/stacks/tf2.15-<12 digits>      an environment, under the name that it has on hosts
    ~/.cache/tfctl/run/requirements/<12 digits>       the packages of a requirements file, under the name that hosts use
    ~/.cache/tfctl/run/horovod/<16 digits>            Horovod, built for one environment
    ~/.cache/tfctl/run/downloads                      the cache of uv

A directory is there once it is complete. Its marker has the time of the last run that used it. A lock file beside
it is held by a run alone while it makes the directory, and together with others while it uses it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import PreflightFailed
from tfctl.provision.control import cache

MARKER = ".tfctl-run"
KINDS = ("stacks", "requirements", "horovod")
DOWNLOADS = "downloads"
_AGAIN_S = 0.5


def folder() -> Path:
    """Return the directory in the user's cache that contains everything that local runs keep."""
    return cache() / "run"


class Store:
    """``say`` is called with messages. What has been taken from the store stays locked until it is released, or until
    this process ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._held = say, list[int]()

    def take(
        self,
        kind: str,
        name: str,
        doing: str,
        make: Callable[[Path], None],
        complete: Callable[[Path], bool] = lambda path: (path / MARKER).exists(),
    ) -> Path:
        """Return a directory of the store. If it is not complete, let ``make`` fill a new one, which becomes it.

        Only one process makes it. ``doing``: as in "another tfctl run is installing tf2.15". Raise PreflightFailed if
        the cache cannot be written.
        """
        path = folder() / kind / name
        lock = _lock_of(path, needed=not complete(path))
        if lock >= 0:
            self._held.append(lock)
        waits = False
        try:
            while not complete(path):
                if _is_free(lock):
                    _fill(path, make)
                else:
                    if not waits:
                        self._say(f"another tfctl run {doing}: waiting for it")
                    waits = True
                    time.sleep(_AGAIN_S)
        finally:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_SH)
        _touch(path)
        return path

    def release(self) -> None:
        """Allow others to delete what has been taken."""
        while self._held:
            os.close(self._held.pop())

    def use_downloads(self) -> Path:
        """Return the directory of the cache of uv, once a process that deletes it has done so."""
        path = folder() / DOWNLOADS
        lock = _lock_of(path, needed=True)
        fcntl.flock(lock, fcntl.LOCK_SH)
        self._held.append(lock)
        with writing(path):
            path.mkdir(exist_ok=True)
        _touch(path)
        return path


@dataclass(frozen=True)
class Cached:
    """A directory of the store. ``name``: relative to the store. ``mib``: what deleting it frees, if all that stand
    before it in the list are deleted too. ``used``: when it was last used, in epoch seconds."""

    path: Path
    name: str
    mib: int
    used: float


def found() -> list[Cached]:
    """Return all directories of the store, the environments first, and last the downloads."""
    counted: set[tuple[int, int]] = set()
    paths = [path for kind in KINDS for path in sorted((folder() / kind).glob("*")) if path.is_dir()]
    downloads = folder() / DOWNLOADS
    return [_described(path, counted) for path in [*paths, *([downloads] if downloads.is_dir() else [])]]


def delete(cached: Cached) -> bool:
    """Delete a directory unless a run uses it. Return whether it is gone. Raise PreflightFailed."""
    lock = _lock_of(cached.path, needed=True)
    try:
        if not _is_free(lock):
            return False
        with writing(cached.path):
            (cached.path / MARKER).unlink(missing_ok=True)  # it is not complete any more
            shutil.rmtree(cached.path)
    finally:
        os.close(lock)
    return True


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Report an error of the file system in the block as PreflightFailed."""
    try:
        yield
    except OSError as error:
        raise _reported(place, error) from None


def unwritable(place: Path, why: str, full: bool) -> PreflightFailed:
    """Return the error for a cache that cannot be written."""
    other = "set XDG_CACHE_HOME to another directory"
    if full:
        return PreflightFailed(
            f"{place}: no space left", f"delete what runs have installed: tfctl prune --cache --all; or {other}"
        )
    return PreflightFailed(f"{place}: cannot be written: {why}", other)


def _reported(place: Path, error: OSError) -> PreflightFailed:
    return unwritable(place, error.strerror or str(error), full=error.errno in (errno.ENOSPC, errno.EDQUOT))


def _fill(path: Path, make: Callable[[Path], None]) -> None:
    """Let ``make`` fill a new directory, which becomes ``path``; delete it if that fails."""
    part = path.with_name(f".{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # what a killed run has left
    try:
        with writing(path.parent):
            make(part)
            (part / MARKER).touch()
            shutil.rmtree(path, ignore_errors=True)  # a Python that is gone, or a deletion that was interrupted
            part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _lock_of(path: Path, needed: bool) -> int:
    """Return the descriptor of the lock file of a directory. -1 if there can be none and it is not ``needed``: a cache
    that is read-only is not pruned either."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not needed:
            return -1
        raise _reported(path.parent, error) from None


def _is_free(lock: int) -> bool:
    """Return whether this process has the lock alone now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _touch(path: Path) -> None:
    with suppress(OSError):  # a cache that is read-only
        (path / MARKER).touch()


def _described(path: Path, counted: set[tuple[int, int]]) -> Cached:
    """``counted``: the files that have been counted: downloads and environments share most of theirs."""
    marker = path / MARKER
    used = (marker if marker.exists() else path).stat().st_mtime
    return Cached(path, str(path.relative_to(folder())), _size(path, counted) // 2**20, used)


def _size(path: Path, counted: set[tuple[int, int]]) -> int:
    total = 0
    with suppress(OSError), os.scandir(path) as entries:  # a run may be writing there
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += _size(Path(entry.path), counted)
            else:
                info = entry.stat(follow_symlinks=False)
                if (info.st_dev, info.st_ino) not in counted:
                    counted.add((info.st_dev, info.st_ino))
                    total += info.st_blocks * 512
    return total
