"""Install the wheels of a lock file with uv, without a network."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ansible.module_utils.tfctl_install import Failed, last_lines, make_parents, run
from ansible.module_utils.tfctl_records import Stamp, differing, record_of

BYTECODE = "bytecode.zip"


class Wheels:
    """The wheels of a lock, uv among them, in a temporary directory ``part``, which the caller removes."""

    def __init__(self, archive: Path, part: Path, uv_lock: str) -> None:
        """Unpack the archive, and delete it. Raises Failed if the hash of uv in it is not in its lock."""
        self._part, self._folder = part, part / "wheels"
        make_parents(self._folder)
        self._folder.mkdir()
        unpack(archive, self._folder)
        # Delete it now: if the kernel has not written it to the disk yet, it never has to.
        archive.unlink()
        wheel = next(self._folder.glob("uv-*.whl"), None)
        if wheel is None or hashlib.sha256(wheel.read_bytes()).hexdigest() not in uv_lock:
            raise Failed(f"{archive}: the hash of uv in it is not in its lock file")
        self._uv = part / "uv"
        with zipfile.ZipFile(wheel) as file:
            name = next(name for name in file.namelist() if name.endswith(".data/scripts/uv"))
            self._uv.write_bytes(file.read(name))
        self._uv.chmod(0o755)

    def install(self, lock: str, *words: str) -> None:
        """Install everything in the lock. ``words``: further options of `uv pip install`. Raises Failed."""
        # Install sources last: their build tools are in the environment by then, checked by hash like all else.
        for name, text in zip(("wheels.txt", "sources.txt"), parted(lock)):
            if text:
                (self._part / name).write_text(text, encoding="utf-8")
                requirements = ["--no-deps", "--no-build-isolation", "--require-hashes", "-r", str(self._part / name)]
                self.run("pip", "install", *words, "--no-index", "--find-links", str(self._folder), *requirements)

    def run(self, *words: str) -> None:
        """Run uv. Raises Failed."""
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self._part),
            "TMPDIR": str(self._part),
            "UV_CACHE_DIR": str(self._part / "cache"),
            # Link from the cache, which is deleted afterwards, so that each file is written once.
            "UV_LINK_MODE": "hardlink",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        done = run([str(self._uv), *words], env=variables)
        if done.returncode:
            raise Failed(f"uv {words[0]}: {last_lines(done.stderr)}")

    def compile(self, python: str, site: Path) -> None:
        """Compile the modules that have no bytecode, because no job can write to the directory later."""
        if (self._folder / BYTECODE).is_file():
            take_bytecode(self._folder / BYTECODE, site)
        # Ignore the exit code: some packages contain templates, which cannot be compiled.
        run([python, "-I", "-m", "compileall", "-q", "-q", "-j", "0", str(site)])

    def drop(self) -> None:
        """Delete the wheels and uv's cache, once they are installed: a full disk is most likely now."""
        for done in (self._folder, self._part / "cache"):
            shutil.rmtree(done, ignore_errors=True)


def changes(site: Path, lock: str, there: dict[str, Stamp], completed: float) -> Iterator[str]:
    """Yield a sentence for each package and file that differs from the lock. ``there``: the files of ``site``."""
    for name, version in pinned(lock).items():
        record = record_of(site, name, version)
        if record is None:
            yield f"{name} {version} is not in {site}"
        else:
            yield from differing(site, record, there, completed)


def pinned(lock: str) -> dict[str, str]:
    """Return {name: version} of each line NAME==VERSION."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", lock, re.MULTILINE))


def parted(lock: str) -> tuple[str, str]:
    """Return the entries of wheels and those of sources. The line --no-binary=NAME,NAME names the sources."""
    named = re.match(r"--no-binary=(.+)\n", lock)
    sources = named[1].split(",") if named else []
    texts = ["", ""]
    for entry in re.findall(r"^[^\s#-].*(?:\n    .*)*", lock, re.MULTILINE):
        texts[entry.partition("==")[0] in sources] += f"{entry}\n"
    return texts[0], texts[1]


def take_bytecode(archive: Path, site: Path) -> None:
    """Unpack each .pyc beside its module, and write the module's time and size into its header (PEP 552)."""
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            path = site / name
            module = path.parent.with_name(f"{path.name.partition('.')[0]}.py")
            if re.search(r"(^|/)__pycache__/[^/]+\.pyc$", name) and ".." not in name.split("/") and module.is_file():
                info, content = module.stat(), file.read(name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content[:8] + struct.pack("<LL", int(info.st_mtime), info.st_size) + content[16:])


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive that contains wheels, sources and bytecode only. Raises Failed for any other member."""
    with tarfile.open(archive) as tar:
        for member in tar:
            known = re.fullmatch(r"[A-Za-z0-9_.+-]+\.(whl|tar\.gz)", member.name) or member.name == BYTECODE
            content = tar.extractfile(member) if member.isfile() and known else None
            if content is None:
                raise Failed(f"{archive}: {member.name} is neither a wheel nor a source")
            with (folder / member.name).open("wb") as file:
                shutil.copyfileobj(content, file, 2**20)
