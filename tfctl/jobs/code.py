"""Pack the job's code as one tarball. The same files always give the same bytes.

In a git work tree it holds tracked files and untracked ones that git does not ignore, also those of the repositories
inside it, which are submodules and clones. Elsewhere, it holds everything but .git, __pycache__, the output of local
runs and the results of `tfctl pull`. If git cannot list the files of a work tree, nothing is packed. Files that look
like secrets are left out unless git tracks them or the job file lists them. The inventory, which may contain passwords
of root, is left out unless the job file lists it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shlex
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from tfctl.errors import BadFile
from tfctl.jobs.destination import is_destination, is_of_pull
from tfctl.jobs.secrets import has_secret, has_secret_name
from tfctl.remote import inventory_sources

if TYPE_CHECKING:
    from tfctl.model.job import Layout

LIMIT_MB = 50
#: Where `tfctl run` puts a job's output, usually beside the code.
LOCAL_OUTPUT = "tfctl-output"
_SKIPPED = (".git", "__pycache__", LOCAL_OUTPUT)
#: Directories of variables that Ansible reads beside an inventory.
_INVENTORY_FOLDERS = ("group_vars", "host_vars")
#: How long (s) git may take to list the files.
_GIT_S = 60.0


@dataclass(frozen=True)
class CodeListing:
    """``names`` are the files to pack, sorted and relative to the folder. ``left_out`` are those that look like
    secrets, apart from the job's own file of variables, ``own``, and its inventory, ``inventory``. ``repositories``:
    those inside the folder whose files are not packed, with the reason. ``by_git``: whether git has listed the files.
    """

    folder: Path
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    inventory: tuple[str, ...] = ()
    repositories: Mapping[str, str] = field(default_factory=dict)
    by_git: bool = False

    @cached_property
    def all_names(self) -> frozenset[str]:
        """The names, to look for one."""
        return frozenset(self.names)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the user about what is left out, if anything is."""
        found = [f"not sent to the hosts: {name}, because {why}" for name, why in sorted(self.repositories.items())]
        if self.left_out:
            found.append(
                f"not sent to the hosts, because they may hold secrets and git does not track them: "
                f"{', '.join(self.left_out)}; a job that needs them lists them in code: {{include: […]}} of the job "
                "file"
            )
        return tuple(found)

    def reason(self, name: str) -> tuple[str, str]:
        """Return why a file or directory that is in the folder is not packed, and what to do about it."""
        include = f"list it in the job file, code: {{include: [{name}]}}"
        inside = next((other for other in self.repositories if f"{name}/".startswith(f"{other}/")), None)
        if inside is not None:
            return f"{inside} is not sent, because {self.repositories[inside]}", "or copy the file to another directory"
        if name in self.left_out:
            return "it looks like a secret, and git does not track it", f"{include}, or let git track it"
        if name in self.own:
            return "it is the `env_file` of the job", include
        if name in self.inventory:
            return "it belongs to the inventory, which may contain passwords", include
        if self.by_git:
            return "git ignores it", f"{include}, or let git track it"
        return f"tfctl sends no {', '.join(_SKIPPED)} and no results of `tfctl pull`", f"{include}, or move it"


@dataclass(frozen=True)
class CodeArchive:
    """``digest`` is the SHA-256 of ``data``, a tar.gz of ``names``."""

    digest: str
    data: bytes
    names: tuple[str, ...]


def of_job(layout: Layout, limit_mb: int = LIMIT_MB) -> CodeListing:
    """List the files to pack for a job (`select`)."""
    return select(layout.code, layout.include, layout.env_file, Path(layout.inventory), limit_mb)


def pack(folder: Path, limit_mb: int = LIMIT_MB, include: Sequence[str] = ()) -> CodeArchive:
    """Select the folder's files and pack them (`select`, `archive`)."""
    return archive(select(folder, include, limit_mb=limit_mb), limit_mb)


