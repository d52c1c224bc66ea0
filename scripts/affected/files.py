"""Find files by their paths, without looking at the disk."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath

_TEST = re.compile(r"(?:.*/)?test_\w+\.py")


class Files:
    """Paths of files, relative to the root of the repository."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        self._below: dict[str, set[str]] = defaultdict(set)
        for path in self.paths:
            for parent in PurePosixPath(path).parents:
                self._below[str(parent)].add(path)
        del self._below["."]
        self.matching = cache(self._matching)

    def below(self, folder: str) -> frozenset[str]:
        """Return the files in this directory and in those below it."""
        return frozenset(self._below.get(folder, ()))

    def named(self, path: str, *, word: bool) -> frozenset[str]:
        """Return the file, those in the directory, or those that the pattern matches, if it begins with a directory.

        ``word``: the path may be a word that is none, so do not count a package or a directory with tests.
        """
        if path in self.paths:
            return frozenset([path])
        if "*" in path:
            return self.matching(path.replace("**/", "*")) if path.partition("/")[0] in self._below else frozenset()
        found = self.below(path)
        none = word and (f"{path}/__init__.py" in found or any(map(_TEST.fullmatch, found)))
        return frozenset() if none else found

    def ending(self, end: str) -> frozenset[str]:
        return frozenset(path for path in self.paths if path.endswith(end))

    def _matching(self, *patterns: str) -> frozenset[str]:
        """Return the files that a pattern of fnmatch matches. Its `*` also matches a slash."""
        return frozenset(path for path in self.paths if any(fnmatchcase(path, pattern) for pattern in patterns))
