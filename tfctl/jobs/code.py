"""Pack the job's code as one tarball. The same files always give the same bytes.

In a git work tree it holds tracked files and untracked ones that git does not ignore; elsewhere, everything but .git,
__pycache__ and the output of local runs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import BadFile

LIMIT_MB = 50
#: Where `run --local` puts a job's output, usually beside the code.
LOCAL_OUTPUT = "tfctl-output"
_SKIPPED = (".git", "__pycache__", LOCAL_OUTPUT)


@dataclass(frozen=True)
class Code:
    """``digest`` is the SHA-256 of ``data``, a tar.gz of ``names``."""

    digest: str
    data: bytes
    names: tuple[str, ...]


def pack(folder: Path, limit_mb: int = LIMIT_MB) -> Code:
    """Pack the folder's files, modes and links.

    Raise BadFile for more than ``limit_mb`` (unpacked), a link that leads out of the folder, anything that is not a
    file, directory or link, and anything that cannot be read.
    """
    try:
        listed = tuple(sorted(names(folder, _refuse)))
        data = _tarball(folder, listed, limit_mb)
    except OSError as error:
        raise BadFile(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from None
    return Code(hashlib.sha256(data).hexdigest(), data, listed)


def names(folder: Path, unread: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """Yield the paths to pack, relative to the folder. ``unread`` is called for a directory that cannot be read."""
    listed = _git_names(folder)
    if listed is not None:
        # Skip files deleted from the work tree. A submodule is a directory, and stays empty as in a fresh clone.
        yield from (name for name in listed if os.path.lexists(folder / name))
        return
    for parent, folders, files in os.walk(folder, onerror=unread):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (str(Path(parent, name).relative_to(folder)) for name in (*files, *links))


def _tarball(folder: Path, names: Iterable[str], limit_mb: int) -> bytes:
    tar = io.BytesIO()
    # No timestamps, so that equal files give equal bytes.
    with (
        gzip.GzipFile(fileobj=tar, mode="wb", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        total = 0
        for name in names:
            info = _entry(folder, name)
            total += info.size
            if total > limit_mb * 2**20:
                raise BadFile(
                    f"{folder}: its code is larger than {limit_mb} MB",
                    "list data and checkpoints in .gitignore (in a git work tree), or raise --code-limit",
                )
            if info.isreg():
                with (folder / name).open("rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)
    return tar.getvalue()


def _refuse(error: OSError) -> None:
    raise error


def _git_names(folder: Path) -> list[str] | None:
    """Return the names that git lists; None if git is missing or the folder is not in a work tree."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-coz", "--exclude-standard"], capture_output=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))


def _entry(folder: Path, name: str) -> tarfile.TarInfo:
    path = folder / name
    found = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = 0o755 if found.st_mode & 0o100 else 0o644
    if stat.S_ISLNK(found.st_mode):
        target = path.readlink()
        info.type, info.linkname = tarfile.SYMTYPE, str(target)
        inside = Path(os.path.normpath(Path(name).parent / target))
        if inside.is_absolute() or inside.parts[:1] == ("..",):
            raise BadFile(f"{path}: links to {info.linkname}, outside the code", "copy it there, or leave it out")
    elif stat.S_ISDIR(found.st_mode):
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    elif stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    else:
        raise BadFile(f"{path}: neither file nor directory nor link", "leave it out (.gitignore)")
    return info
