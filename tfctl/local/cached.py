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
_OTHER = "set XDG_CACHE_HOME to another directory"


def folder() -> Path:
    """Return the directory in the user's cache that contains everything that local runs keep. Raise PreflightFailed."""
    try:
        return cache() / "run"
    except RuntimeError:
        raise PreflightFailed("this user has no home directory", _OTHER) from None


def is_complete(path: Path) -> bool:
    """Return whether a directory of the store has been filled. One that cannot be looked at has not."""
    return os.access(path / MARKER, os.F_OK)


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
        complete: Callable[[Path], bool] = is_complete,
    ) -> Path:
        """Return a directory of the store. If it is not complete, let ``make`` fill a new one, which becomes it.

        Only one process makes it. ``doing``: as in "another tfctl run is installing tf2.15". Raise PreflightFailed if
        the cache cannot be written.
        """
        path = folder() / kind / name
        if os.pathsep in str(path):
            raise PreflightFailed(f"{folder()}: PATH can have no directory with a {os.pathsep} in its name", _OTHER)
        lock = _lock_of(path, needed=not complete(path))
        if lock >= 0:
            self._held.append(lock)
        waits = False
        while not (complete(path) and _share(lock, path) and complete(path)):
            if _is_free(lock, path):
                if not complete(path):
                    _fill(path, make)
            else:
                if not waits:
                    self._say(f"another tfctl run {doing}: waiting for it")
                waits = True
                time.sleep(_AGAIN_S)
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
        self._held.append(lock)
        _share(lock, path)
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
    """Return all directories of the store, with those that are not complete: the environments first, and last the
    downloads. What tfctl has not made is not among them, and neither are links."""
    counted: set[tuple[int, int]] = set()
    paths = [path for kind in KINDS for path in sorted((folder() / kind).glob("*"))]
    paths += [folder() / DOWNLOADS, _part_of(folder() / DOWNLOADS)]
    ours = [path for path in paths if path.is_dir() and not path.is_symlink()]
    return [_described(path, counted) for path in ours if is_complete(path) or _part_of(path) == path]


def delete(cached: Cached) -> bool:
    """Delete a directory unless a run uses it. Return whether it is gone. Raise PreflightFailed."""
    path, part = cached.path, _part_of(cached.path)
    lock = _lock_of(path, needed=True)
    try:
        if not _is_free(lock, path):
            return False
        with writing(path), suppress(FileNotFoundError):  # another process has deleted it
            if path != part:
                shutil.rmtree(part, ignore_errors=True)
                path.rename(part)  # if the deletion is interrupted, nobody takes the rest for complete
            shutil.rmtree(part)
    finally:
        os.close(lock)
    return True


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Report an error of the file system in the block as PreflightFailed."""
    try:
        yield
    except BlockingIOError:  # a lock that another process has
        raise
    except OSError as error:
        raise _reported(place, error) from None


def unwritable(place: Path, why: str, full: bool) -> PreflightFailed:
    """Return the error for a cache that cannot be written."""
    if full:
        return PreflightFailed(
            f"{place}: no space left", f"delete what runs have installed: tfctl prune --cache --all; or {_OTHER}"
        )
    return PreflightFailed(f"{place}: cannot be written: {why}", _OTHER)


def _reported(place: Path, error: OSError) -> PreflightFailed:
    return unwritable(place, error.strerror or str(error), full=error.errno in (errno.ENOSPC, errno.EDQUOT))


def _fill(path: Path, make: Callable[[Path], None]) -> None:
    """Let ``make`` fill a new directory, which becomes ``path``; delete it if that fails."""
    part = _part_of(path)
    shutil.rmtree(part, ignore_errors=True)  # what a killed run has left
    try:
        with writing(path.parent):
            make(part)
            (part / MARKER).touch()
            shutil.rmtree(path, ignore_errors=True)  # a Python that is gone, or a deletion that was interrupted
            part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _part_of(path: Path) -> Path:
    """Return where a directory is while it is being made or deleted; ``path`` itself if that is such a place."""
    return path.with_name(f".{_name_of(path)}.part")


def _name_of(path: Path) -> str:
    return path.name.removeprefix(".").removesuffix(".part")


def _lock_of(path: Path, needed: bool) -> int:
    """Return the descriptor of the lock file of a directory. -1 if there can be none and it is not ``needed``: a cache
    that is read-only is not pruned either."""
    lock = path.with_name(f".{_name_of(path)}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not needed:
            return -1
        raise _reported(path.parent, error) from None


def _is_free(lock: int, path: Path) -> bool:
    """Return whether this process has the lock alone now. Raise PreflightFailed if the file system has no locks."""
    try:
        with writing(path.parent):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _share(lock: int, path: Path) -> bool:
    """Have the lock together with others, once a process that has it alone is ready. Return True, also if
    there is no lock."""
    with writing(path.parent):
        if lock >= 0:
            fcntl.flock(lock, fcntl.LOCK_SH)
    return True


def _touch(path: Path) -> None:
    with suppress(OSError):  # a cache that is read-only
        (path / MARKER).touch()


def _described(path: Path, counted: set[tuple[int, int]]) -> Cached:
    """``counted``: the files that have been counted: downloads and environments share most of theirs."""
    marker = path / MARKER
    used = 0.0
    for each in (path, marker):
        with suppress(OSError):  # another process deletes it
            used = each.stat().st_mtime
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