def select(
    folder: Path,
    include: Sequence[str] = (),
    env_file: Path | None = None,
    inventory: Path | None = None,
    limit_mb: int = LIMIT_MB,
) -> CodeListing:
    """List the files to pack. ``include``: files that are packed even if git ignores them or they look like secrets.

    ``env_file``, whose variables the tasks get anyway, counts as a secret. ``inventory``, which may be a directory, or
    several, is not packed, even if git tracks it, nor are group_vars and host_vars beside it. If the files have more
    than ``limit_mb`` together, so that `archive` refuses them, they are not searched for secrets. Raise BadFile for a
    directory that cannot be read, for an included file that does not exist, and if git cannot list the files of its
    work tree.
    """
    for name in include:
        if not (folder / name).is_file():
            raise BadFile(f"code/include: {folder / name} is not a file", "correct the list: paths relative to `code`")
    try:
        listed = _listed(folder)
        found = listed.names
        sources = inventory_sources.paths(inventory) if inventory else []
        around = [path for each in sources for path in (each, *(each.parent / name for name in _INVENTORY_FOLDERS))]
        of_inventory = _within(found, folder, around)
        found -= of_inventory
        own = _within(found, folder, [env_file] if env_file else [])
        unsent = found.difference(include, listed.tracked)
        left_out = {name for name in unsent if name in own or (_is_file(folder, name) and has_secret_name(name))}
        sizes = ((folder / name).stat().st_size for name in found - left_out if _is_file(folder, name))
        if sum(sizes) <= limit_mb * 2**20:
            left_out |= {name for name in unsent - left_out if _is_file(folder, name) and has_secret(folder / name)}
    except OSError as error:
        raise _unreadable(folder, error) from None
    return CodeListing(
        folder,
        tuple(sorted((found - left_out).union(include))),
        tuple(sorted(left_out - own)),
        tuple(sorted(own)),
        tuple(sorted(of_inventory)),
        listed.repositories,
        listed.by_git,
    )


def archive(listing: CodeListing, limit_mb: int = LIMIT_MB) -> CodeArchive:
    """Pack the listed files with their owner's rights, and links.

    Raise BadFile for more than ``limit_mb`` (unpacked), a link that leads out of the folder, anything that is not a
    file, directory or link, and anything that cannot be read.
    """
    try:
        data = _tarball(listing.folder, listing.names, limit_mb)
    except OSError as error:
        raise _unreadable(listing.folder, error) from None
    return CodeArchive(hashlib.sha256(data).hexdigest(), data, listing.names)


@dataclass
class _Listed:
    """``tracked``: the names that git tracks. The others are those of CodeListing."""

    names: set[str] = field(default_factory=set)
    tracked: set[str] = field(default_factory=set)
    repositories: dict[str, str] = field(default_factory=dict)
    by_git: bool = True

    def add(self, other: _Listed, folder: str) -> None:
        """Add what has been found in a directory."""
        self.names |= {f"{folder}/{name}" for name in other.names}
        self.tracked |= {f"{folder}/{name}" for name in other.tracked}
        self.repositories |= {f"{folder}/{name}": why for name, why in other.repositories.items()}


def _listed(folder: Path) -> _Listed:
    """List the files of a folder. Raise OSError for a directory that cannot be read, and BadFile if git cannot list the
    files of its work tree."""
    found = _git_names(folder, "-coz", "--exclude-standard")
    if found is None:
        return _Listed(set(_walk(folder)), by_git=False)
    listed = _Listed(tracked=set(_git_names(folder, "-cz") or ()) if found else set())
    for name in found:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            _add_repository(listed, name.rstrip("/"), path)
        elif os.path.lexists(path):  # it may have been deleted from the work tree
            listed.names.add(name)
    return listed


def _add_repository(listed: _Listed, name: str, path: Path) -> None:
    """Add the files of a directory that git lists as one entry: a submodule, or a clone that it does not track."""
    git = path / ".git"
    if not os.path.lexists(git):
        listed.add(_Listed(set(_walk(path))), name)
        if not any(path.iterdir()):
            listed.names.add(name)
            listed.repositories[name] = (
                f"this submodule is not checked out; run: git -C {shlex.quote(str(path.parent))} submodule update "
                f"--init {shlex.quote(path.name)}"
            )
    elif git.is_file() and (_git_directory(git) / "commondir").exists():
        listed.repositories[name] = "it is another work tree of a repository (git worktree)"
    else:
        listed.add(_listed(path), name)


