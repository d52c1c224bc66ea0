"""The files of the repository and what has changed in them, as git and the working tree say."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class GitError(Exception):
    """git has failed, or there is no commit to compare with."""


class Change(NamedTuple):
    """What differs from the commit ``base``. ``renames``: whether a file was added or deleted, so that the list of all
    files differs too."""

    base: str
    files: frozenset[str]
    renames: bool


class Repository:
    """A working tree of git. Paths are relative to ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> frozenset[str]:
        """Return all files that git does not ignore, tracked or not. A symbolic link is a file."""
        listed = self._names("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return frozenset(name for name in listed if self._is_there(name))

    def change(self, base: str | None = None) -> Change:
        """Return what the working tree changes since it left ``base``; by default origin/main, or main without that.

        Raise GitError if there is no such commit.
        """
        point = self._branching_point([base] if base else ["origin/main", "main"])
        status = self._names("diff", "-z", "--name-status", "--no-renames", point, "--")
        kinds = dict(zip(status[1::2], status[::2], strict=True))
        kinds |= dict.fromkeys(self._names("ls-files", "-z", "--others", "--exclude-standard"), "A")
        return Change(point, frozenset(kinds), not {"A", "D"}.isdisjoint(kinds.values()))

    def text(self, name: str) -> str:
        """Return the text of a file; "" if it is none or if the file is not there."""
        try:
            return (self.root / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def target(self, name: str) -> str | None:
        """Return the path to which a symbolic link leads, or None if the file is none."""
        path = self.root / name
        return str(path.resolve().relative_to(self.root.resolve())) if path.is_symlink() else None

    def digest(self, names: Iterable[str], *more: str) -> str:
        """Return a digest of these files, with their names and modes, and of ``more``."""
        digest = hashlib.sha256(repr(more).encode())
        for name in sorted(names):
            path = self.root / name
            if path.is_symlink():
                kind, content = "link", path.readlink().as_posix().encode()
            elif path.is_file():
                kind, content = f"{path.stat().st_mode & 0o111:o}", path.read_bytes()
            else:
                kind, content = "missing", b""
            digest.update(f"{name}\0{kind}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def _is_there(self, name: str) -> bool:
        path = self.root / name
        return path.is_symlink() or path.is_file()

    def _branching_point(self, bases: list[str]) -> str:
        for base in bases:
            done = self._git("merge-base", "HEAD", base)
            if done.returncode == 0:
                return done.stdout.strip()
        raise GitError(
            f"git finds no commit that HEAD shares with {' or '.join(bases)}. Name one: scripts/test --changed COMMIT"
        )

    def _names(self, *words: str) -> list[str]:
        done = self._git(*words)
        if done.returncode != 0:
            raise GitError(f"git {words[0]}: {done.stderr.strip()}")
        return done.stdout.split("\0")[:-1]

    def _git(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", "-C", str(self.root), *words], capture_output=True, encoding="utf-8", errors="surrogateescape"
        )
