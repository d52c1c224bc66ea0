"""Choose the tests that a change can affect, and say what is left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from scripts.affected.graph import Graph
from scripts.affected.repository import Change
from scripts.affected.rules import ANSIBLE_LINT, LINT, NAMES

_TEST = re.compile(r"tests/(?P<suite>\w+)/(?:.*/)?test_\w+\.py")


class Selection(NamedTuple):
    """``chosen``: the tests, and perhaps ansible-lint. ``omitted``: the others. ``lab``: changed tests that need a lab.
    ``unknown``: the files that nothing is known to depend on; because of them, everything is chosen."""

    chosen: list[str]
    omitted: list[str]
    lab: list[str]
    unknown: list[str]


def of_tests(paths: Iterable[str], *, lab: bool = False) -> list[str]:
    """Return the files of tests that need no lab, or those that need one."""
    return sorted(path for path in paths if (match := _TEST.fullmatch(path)) and (match["suite"] == "lab") == lab)


def select(graph: Graph, change: Change) -> Selection:
    """Return what the change can affect: what depends on a changed file, or on the list of all files if it differs.

    ``graph``: with the files that the change has deleted.
    """
    changed = change.files | ({NAMES} if change.renames else frozenset())
    checks = [*of_tests(graph.present), ANSIBLE_LINT]
    inputs = {check: graph.inputs(check) for check in checks}
    unknown = sorted(change.files - _known(graph, inputs))
    chosen = [check for check in checks if unknown or not changed.isdisjoint(inputs[check])]
    omitted = [check for check in checks if check not in chosen]
    return Selection(chosen, omitted, of_tests(change.files & graph.present, lab=True), unknown)


def _known(graph: Graph, inputs: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the files of which it is known what depends on them.

    Of Python, that a test reads the text is not enough. But whatever imported a deleted module has changed too.
    """
    used = graph.inputs(LINT).union(*map(graph.used, inputs))
    read = {path for each in inputs.values() for path in each if not path.endswith(".py")}
    return {*used, *read, *(path for path in graph.files.paths - graph.present if path.endswith(".py"))}


def report(change: Change, found: Selection) -> Iterator[str]:
    """Yield lines that say what is chosen and why the rest is not."""
    some = sorted(change.files)
    files = "1 file has" if len(some) == 1 else f"{len(some)} files have"
    yield f"{files} changed since {change.base[:12]}: {_shortened(some)}"
    if found.unknown:
        yield f"everything runs, because it is not known what depends on {_shortened(found.unknown)}"
    if found.omitted:
        every = Counter(map(_directory, [*found.chosen, *found.omitted]))
        counts = Counter(map(_directory, found.omitted))
        groups = [f"{name} {count} of {every[name]}" for name, count in counts.items() if name != ANSIBLE_LINT]
        left = [*(["files of " + ", ".join(groups)] if groups else []), *({ANSIBLE_LINT} & {*found.omitted})]
        yield f"left out, because nothing that they import, read or run has changed: {'; '.join(left)}"
    if found.lab:
        yield f"left out, because it needs a lab: scripts/test --lab {' '.join(found.lab)}"


def _directory(name: str) -> str:
    return str(PurePosixPath(name).parent) if "/" in name else name


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
