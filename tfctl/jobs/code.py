"""The job's code as one tarball: what git would list, else all but .git; the same files give the same bytes.

What jobs on this machine have put out beside it is no part of it.
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
#: Where `run --local` puts what jobs put out, beside the code more often than not.
LOCAL_OUTPUT = "tfctl-output"
_SKIPPED = (".git", "__pycache__", LOCAL_OUTPUT)


@dataclass(frozen=True)
class Code:
    """``digest`` is the SHA-256 of ``data``, a tar.gz of ``names``."""

    digest: str
    data: bytes
    names: tuple[str, ...]


def pack(folder: Path, limit_mb: int = LIMIT_MB) -> Code:
    """The folder's files, modes and links. Raises BadFile for more than ``limit_mb`` (unpacked), a link that leads out
    of the folder, what is neither file, directory nor link, and what cannot be read."""
    try:
        listed = tuple(sorted(names(folder, _refuse)))
        data = _tarball(folder, listed, limit_mb)
    except OSError as error:
        raise BadFile(f"{error.filename or folder}: cannot be read: {error.strerror or error}") from None
    return Code(hashlib.sha256(data).hexdigest(), data, listed)


def names(folder: Path, unread: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """What is packed of the folder, relative to it; ``unread`` is told of a directory that cannot be read."""
    listed = _git_names(folder)
    if listed is not None:
        # Listed and deleted meanwhile is no file; a submodule is a directory, and stays empty as in a fresh clone.
        yield from (name for name in listed if os.path.lexists(folder / name))
        return
    for parent, folders, files in os.walk(folder, onerror=unread):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (str(Path(parent, name).relative_to(folder)) for name in (*files, *links))


def _tarball(folder: Path, names: Iterable[str], limit_mb: int) -> bytes:
    tar = io.BytesIO()
    # No time of packing in it: equal files are packed once.
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
                    "name data and checkpoints in .gitignore, which git alone reads, or allow more with --code-limit",
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
    """None where there is no git, or the folder is in no work tree of it."""
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
