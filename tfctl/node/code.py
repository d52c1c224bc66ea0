"""The code of jobs: receive it, unpack it as the jobs' user into a store that root owns, copy it for each attempt.

The store is a cache. A process that needs an entry holds a shared lock on its directory; a locked entry is not removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import names, wire
from .asuser import as_user
from .exits import Exit
from .session import NodeSession, RequestRefused
from .system import System, host, run

if TYPE_CHECKING:
    import tarfile

_REMEDY = "pack the code again"
#: Begins the names of directories that are being filled or deleted.
_INCOMPLETE = ".new-"


def hold(system: System, digest: str) -> int | None:
    """Lock the stored code and return the descriptor, or None if the code is not here."""
    path = system.at(names.stored_code(digest))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if path.is_dir():
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


class Incoming:
    """A tarball being received, in a directory that only root may enter. `close` removes it."""

    def __init__(self, system: System, digest: str) -> None:
        # Slow to import, and most starts send no code. `unpack` needs them, but runs as a user who may not read them.
        import gzip  # noqa: F401
        import tarfile  # noqa: F401
        import tempfile

        self._system, self._digest = system, digest
        store = system.at(names.CODE_STORE)
        store.mkdir(0o755, parents=True, exist_ok=True)
        _remove_old(store)
        self.path = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=store))
        self._fault: RequestRefused | None = None
        self._held: int | None = None

    def close(self) -> None:
        """Remove the tarball and release the stored code. Safe to repeat."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def receive(self, session: NodeSession, size: int) -> None:
        """Read all ``size`` bytes, even after an error, which `store` raises later. Raises Gone."""
        import hashlib

        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            with self._noting():
                require_space(self._system, 4 * size)
                file = stack.enter_context((self.path / "tar.gz").open("w+b"))

            def write(piece: bytes) -> None:
                digest.update(piece)
                with self._noting():
                    if not self._fault:
                        file.write(piece)

            session.payload(size, write)
        if not self._fault and digest.hexdigest() != self._digest:
            self._fault = RequestRefused(
                Exit.FAILED, f"the code that reached {host()} does not match its announced digest", _REMEDY
            )

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except RequestRefused as refused:
            self._fault = refused
        except OSError as error:
            self._fault = RequestRefused(
                Exit.PREFLIGHT, f"cannot keep the code on {host()}: {error.strerror}", wire.MAKE_ROOM
            )

    def store(self) -> bool:
        """Unpack the code, move it into the store and hold it until `close`. Return whether it is new there.

        Raises RequestRefused, OSError.
        """
        if self._fault:
            raise self._fault
        tree = self.path / "tree"
        tree.mkdir(0o700)
        user = self._system.user()
        os.chown(tree, user.pw_uid, user.pw_gid)
        with (self.path / "tar.gz").open("rb") as file:
            as_user(self._system, lambda: unpack(file), str(tree), patience=300.0, readable_fd=file.fileno())
        _give_to_root(tree, user.pw_gid)
        self._held = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._held, fcntl.LOCK_SH)  # before `prune` can see it
        try:
            tree.rename(self._system.at(names.stored_code(self._digest)))
        except OSError:
            os.close(self._held)
            self._held = hold(self._system, self._digest)
            if self._held is None:
                raise
            return False  # another start was faster
        return True


def unpack(file: IO[bytes]) -> None:
    """Unpack a tarball of files, directories and links into the current directory. Raises RequestRefused.

    No member and no link may lead out of the directory.
    """
    import gzip
    import tarfile
    import zlib

    links: set[Path] = set()
    try:
        with gzip.GzipFile(fileobj=file) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            for member in tar:
                _put(tar, member, links)
        _sync(".")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise RequestRefused(Exit.BAD_FILE, f"the code cannot be unpacked on {host()}: {error}", _REMEDY) from None


def copy(system: System, digest: str, target: Path) -> None:
    """Create ``target``, owned by the jobs' user, as a copy of the stored code or, without a digest, empty.

    Only that user, its group and root may enter it. Root makes the copy, in a directory that only root may enter: a
    program that ran as the jobs' user would have no sandbox, and tasks could get out of theirs through its files in
    /proc. Raises RequestRefused, OSError.
    """
    user = system.user()
    target.mkdir(0o700)
    if digest:
        source = f"{system.at(names.stored_code(digest))}/."
        done = run(["cp", "-a", "--reflink=auto", source, str(target)], 300.0)
        if done.status != 0:
            last = done.errors.rpartition("\n")[2][-300:]
            raise RequestRefused(Exit.PREFLIGHT, f"the code cannot be copied on {host()}: {last}", wire.MAKE_ROOM)
        _give_to_user(target, user.pw_uid, user.pw_gid)
    os.chown(target, user.pw_uid, user.pw_gid)
    target.chmod(0o750)


