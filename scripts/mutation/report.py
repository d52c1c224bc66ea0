"""The result of `scripts/mutants` as text and as JSON, and its comparison with an earlier one."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

from scripts.mutation.mutants import Mutant, apply


class MutantObject(TypedDict):
    """``killer``: the test that fails, or None. ``reached``: whether any test executes its source."""

    file: str
    line: int
    function: str
    operator: str
    before: str
    after: str
    occurrence: int
    reached: bool
    killer: str | None


class ResultObject(TypedDict):
    """``share``: of the mutants that are killed. ``seconds``: how long the run took. ``cpu``: seconds of the tests."""

    seed: int
    share: float
    seconds: float
    cpu: float
    mutants: list[MutantObject]


def as_object(mutant: Mutant, *, reached: bool, killer: str | None) -> MutantObject:
    return {
        "file": mutant.file, "line": mutant.line, "function": mutant.function, "operator": mutant.operator,
        "before": mutant.before, "after": mutant.after, "occurrence": mutant.occurrence, "reached": reached,
        "killer": killer,
    }  # fmt: skip


def text(found: Sequence[MutantObject], sample: Sequence[Mutant], sources: Mapping[str, bytes]) -> str:
    """Return the share of killed mutants of each file and of all, and the survivors as diffs."""
    sizes = Counter(one["file"] for one in found)
    killed = Counter(one["file"] for one in found if one["killer"])
    rows = [(file, killed[file], size) for file, size in sizes.items()]
    rows.append(("total", killed.total(), sizes.total()))
    lines = [f"{'FILE':48} {'KILLED':>6} {'OF':>4} {'SHARE':>7}"]
    lines += [f"{file:48} {dead:6} {size:4} {dead / size:7.1%}" for file, dead, size in rows]
    for one, mutant in zip(found, sample, strict=True):
        if not one["killer"]:
            by = "survives" if one["reached"] else "no test executes it"
            where = f" in {one['function']}" if one["function"] else ""
            lines += ["", f"{one['file']}:{one['line']}{where}: {one['operator']}: {by}"]
            lines += _diff(sources[one["file"]], mutant)
    return "\n".join(lines)


def compare(before: ResultObject, now: ResultObject) -> tuple[str, bool]:
    """Return how the share has changed, and which mutants were killed before and survive now; and whether it fell.

    Only the mutants that both have are compared.
    """
    earlier = {_key(one): one for one in before["mutants"]}
    both = [(earlier[_key(one)], one) for one in now["mutants"] if _key(one) in earlier]
    lost = [f"  {one['file']}:{one['line']}: {one['before']} -> {one['after']}, which {old['killer']} killed"
            for old, one in both if old["killer"] and not one["killer"]]  # fmt: skip
    old_killed, now_killed = (sum(bool(pair[index]["killer"]) for pair in both) for index in (0, 1))
    lines = [f"of {len(both)} mutants in both, {old_killed} were killed before, {now_killed} now"]
    lines += [f"killed before, but not now: {len(lost)}", *lost] if lost else []
    return "\n".join(lines), now_killed < old_killed


def _key(one: MutantObject) -> tuple[object, ...]:
    return one["file"], one["function"], one["operator"], one["before"], one["after"], one["occurrence"]


def _diff(source: bytes, mutant: Mutant) -> list[str]:
    """Return the lines that a mutant changes, before and after."""
    old, new = (text.decode().splitlines() for text in (source, apply(source, mutant)))
    changed = difflib.unified_diff(old, new, n=0, lineterm="")
    return [line for line in changed if not line.startswith(("---", "+++", "@@"))]
