"""Pack a CPython tree of this machine so that it runs from another directory on another host.

A tree is the --prefix of a CPython build, with bin/python3.N in it, such as a version directory of pyenv. Only old
versions are sent in this way: uv gets all others.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from tfctl.errors import BadFile
from tfctl.provision import elf

#: The versions of Python that a stack accepts and uv does not have.
BY_HAND = ("3.6", "3.7")
#: Increase this if the same tree is packed differently, so that hosts get it again.
_FORMAT = 1
#: Parts of a tree that no environment needs, such as tests and installed packages.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "idlelib", "turtledemo", "tkinter"}
#: Modules that environments and TensorFlow require. A host may lack the libraries of any other module.
_ESSENTIAL = re.compile(r"lib-dynload/(_ssl|_hashlib|_ctypes|_struct|_bz2|_lzma|zlib|math)\.|^bin/|^lib/libpython")
_LIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"}


@dataclass(frozen=True)
class PythonTree:
    """A packed tree. ``name``: its directory on a host, `cpython-3.7.16-` and twelve digits of the archive's hash.

    ``glibc``: the C library version required; ``needs``: other system libraries required; ``megabytes``: its size.
    """

    name: str
    python: str
    version: str
    machine: str
    glibc: tuple[int, int]
    needs: tuple[str, ...]
    megabytes: int
    archive: str
    sha256: str


@dataclass(frozen=True)
class _Member:
    info: tarfile.TarInfo
    data: bytes = b""


def pack(path: Path, cache: Path) -> PythonTree:
    """Pack the tree at ``path`` into an archive below ``cache``, and reuse it until a file of the tree changes.

    Raises BadFile if ``path`` is not a tree or the tree cannot be moved.
    """
    path = path.expanduser()
    if not path.is_absolute():
        raise BadFile(f"{path}: a Python tree needs an absolute path", "such as ~/.pyenv/versions/3.7.16")
    version = _version(path)
    cache.mkdir(parents=True, exist_ok=True)
    note = cache / f"{_state(path)}.json"
    with note.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _noted(note)
        if known is None:
            known = _packed(path, version, cache)
            note.write_text(json.dumps(asdict(known)))
        return known


def _version(path: Path) -> str:
    headers = sorted(path.glob("include/python3.*/patchlevel.h"))
    match = re.search(r'^#define PY_VERSION\s+"(3\.\d+\.\d+)', headers[0].read_text(), re.M) if headers else None
    short = match[1].rpartition(".")[0] if match else ""
    if not match or not all((path / part).exists() for part in (f"bin/python{short}", f"lib/python{short}")):
        raise BadFile(
            f"{path} is not a CPython tree",
            "name the --prefix it was built with: it holds bin/python3.N, lib/python3.N and include/python3.N",
        )
    if short not in BY_HAND:
        message = f"{path} has Python {short}, but only {' and '.join(BY_HAND)} are sent from here"
        raise BadFile(message, "leave it out: tfctl gets other versions with uv")
    return match[1]


def _state(path: Path) -> str:
    """Return a digest that changes with any file of the tree. It uses ctime, which cannot be faked, not content."""
    digest = hashlib.sha256(f"{_FORMAT}\0{path}".encode())
    for root, folders, files in os.walk(path):
        folders[:] = sorted(set(folders) - _LEFT_OUT - {"__pycache__"})
        for name in sorted(files):
            info = os.lstat(f"{root}/{name}")
            digest.update(f"\0{root}/{name}\0{info.st_mode}\0{info.st_size}\0{info.st_ctime_ns}".encode())
    return digest.hexdigest()[:24]


def _noted(note: Path) -> PythonTree | None:
    """Return the tree as recorded, if its archive still exists."""
    try:
        found = json.loads(note.read_text())
        tree = PythonTree(**{**found, "glibc": tuple(found["glibc"]), "needs": tuple(found["needs"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return tree if Path(tree.archive).is_file() else None


def _packed(path: Path, version: str, cache: Path) -> PythonTree:
    python = version.rpartition(".")[0]
    members = list(_members(path, python))
    part = cache / f".{version}.{os.getpid()}"
    sha256 = _write(part, members)
    name = f"cpython-{version}-{sha256[:12]}"
    archive = cache / f"{name}.tar.gz"
    part.replace(archive)
    programs = {each.info.name: each.data for each in members if elf.is_elf(each.data)}
    own = {PurePosixPath(name).name for name in programs} | _LIBC
    essential = [data for name, data in programs.items() if _ESSENTIAL.search(name)]
    needs = {library for data in essential for library in elf.needed(data)}
    return PythonTree(
        name=name,
        python=python,
        version=version,
        machine=elf.machine(programs[f"bin/python{python}"]),
        glibc=max(map(elf.glibc, essential)),
        needs=tuple(sorted(library for library in needs - own if not library.startswith("ld-linux"))),
        megabytes=sum(len(each.data) for each in members) // 2**20 + 1,
        archive=str(archive),
        sha256=sha256,
    )


def _members(path: Path, python: str) -> Iterator[_Member]:
    """Yield the members in a fixed order, so that equal trees give equal archives."""
    program = f"bin/python{python}"
    yield _Member(_info("bin/python3", tarfile.SYMTYPE, link=f"python{python}"))
    yield _file(path, program, (path / program).resolve())
    yield from _below(path, "include", python)
    for library in sorted(path.glob("lib/libpython3*.so*")):
        yield _member(path, f"lib/{library.name}")
    yield from _below(path, f"lib/python{python}", python)


def _below(path: Path, folder: str, python: str) -> Iterator[_Member]:
    """Yield a directory's members, with this Python's bytecode: it stays valid, for modules keep their times."""
    compiled = f".cpython-{python.replace('.', '')}.pyc"
    for entry in sorted(os.scandir(path / folder), key=lambda entry: entry.name):
        name = f"{folder}/{entry.name}"
        if entry.name in _LEFT_OUT or entry.name.endswith(".a"):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(path, name, python)
        elif not entry.name.endswith(".pyc") or entry.name.endswith(compiled):
            yield _member(path, name)


def _member(path: Path, name: str) -> _Member:
    """Return a member. A link within the tree stays a link; one that leads out is replaced by its target."""
    file = path / name
    real = file.resolve()
    if file.is_symlink() and real.is_relative_to(path.resolve()):
        return _Member(_info(name, tarfile.SYMTYPE, link=os.path.relpath(real, file.parent.resolve())))
    return _file(path, name, real)


def _file(path: Path, name: str, real: Path) -> _Member:
    try:
        stat, data = real.stat(), _moved(path, name, real.read_bytes())
    except OSError as error:
        raise BadFile(f"{path / name}: {error.strerror}") from None
    info = _info(name, tarfile.REGTYPE, mode=0o755 if stat.st_mode & 0o100 else 0o644)
    info.size, info.mtime = len(data), int(stat.st_mtime)
    return _Member(info, data)


def _info(name: str, kind: bytes, mode: int = 0o777, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, link
    return info


def _moved(path: Path, name: str, data: bytes) -> bytes:
    """Rewrite run paths that point into the tree to be relative to the file, so that they work anywhere."""
    for offset, text in elf.run_paths(data) if elf.is_elf(data) else ():
        kept = [place for each in text.split(":") if (place := _relative(path, name, each))]
        try:
            data = elf.with_run_path(data, offset, text, ":".join(dict.fromkeys(kept)))
        except ValueError as error:
            raise BadFile(
                f"{path / name} cannot be moved: {error}",
                "build the tree with --disable-shared, or with a longer --prefix",
            ) from None
    return data


def _relative(path: Path, name: str, place: str) -> str:
    """Return the $ORIGIN form of a run path directory, or "" if it is outside the tree."""
    if place.startswith("$ORIGIN"):
        return place
    if not Path(place).resolve().is_relative_to(path.resolve()):
        return ""
    inside = Path(place).resolve().relative_to(path.resolve())
    return f"$ORIGIN/{os.path.relpath(inside, PurePosixPath(name).parent)}"


def _write(archive: Path, members: list[_Member]) -> str:
    """Write the archive and return its SHA-256."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 3, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for each in members:
            tar.addfile(each.info, io.BytesIO(each.data))
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