def discard(system: System, digest: str) -> None:
    """Remove stored code unless a process holds its lock. Never raises."""
    aside = set_aside(system, digest, _INCOMPLETE)
    if aside:
        shutil.rmtree(aside, ignore_errors=True)


def set_aside(system: System, digest: str, prefix: str) -> Path | None:
    """Move stored code to a directory of the store whose name begins with ``prefix``, and return it.

    Return None if a process holds its lock, or if it cannot be moved.
    """
    path = system.at(names.stored_code(digest))
    aside = path.with_name(f"{prefix}{digest}.{os.getpid()}")
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return path.rename(aside)
        finally:
            os.close(descriptor)
    return None


def require_space(system: System, size: int = 0) -> None:
    """Raise RequestRefused unless there is room for ``size`` bytes and SPARE, for attempts and for stored code."""
    for path in (names.JOBS, names.CODE_STORE):
        place = path if system.at(path).is_dir() else names.STATE_DIR
        found = os.statvfs(system.at(place))
        free = found.f_bavail * found.f_frsize
        if free < size + wire.SPARE:
            needed = (size + wire.SPARE) // 1000**2
            raise RequestRefused(
                Exit.PREFLIGHT,
                f"{place} on {host()} has {free // 1000**2} MB free; {needed} MB are needed",
                wire.MAKE_ROOM,
            )


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, links: set[Path]) -> None:
    path = Path(os.path.normpath(member.name))
    if path.is_absolute() or ".." in path.parts:
        raise RequestRefused(Exit.BAD_FILE, f"the code has a member outside its directory: {member.name}", _REMEDY)
    if not links.isdisjoint((path, *path.parents)):
        raise RequestRefused(Exit.BAD_FILE, f"the code has {member.name} behind a link", _REMEDY)
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
    elif member.issym():
        inside = os.path.normpath(path.parent / member.linkname)
        if member.linkname.startswith("/") or inside.split("/")[0] == "..":
            raise _leads_out(member.name)
        path.symlink_to(member.linkname)
        links.add(path)
    elif member.isreg():
        source = tar.extractfile(member)
        with path.open("xb") as target:
            if source:
                shutil.copyfileobj(source, target, 1 << 20)
            os.fchmod(target.fileno(), _mode(member.mode))
            target.flush()
            os.posix_fadvise(target.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # begins to write it to the disk
        os.utime(path, (member.mtime, member.mtime))
    else:
        raise RequestRefused(
            Exit.BAD_FILE, f"the code has {member.name}, which is neither file nor directory nor link", _REMEDY
        )


def _sync(tree: str) -> None:
    """Wait until all files are on the disk: after a power loss, the store would have empty files in their place.

    They are waited for once all are being written. To wait for each in turn would take a disk some 10 ms per file.
    """
    for place, _, files in os.walk(tree):
        for path in (Path(place, name) for name in files):
            if not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())


def _give_to_root(tree: Path, group: int) -> None:
    """Make root the owner and the group the only readers, before anyone else can reach it. Raises RequestRefused for a
    link that leads out of the tree."""
    inside = os.path.realpath(tree)
    for place, folders, files in os.walk(tree):
        for name in [".", *folders, *files]:
            path = Path(place, name)
            found = path.lstat()
            os.chown(path, os.geteuid(), group, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                if os.path.commonpath([inside, os.path.realpath(path)]) != inside:
                    raise _leads_out(os.path.relpath(path, tree))
            else:
                path.chmod(0o750 if stat.S_ISDIR(found.st_mode) else _mode(found.st_mode))


def _give_to_user(tree: Path, user: int, group: int) -> None:
    """Make the jobs' user the owner of everything in the tree. Each directory is given away after what is in it, so
    that root does nothing in a directory that this user can write to."""
    for _, folders, files, descriptor in os.fwalk(tree, topdown=False):
        for name in [*folders, *files]:
            os.chown(name, user, group, dir_fd=descriptor, follow_symlinks=False)


def _mode(packed: int) -> int:
    """Return the mode of a file: the owner's rights as they were packed, for the group the same without writing.

    The owner can always read it: each attempt's copy is made through the group's rights.
    """
    owner = packed & 0o700 | 0o400
    return owner | (owner & 0o500) >> 3


def _remove_old(store: Path) -> None:
    """Remove directories that killed processes left more than a day ago."""
    for path in store.glob(f"{_INCOMPLETE}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - 86400:
                shutil.rmtree(path, ignore_errors=True)


def _leads_out(name: str) -> RequestRefused:
    return RequestRefused(
        Exit.BAD_FILE, f"the code has a link that leads out of its directory: {name}", "make it a file, or leave it out"
    )
