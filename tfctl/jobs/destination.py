"""The directory that a pull writes to. Nothing that a host sends becomes a path outside of it.

Every path is opened component by component, relative to the directory, and never through a link. A file appears under
its name when it is complete. Until then it is in the directory `.tfctl-pull`, under a name that says which version of
the file it is: the next pull continues it. A directory that a pull has made is ignored by git, because the next start
would send it to the hosts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from tfctl.errors import Busy, TfctlError

_PARTS = ".tfctl-pull"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_destination(folder: Path) -> bool:
    """Return whether a pull has written to this directory."""
    with suppress(OSError):
        return (folder / _PARTS).is_dir()
    return False


class Destination:
    """A directory to write to, made if it is missing. A context manager that locks it. Raises Busy, TfctlError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _writing(path):
            if not path.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                (path / ".gitignore").write_text("*\n")
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._parts = self._enter(self._root, _PARTS)
            self._lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parts)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.__exit__(None, None, None)
            raise Busy(f"another pull writes to {path}", "wait for its end, or name another directory") from None

    def __enter__(self) -> Destination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._lock, self._parts, self._root):
            os.close(descriptor)

    def free(self) -> int:
        """Return the bytes that are free there."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def size(self, path: str) -> int:
        """Return the size of a file, or -1 if there is none."""
        found = self._state(path)
        return -1 if found is None else found.st_size

    def has(self, path: str, size: int, mtime_ns: int) -> bool:
        """Return whether the file is there with this size and time of modification."""
        found = self._state(path)
        return found is not None and (found.st_size, found.st_mtime_ns) == (size, mtime_ns)

    def part(self, path: str, size: int = 0, mtime_ns: int | None = None) -> Part:
        """Open a version of a file for writing where an earlier pull ended or, without a time, at its start."""
        return Part(self, path, size, mtime_ns)

    def write(self, path: str, text: str) -> None:
        """Write a small file, atomically."""
        with self.part(path) as part:
            part.write(text.encode())
            part.complete()

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link. Raises TfctlError if it leads out of the directory or something else is there."""
        if not leads_inside(path, target):
            raise TfctlError(f"{path} is a link to {target}, which is outside {self.path}; it was left out")
        with _writing(self.path / path), self._parent(path) as (parent, name):
            with suppress(FileNotFoundError):
                if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=parent)
            os.symlink(target, name, dir_fd=parent)

    def clean(self) -> None:
        """Remove what earlier pulls did not complete. Call it once everything is complete."""
        with os.scandir(self._parts) as entries:
            for entry in entries:
                if entry.name != "lock":
                    with suppress(OSError):
                        os.unlink(entry.name, dir_fd=self._parts)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the directory of a file, which is made if it is missing, and the file's name."""
        *folders, name = checked(path)
        descriptor = os.dup(self._root)
        try:
            for folder in folders:
                inner = self._enter(descriptor, folder)
                os.close(descriptor)
                descriptor = inner
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _state(self, path: str) -> os.stat_result | None:
        """Return the state of a regular file, or None if there is none."""
        *folders, name = checked(path)
        descriptor = os.dup(self._root)
        try:
            for folder in folders:
                inner = os.open(folder, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return found if stat.S_ISREG(found.st_mode) else None

    @staticmethod
    def _enter(parent: int, name: str) -> int:
        """Return a descriptor of a directory in another, which is made if it is missing."""
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)


class Part:
    """A file that is being written. ``offset``: how much of it is there. A context manager."""

    def __init__(self, owner: Destination, path: str, size: int, mtime_ns: int | None) -> None:
        checked(path)
        self._owner, self._path, self._mtime_ns = owner, path, mtime_ns
        self._name = hashlib.sha256(f"{path}\0{size}\0{mtime_ns}".encode()).hexdigest()[:32]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with _writing(owner.path / path):
            descriptor = os.open(self._name, flags, 0o666, dir_fd=owner._parts)
            self._file = os.fdopen(descriptor, "ab")
            self.offset = os.fstat(descriptor).st_size
            if mtime_ns is None or self.offset > size:
                self._file.truncate(0)
                self.offset = 0

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._file.close()

    def write(self, data: bytes) -> None:
        with _writing(self._owner.path / self._path):
            self._file.write(data)

    def complete(self) -> None:
        """Give the file its name and its time of modification."""
        with _writing(self._owner.path / self._path):
            self._file.flush()
            if self._mtime_ns is not None:
                os.utime(self._file.fileno(), ns=(self._mtime_ns, self._mtime_ns))
            self._file.close()
            with self._owner._parent(self._path) as (parent, name):
                os.replace(self._name, name, src_dir_fd=self._owner._parts, dst_dir_fd=parent)

    def discard(self) -> None:
        """Remove what has been written."""
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._owner._parts)


def checked(path: str) -> tuple[str, ...]:
    """Return the components of a path that a host has sent. Raise TfctlError unless it is relative and plain."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts) or parts[0] == _PARTS:
        raise TfctlError(f"a host has sent {path!r:.200}, which is not a path below the directory; it was left out")
    return tuple(parts)


def leads_inside(path: str, target: str) -> bool:
    """Return whether a link at ``path`` leads to a place below the directory.

    Only the beginning of a target may have ``..``: behind the name of another link it would lead elsewhere.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    outside = not target or target.startswith("/") or "\0" in target or ".." in parts[up:]
    return not outside and up < len(checked(path))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Report an error of the operating system with the path."""
    try:
        yield
    except OSError as error:
        raise TfctlError(
            f"cannot write {path}: {error.strerror}",
            "free some space, or move the file that is in the way, and try again",
        ) from None
