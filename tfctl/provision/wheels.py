"""Download the wheels of lock files with pip, once for all hosts, so that hosts need no package index.

pip uses its own settings for the index, certificates and proxies, and rejects files whose hash is not in the lock file.
Files are kept, and a later call downloads only what is new. If this machine has the version of Python that the wheels
are for, the modules of each wheel are compiled here instead of on every host; the bytecode is one more file.

Ansible's plugins import this module: it needs only the standard library, and pip as a program.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

# The oldest C library of a supported system is 2.31. Wheels for older ones work there too.
GLIBC = range(5, 32)
OLD_NAMES = {"x86_64": ("manylinux1", "manylinux2010", "manylinux2014"), "aarch64": ("manylinux2014",)}
LIMIT_S = 1800
# The oldest patch release on a supported system: Debian's 3.9.2 and 3.11.2. Some packages reject a .0.
PATCH = 2
#: The end of the name of an archive with the bytecode of a wheel.
BYTECODE = ".bytecode.zip"
# A replacement for setuptools, for a source that names no backend (PEP 517).
BACKEND = """
import pathlib
class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(folder, *_):
        path = pathlib.Path(folder, "{name}-{version}.dist-info", "METADATA")
        path.parent.mkdir()
        path.write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        return path.parent.name
"""
# The format of the archive. Increase it if what it contains changes.
FORMAT = 3
#: The time of members in archives with bytecode, so that the same modules give the same archive.
EPOCH = (1980, 1, 1, 0, 0, 0)


class DownloadFailed(Exception):
    """pip could not download. The message says why."""


class Download(NamedTuple):
    """The wheels of lock files for a version of Python and an architecture. ``index_url``: the package
    index, or "" for that of the settings of pip."""

    locks: list[Path]
    python: str
    machine: str
    index_url: str

    def digest(self, *more: str) -> str:
        """Return a digest of what is to be downloaded."""
        texts = [lock.read_text(encoding="utf-8") for lock in self.locks]
        return hashlib.sha256("\0".join([str(FORMAT), self.python, self.machine, *texts, *more]).encode()).hexdigest()


class DownloadedFile(TypedDict):
    """A downloaded file. ``size``: in bytes."""

    name: str
    path: str
    sha256: str
    size: int


def files_of(wanted: Download, folder: Path) -> list[DownloadedFile]:
    """Return the wheels, and an archive with the bytecode of each, where there is any. Raises DownloadFailed."""
    place = folder / f"{wanted.python}-{wanted.machine}"
    listing = folder / f"{wanted.digest()[:24]}.json"
    with alone(place):
        place.mkdir(exist_ok=True)
        known = listed(listing)
        if known is None:
            for lock in wanted.locks:
                download_wheels(place, lock, wanted)
            wheels = [wheel for lock in wanted.locks for wheel in wheels_of(place, lock.read_text(encoding="utf-8"))]
            compile_modules(wheels, wanted.python, place)
            known = [described(path) for wheel in wheels for path in (wheel, bytecode_of(wheel)) if not is_empty(path)]
            listing.write_text(json.dumps(known), encoding="utf-8")
    return known


def listed(listing: Path) -> list[DownloadedFile] | None:
    """Return the files of an earlier download, or None if one is missing."""
    try:
        known: list[DownloadedFile] = json.loads(listing.read_text(encoding="utf-8"))
        return known if all(Path(file["path"]).stat().st_size == file["size"] for file in known) else None
    except (OSError, ValueError):
        return None


def wheels_of(place: Path, lock: str) -> list[Path]:
    """Return the downloaded files whose names and hashes are in a lock."""
    hashes = {*re.findall(r"--hash=sha256:([0-9a-f]{64})", lock)}
    names = {normal(name) for name in re.findall(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE)}
    files = [path for path in sorted(place.iterdir()) if path.name.endswith((".whl", ".tar.gz"))]
    return [path for path in files if normal(project_of(path)) in names and digest(path) in hashes]


def project_of(path: Path) -> str:
    return path.name.split("-")[0] if path.suffix == ".whl" else path.name.rpartition("-")[0]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def described(path: Path) -> DownloadedFile:
    return {"name": path.name, "path": str(path), "sha256": digest(path), "size": path.stat().st_size}


def archive_of(wanted: Download, source: str, folder: Path) -> Path:
    """Return the path of an archive with the wheels and a source, which is created if there is none.

    Raises DownloadFailed.
    """
    path = folder / f"{wanted.digest(source)[:24]}.tar"
    with alone(path):
        if not path.exists():
            part = path.with_suffix(".part")
            part.mkdir(exist_ok=True)  # pip verifies and keeps the files of an earlier, interrupted run
            for lock in wanted.locks:
                download_wheels(part, lock, wanted)
            download_source(part, source, wanted.index_url)
            pack(part, path)
    return path


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock, because this is called for every host of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pack(part: Path, path: Path) -> None:
    complete = path.with_suffix(".whole")
    with tarfile.open(complete, "w") as tar:
        for each in sorted(part.iterdir()):
            tar.add(each, arcname=each.name)
    complete.replace(path)
    shutil.rmtree(part)


def download_wheels(part: Path, lock: Path, wanted: Download) -> None:
    """Download what is in the lock and not in ``part`` yet."""
    text = lock.read_text(encoding="utf-8")
    there = {normal(project_of(path)) for path in wheels_of(part, text)}
    options = re.findall(r"^-.*\n", text, re.MULTILINE)
    entries = re.findall(r"^\w.*(?:\n[ \t].*)*", text, re.MULTILINE)
    missing = [f"{entry}\n" for entry in entries if normal(entry.partition("==")[0]) not in there]
    if not missing:
        return
    platforms = [f"manylinux_2_{minor}_{wanted.machine}" for minor in reversed(GLIBC)]
    platforms += [f"{name}_{wanted.machine}" for name in OLD_NAMES.get(wanted.machine, ())]
    words = ["--only-binary=:all:", "--implementation=cp", f"--python-version={wanted.python}.{PATCH}"]
    # uv is a program, and works for versions of Python that its package does not list any more.
    words += ["--ignore-requires-python", *(f"--platform={each}" for each in platforms)]
    with tempfile.TemporaryDirectory() as folder:
        rest = Path(folder, lock.name)
        rest.write_text("".join([*options, *missing]), encoding="utf-8")
        download(part, str(rest), words, wanted.index_url)


def download_source(part: Path, requirement: str, index: str) -> None:
    """Download a source without running its setup.py: pip asks for its metadata, which a fake backend provides."""
    match = re.match(r"([\w.-]+)==(\S+)", requirement)
    if not match:
        raise DownloadFailed(f"{requirement.strip()!r} is not NAME==VERSION")
    with tempfile.TemporaryDirectory() as folder:
        lock, backend = Path(folder, "source.txt"), Path(folder, "setuptools", "build_meta.py")
        lock.write_text(requirement, encoding="utf-8")
        backend.parent.mkdir()
        backend.with_name("__init__.py").touch()
        backend.write_text(BACKEND.format(name=match[1], version=match[2]), encoding="utf-8")
        words = ["--no-binary=:all:", "--use-pep517", "--no-build-isolation"]
        download(part, str(lock), words, index, {"PYTHONPATH": folder})


def download(part: Path, lock: str, more: Sequence[str], index: str, variables: dict[str, str] | None = None) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    words += ["--no-cache-dir", "--no-deps", "--require-hashes", "--dest", str(part), "--requirement", lock, *more]
    # Since Python 3.11, this prevents the import of a file such as pip.py from the current directory.
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **(variables or {})}
    if index:  # not on the command line, which all users can see: it may contain a password
        environment["PIP_INDEX_URL"] = index
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise DownloadFailed(errors_of(done.stderr) or f"pip ended with exit code {done.returncode}")


def errors_of(output: str) -> str:
    """Return pip's own errors without its lists of unwanted versions, else its last lines."""
    other = re.search(r"^ +(\S+) from (\S+).*:\n +Expected", output, re.MULTILINE)
    if other:
        return f"the download of {other[1]} from {other[2]} does not match the hash in the lock file"
    errors: list[Any] = re.findall(r"^ *ERROR: (?!Ignored )(.*)$", output, re.MULTILINE)
    broken = re.search(r"after connection broken by '(.*)': ", output)
    if broken:
        errors.insert(0, f"connection broken to the package index: {_message_of(broken[1])}")
    return "\n".join(re.sub(r" \(from versions: .*\)$", "", line) for line in errors or output.splitlines()[-3:])


