"""Facts about the Pythons on a host."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ansible_collections.tfctl.cluster.plugins.module_utils.links import STACKS, TREES
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import run

MARKER = "tfctl-tree.json"
ASK = "import ctypes, ssl, sys, zlib; print('%d.%d' % sys.version_info[:2])"
FOLDERS = ("/usr/bin", "/usr/local/bin")


def look(given: Iterable[str], needs: Sequence[str]) -> dict[str, object]:
    """Gather the facts. ``given``: interpreters named in the inventory; ``needs``: libraries that any tree requires.

    {"pythons": {version: path}, "given": {path: version or ""}, "trees": {name: version}, "in_use": {stack: path},
    "libc": [major, minor], "lacking": those of ``needs`` that are not here}
    """
    trees = {path.parent.name: path.parent for path in Path(TREES).glob(f"cpython-*/{MARKER}")}
    return {
        "pythons": of_system(),
        "given": {path: asked(path) for path in given},
        "trees": {name: version for name, path in sorted(trees.items()) if (version := whole(path))},
        "in_use": {link.name: os.path.realpath(link / "bin/python") for link in STACKS.glob("*") if link.is_symlink()},
        "libc": libc(),
        "lacking": sorted(set(needs) - loadable()) if needs else [],
    }


def of_system() -> dict[str, str]:
    """Return {version: path} of the interpreters in /usr/bin and /usr/local/bin, preferring the distribution's."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for path in sorted(Path(folder).glob("python3.*")):
            version = path.name.removeprefix("python")
            if re.fullmatch(r"3\.\d+", version) and os.access(path, os.X_OK):
                found.setdefault(version, str(path))
    return found


def asked(path: str) -> str:
    """Return the version that the interpreter reports, or "" if it is missing or lacks modules for TensorFlow."""
    code, said = run([path, "-I", "-c", ASK])
    return "" if code else said.strip()


def whole(tree: Path) -> str:
    """Return the version of a tree whose files are all unchanged since it was unpacked, else ""."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        marker = json.loads((tree / MARKER).read_text(encoding="utf-8"))
        return str(marker["python"]) if marker["files"] == listed(tree) else ""
    return ""


def listed(tree: Path, marker: str = MARKER) -> str:
    """Return a digest of the names and sizes of a tree's files."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(set(files) - {marker}):
            path = f"{folder}/{name}"
            digest.update(f"{os.path.relpath(path, tree)}\0{os.lstat(path).st_size}\0".encode())
    return digest.hexdigest()


def libc() -> list[int]:
    """Return [major, minor] of the GNU C library, or [0, 0] for another library."""
    name, version = platform.libc_ver()
    return [int(part) for part in version.split(".")[:2]] if name == "glibc" else [0, 0]


def loadable() -> set[str]:
    """Return the names of the libraries that ld.so finds."""
    code, said = run(["/sbin/ldconfig", "-p"])
    return {line.split()[0] for line in said.splitlines()[1:] if line.strip()} if code == 0 else set()
