"""The directory that a pull writes to. Nothing that a host sends becomes a path outside of it.

Every path is opened component by component, relative to the directory, and never through a link. A file appears under
its name when it is complete. Until then it is in the directory `.tfctl-pull`, under a name that says which version of
the file it is: the next pull continues it. What a pull has written is ignored by git, because the next start would send
it to the hosts.

The file `written` in `.tfctl-pull` lists what pulls have written: the job, the runs to which each name in the directory
belongs, and each file. Nothing else is ever replaced.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from tfctl.errors import Busy, TfctlError, UsageError
from tfctl.node import names

_PARTS = ".tfctl-pull"
_LOCK, _WRITTEN = "lock", "written"
#: The names that a pull makes in the directory: plain, or with the run if the plain name belongs to other runs.
_NAMES = re.compile(r"(attempt-[0-9]+|output)(-[0-9a-f]{8})?|(events|status)(-[0-9a-f]{8})?\.json")
#: What git ignores in a directory that was there before the first pull.
_IGNORED = """\
/.tfctl-pull/
/attempt-*/
/output/
/output-????????/
/events.json
/events-????????.json
/status.json
/status-????????.json
"""
_NOT_OURS = "move what is there, or name another directory"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_destination(folder: Path) -> bool:
    """Return whether a pull has written to this directory."""
    with suppress(OSError):
        return (folder / _PARTS).is_dir()
    return False


def is_of_pull(name: str) -> bool:
    """Return whether a name in a directory to which a pull has written is that pull's."""
    return name == _PARTS or _NAMES.fullmatch(name) is not None


class Destination:
    """A directory to write what a job has to, made if it is missing. A context manager that locks it.

    Raises Busy while another pull writes to it, UsageError if a name there that this one may need belongs to somebody
    else, and TfctlError.
    """

    def __init__(self, path: Path, job: str) -> None:
        self.path = path
        self._job = job
        self._runs: dict[str, set[str]] = {}
        self._files: set[str] = set()
        with _writing(path):
            ignored = _IGNORED if path.is_dir() else "*\n"
            path.mkdir(parents=True, exist_ok=True)
            had = [found.name for found in path.iterdir()]
            if _PARTS not in had:
                self._require_own(had)
                with suppress(FileExistsError), (path / ".gitignore").open("x") as file:
                    file.write(ignored)
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._parts = self._enter(self._root, _PARTS)
            self._lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._parts)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._written = os.open(_WRITTEN, flags, 0o666, dir_fd=self._parts)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Busy(f"another pull writes to {path}", "wait for its end, or name another directory") from None
            self._read_written()
            self._require_own(found.name for found in path.iterdir())
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Destination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._lock, self._written, self._parts, self._root):
            os.close(descriptor)

    def named(self, name: str, run: str, runs: Collection[str] = ()) -> str:
        """Return the name in the directory for what is of ``run``, and from now on of ``runs``, which write to the same
        place one after the other: ``name``, or that with the run if other runs have taken it. Raises TfctlError.
        """
        found = {run, *runs}
        if not all(names.RUN.fullmatch(one) for one in found):
            raise TfctlError(f"a host has sent a run that is not one: {min(found)!r:.200}", _NOT_OURS)
        stem, dot, suffix = name.partition(".")
        ours = re.compile(rf"{re.escape(stem)}(-[0-9a-f]{{8}})?{re.escape(dot + suffix)}")
        known = [each for each, owners in self._runs.items() if ours.fullmatch(each) and not owners.isdisjoint(found)]
        chosen = known[0] if known else f"{stem}-{run}{dot}{suffix}" if name in self._runs else name
        for one in sorted(found - self._runs.setdefault(chosen, set())):
            self._note({"name": chosen, "run": one})
        return chosen

    def free(self) -> int:
        """Return the bytes that are free there."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    def size(self, path: str) -> int:
        """Return the size of a file, or -1 if there is none."""
        found = self._state(path)
        return -1 if found is None else found.st_size

    def has(self, path: str, size: int, mtime_ns: int) -> bool:
        """Return whether the file is there with this size and time of modification.

        Raise TfctlError if another one is there that no pull has written.
        """
        found = self._state(path)
        if found is None or (found.st_size, found.st_mtime_ns) == (size, mtime_ns):
            return found is not None
        self._require_written(path)
        return False

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
                    if os.readlink(name, dir_fd=parent) == target:
                        return
                    self._require_written(path)
                    os.unlink(name, dir_fd=parent)
            os.symlink(target, name, dir_fd=parent)
            self._note_file(path)

    def clean(self) -> None:
        """Remove what earlier pulls did not complete. Call it once everything is complete."""
        with os.scandir(self._parts) as entries:
            for entry in entries:
                if entry.name not in (_LOCK, _WRITTEN):
                    with suppress(OSError):
                        os.unlink(entry.name, dir_fd=self._parts)

    def prepare(self, path: str, parent: int, name: str) -> None:
        """Note that a file is about to be written. Raise TfctlError if one is there that no pull has written."""
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._require_written(path)
        self._note_file(path)

    def _require_own(self, found: Iterable[str]) -> None:
        """Raise UsageError if one of these names in the directory may be needed, and no pull of the job has made it."""
        foreign = sorted(name for name in found if _NAMES.fullmatch(name) and name not in self._runs)
        if foreign:
            what = f"{self.path / foreign[0]} was not written by `tfctl pull {self._job}`, which would write there"
            raise UsageError(what, f"name a new directory: tfctl pull {self._job} ./DIR")

    def _require_written(self, path: str) -> None:
        if path not in self._files:
            raise TfctlError(f"{self.path / path} was not written by `tfctl pull`; it was left as it is", _NOT_OURS)

    def _read_written(self) -> None:
        """Read what pulls have written. A line that was not completed does not count."""
        with os.fdopen(os.dup(self._written), "rb") as file:
            data = file.read()
        if data and not data.endswith(b"\n"):
            os.write(self._written, b"\n")
        for line in data.splitlines():
            with suppress(ValueError, TypeError, KeyError):
                entry = json.loads(line)
                if "file" in entry:
                    self._files.add(entry["file"])
                elif "name" in entry:
                    self._runs.setdefault(entry["name"], set()).add(entry["run"])
                elif entry["job"] != self._job:
                    what = f"{self.path} has the results of job {entry['job']}"
                    raise UsageError(what, f"name a new directory: tfctl pull {self._job} ./DIR")
        if not data:
            self._note({"job": self._job})

    def _note(self, entry: Mapping[str, str]) -> None:
        """Note what is about to be written. Raises TfctlError."""
        if "name" in entry:
            self._runs.setdefault(entry["name"], set()).add(entry["run"])
        with _writing(self.path):
            os.write(self._written, json.dumps(entry).encode() + b"\n")

    def _note_file(self, path: str) -> None:
        if path not in self._files:
            self._files.add(path)
            self._note({"file": path})

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
                self._owner.prepare(self._path, parent, name)
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
