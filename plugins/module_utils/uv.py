"""Install the wheels of a lock file with uv, without a network."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.tfctl.cluster.plugins.module_utils.install import (
    ModuleFailed,
    as_nobody,
    directory_for_nobody,
    last_lines,
    link_or_copy,
    make_parents,
    remove,
    replace_tree,
    run,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import digest
from ansible_collections.tfctl.cluster.plugins.module_utils.records import complete, pinned

#: The end of the name of an archive with the bytecode of a wheel.
BYTECODE = ".bytecode.zip"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(whl|whl\.bytecode\.zip|tar\.gz)")


#: Arguments of a module that installs what a lock contains.
ARGUMENTS = {
    "path": {"type": "path", "required": True},
    "lock": {"type": "str", "required": True},
    "uv_lock": {"type": "str", "required": True},
    "wheels": {"type": "list", "elements": "dict", "default": []},
    "store": {"type": "path", "default": "/var/cache/tfctl/wheels"},
}


class Installation:
    """What a lock contains, at ``path``. ``lock``, ``uv_lock``: texts of lock files. ``wheels``: name and sha256 of
    each file in ``store`` that is needed, uv among them. ``part``: a temporary directory, which the caller removes."""

    def __init__(self, path: str, lock: str, uv_lock: str, wheels: Sequence[Mapping[str, str]], store: str) -> None:
        self.path, self.lock, self.uv_lock = Path(path), lock, uv_lock
        self.wheels, self.store = wheels, Path(store)
        self.part = self.path.with_name(f".{self.path.name}.part")
        self._folder, self._uv = self.part / "wheels", self.part / "uv"

    def unpack(self) -> None:
        """Link the wheels from the store of the host, and unpack uv.

        Raises ModuleFailed if the store lacks a file, or if the hash of uv is not in its lock.
        """
        if not self.wheels:
            raise ModuleFailed(f"{self.path}: there are no wheels to install")
        make_parents(self._folder)
        self._folder.mkdir()
        for each in self.wheels:
            name, path = each["name"], self.store / each["sha256"]
            if not _NAME.fullmatch(name):
                raise ModuleFailed(f"{name!r} is neither a wheel nor a source")
            if not path.is_file():
                raise ModuleFailed(f"{path}: {name} is missing", "run it again")
            link_or_copy(path, self._folder / name)
            # uv compares the hashes of wheels itself.
            if name.endswith(BYTECODE):
                self._check(each)
        wheel = next(self._folder.glob("uv-*.whl"), None)
        if wheel is None or digest(wheel) not in self.uv_lock:
            raise ModuleFailed("the hash of uv is not in its lock file")
        with zipfile.ZipFile(wheel) as file:
            name = next(name for name in file.namelist() if name.endswith(".data/scripts/uv"))
            self._uv.write_bytes(file.read(name))
        self._uv.chmod(0o755)

    def install(self, python: str, site: Path, *words: str) -> None:
        """Install everything in the lock for ``python``, into its directory ``site``, with bytecode.

        ``words``: options of `uv pip install`. Raises ModuleFailed.
        """
        wheels, sources = parted(self.lock)
        words = ("pip", "install", "--python", python, "--no-deps", "--no-index", *words)
        if wheels:
            requirements = self.part / "wheels.txt"
            requirements.write_text(wheels, encoding="utf-8")
            try:
                self.run(*words, "--find-links", str(self._folder), "--require-hashes", "-r", str(requirements))
            except ModuleFailed:
                for each in self.wheels:
                    self._check(each)
                raise
        # Sources last: their build tools are in the environment by then, checked by hash like all else.
        if sources:
            built = [f"{name}=={version}" for name, version in pinned(sources).items()]
            self.run(*words, "--find-links", str(self._build_sources(sources, python)), "--only-binary=:all:", *built)
        # No job can write to the directory later.
        for archive in self._folder.glob(f"*{BYTECODE}"):
            take_bytecode(archive, site)
        # Ignore the exit code: some packages contain templates, which cannot be compiled.
        run([python, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", str(site)])
        # A full disk is most likely now.
        remove(self._folder, self.part / "cache")

    def _build_sources(self, sources: str, python: str) -> Path:
        """Return a directory with wheels of the sources, which were built as the user nobody. Raises ModuleFailed."""
        place = directory_for_nobody(self.part / "built")
        words = ("build", "--wheel", "--no-build-isolation", "--python", python, "--out-dir", str(place))
        for each in self.wheels:
            if each["name"].endswith(".tar.gz") and each["sha256"] in sources:
                self._check(each)
                self.run(*words, str(self._folder / each["name"]), home=place, **as_nobody())
        return place

    def run(self, *words: str, home: Path | None = None, **more: Any) -> None:
        """Run uv. ``home``: a directory of its user, for what it writes. ``more``: see `run`. Raises ModuleFailed."""
        home = home or self.part
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home),
            "UV_CACHE_DIR": str(home / "cache"),
            # Link from the cache, which is deleted afterwards, so that each file is written once.
            "UV_LINK_MODE": "hardlink",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        done = run([str(self._uv), *words], env=variables, cwd=home, **more)
        if done.returncode:
            raise ModuleFailed(f"uv {words[0]}: {last_lines(done.stderr)}")

    def publish(self, new: Path, marker: Path, site: Path, **more: object) -> None:
        """Move ``new`` to ``path``, if the next run will find no difference. See `complete`. Raises ModuleFailed."""
        for difference in complete(marker, site, self.lock, more):
            raise ModuleFailed(
                f"two packages of the lock have the same file, or a wheel differs from its RECORD: {difference}"
            )
        replace_tree(new, self.path, self.part / "old")

    def _check(self, wheel: Mapping[str, str]) -> None:
        """Raise ModuleFailed if a file of the store has changed.

        Delete the file, so that the next run copies it again.
        """
        path = self.store / wheel["sha256"]
        if digest(path) != path.name:
            path.unlink()
            message = f"{path}: {wheel['name']} has changed since it was copied, and was deleted"
            raise ModuleFailed(message, "run it again")


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
