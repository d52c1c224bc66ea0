"""Which files each file depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath

from scripts.affected.files import Files
from scripts.affected.imports import Modules, Source
from scripts.affected.repository import Repository
from scripts.affected.rules import NAMES, NO_PATHS, RULES, Rule

#: What tells that code finds files or modules in a way that is not visible.
_HIDDEN = re.compile(r"__file__|\bimport_module\b")


class Graph:
    """The files of a repository, and of those that a change has deleted from it, with what they depend on."""

    def __init__(self, repository: Repository, deleted: Iterable[str] = (), rules: Iterable[Rule] = RULES) -> None:
        self.present, self._repository, self._rules = repository.files, repository, tuple(rules)
        self.files = Files({*repository.files, *deleted})
        self._modules = Modules(self.files.paths)
        self._direct = cache(self._find_direct)
        self._read = cache(self._find_read)
        self.used = cache(self._find_used)

    def inputs(self, name: str) -> frozenset[str]:
        """Return all that a file or a check depends on, with itself."""
        used = self.used(name)
        return used.union(*map(self._read, used))

    def _find_used(self, name: str) -> frozenset[str]:
        """Return the inputs without those of which only the text is read."""
        but = [pattern for rule in self._rules_of(name) for pattern in rule.but]
        found, waiting = {name}, [name]
        while waiting:
            new = {each for each in self._direct(waiting.pop()) - found if not _matches(each, but)}
            found |= new
            waiting += new
        return frozenset(found)

    def _find_read(self, name: str) -> frozenset[str]:
        """Return those of which it reads only the text."""
        patterns = {pattern for rule in self._rules_of(name) for pattern in rule.reads}
        return self.files.matching(*sorted(patterns)) | ({NAMES} & patterns)

    def _find_direct(self, name: str) -> frozenset[str]:
        """Return what a file uses itself."""
        found: set[str] = set()
        rules = self._rules_of(name)
        for rule in rules:
            found |= self.files.matching(*rule.uses)
        target = self._repository.target(name)
        if target:
            found |= self.files.below(target) | {target}
        elif name.startswith("tests/"):
            found |= {f"{folder}/conftest.py" for folder in PurePosixPath(name).parents} & self.files.paths
        text = self._repository.text(name)
        if name.endswith(".py") or re.match(r"#!.*\bpython", text):
            source, paths = Source(name, text), not _matches(name, NO_PATHS)
            found |= source.imported(self._modules, in_strings=paths)
            if paths:
                found |= source.named(self.files)
            elif name.startswith("tfctl") and _HIDDEN.search(text) and not rules:
                found |= self.files.paths
        return frozenset(found)

    def _rules_of(self, name: str) -> list[Rule]:
        return [rule for rule in self._rules if fnmatchcase(name, rule.who)]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