def _git_directory(link: Path) -> Path:
    """Return the directory that a file `.git` names (gitrepository-layout(5))."""
    return link.parent / link.read_text(errors="replace").partition("gitdir:")[2].strip()


def _walk(folder: Path) -> Iterator[str]:
    """Yield the files of a folder that git does not list."""
    for parent, folders, files in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if name not in _SKIPPED and not is_destination(Path(parent, name))]
        if parent == str(folder) and is_destination(folder):
            folders[:], files = ([name for name in found if not is_of_pull(name)] for found in (folders, files))
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (str(Path(parent, name).relative_to(folder)) for name in (*files, *links))


def _within(names: Iterable[str], folder: Path, paths: Iterable[Path]) -> set[str]:
    """Return the names that are one of the paths or below one. A path may be a link in the folder, or its target."""
    places = [
        os.path.relpath(place, start)
        for path in paths
        for place, start in ((path.absolute(), folder.absolute()), (path.resolve(), folder.resolve()))
    ]
    return {name for name in names if any(name == place or name.startswith(f"{place}/") for place in places)}


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


def _is_file(folder: Path, name: str) -> bool:
    return not (folder / name).is_symlink() and (folder / name).is_file()


def _unreadable(folder: Path, error: OSError) -> BadFile:
    return BadFile(f"{error.filename or folder}: cannot be read: {error.strerror or error}")


def _git_names(folder: Path, *options: str, limit: float = _GIT_S) -> list[str] | None:
    """Return the names that `git ls-files` lists, or None if the folder is in no work tree.

    Raise BadFile if git cannot list them within ``limit`` seconds: nothing else knows which files it ignores.
    """
    words = ["git", "-C", str(folder), "ls-files", *options]
    remedy = f"try: git -C {shlex.quote(str(folder))} status"
    try:
        done = subprocess.run(words, capture_output=True, timeout=limit, env={**os.environ, "LC_ALL": "C"})
        if done.returncode == 0:
            return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))
        reason, advice = _complaint(done.stderr)
        reason, remedy = reason or f"it ended with status {done.returncode}", advice or remedy
    except FileNotFoundError:
        reason, remedy = "it is not installed", "install git, or copy the code out of the work tree"
    except OSError as error:
        reason = f"it cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        reason = f"it ran longer than {limit:g} s and was killed"
    found = _repository(folder)
    if found is None:
        return None
    raise BadFile(f"{folder} is in a git work tree ({found}), but git cannot list its files: {reason}", remedy)


def _complaint(stderr: bytes) -> tuple[str, str]:
    """Return why git has failed, and its advice. The advice is "" if the lines after the reason name no command."""
    text = stderr.decode(errors="replace")
    reason, *lines = text.rpartition("fatal: ")[2].splitlines() or [""]
    advice = " ".join(" ".join(lines).split())
    return reason, advice if " git " in advice else ""


def _repository(folder: Path) -> Path | None:
    """Return the nearest `.git` of the folder or above it, where git looks for one: on the same file system."""
    above = [folder.resolve(), *folder.resolve().parents]
    if "GIT_DISCOVERY_ACROSS_FILESYSTEM" not in os.environ:
        device = above[0].stat().st_dev
        above = [*takewhile(lambda parent: parent.stat().st_dev == device, above)]
    return next((parent / ".git" for parent in above if os.path.lexists(parent / ".git")), None)


def _entry(folder: Path, name: str) -> tarfile.TarInfo:
    path = folder / name
    found = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode) & 0o700
    if stat.S_ISLNK(found.st_mode):
        target = path.readlink()
        info.type, info.linkname = tarfile.SYMTYPE, str(target)
        inside = Path(os.path.normpath(Path(name).parent / target))
        if inside.is_absolute() or inside.parts[:1] == ("..",):
            raise BadFile(f"{path}: links to {info.linkname}, outside the code", "copy it there, or leave it out")
    elif stat.S_ISDIR(found.st_mode):
        info.type, info.mode = tarfile.DIRTYPE, 0o700
    elif stat.S_ISREG(found.st_mode):
        info.size = found.st_size
    else:
        raise BadFile(f"{path}: neither file nor directory nor link", "leave it out (.gitignore)")
    return info