def _message_of(exception: str) -> str:
    """Return the message of an exception of urllib3 as pip prints it, which is nested: without class names, objects
    and quotation marks."""
    text = re.sub(r"<[^>]*>[:,] |\b[A-Z]\w*\((?:host=[^)]*\): )?", "", exception)
    text = re.sub(r"""['"], *['"]""", " ", text)
    return re.sub(r"""^['"]+|['"][)'"]*$""", "", text)


def compile_modules(wheels: Sequence[Path], version: str, place: Path) -> None:
    """Create an archive beside each wheel that has none, with the bytecode of its modules below site-packages."""
    python = interpreter(version)
    new = [wheel for wheel in wheels if wheel.suffix == ".whl" and not is_compiled(wheel)]
    if python is None or not new:
        return
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for wheel in new:
            with zipfile.ZipFile(wheel) as file:
                names = [name for name in file.namelist() if name.endswith(".py") and ".data/" not in name]
                file.extractall(Path(folder, wheel.name), names)
        # Ignore the exit code: some packages contain templates, which cannot be compiled.
        words = [python, "-I", "-m", "compileall", "-q", "-q", "-j", "0", folder]
        subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
        for wheel in new:
            part, modules = Path(folder, BYTECODE), Path(folder, wheel.name)
            with zipfile.ZipFile(part, "w") as archive:
                for module in sorted(modules.rglob("*.pyc")):
                    info = zipfile.ZipInfo(str(module.relative_to(modules)), EPOCH)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, module.read_bytes(), compresslevel=1)
            part.replace(bytecode_of(wheel))


def bytecode_of(wheel: Path) -> Path:
    return wheel.with_name(wheel.name + BYTECODE)


def is_empty(path: Path) -> bool:
    """Return whether there is no archive with bytecode, or none in it."""
    if path.suffix != ".zip":
        return False
    if not path.exists():
        return True
    with zipfile.ZipFile(path) as archive:
        return not archive.namelist()


def is_compiled(wheel: Path) -> bool:
    path = bytecode_of(wheel)
    return path.exists() and path.stat().st_mtime >= wheel.stat().st_mtime


def interpreter(version: str) -> str | None:
    """Return this machine's interpreter of that version. Python 3.6 has another bytecode header (PEP 552)."""
    if version == "3.6":
        return None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return sys.executable if own == version else shutil.which(f"python{version}")
