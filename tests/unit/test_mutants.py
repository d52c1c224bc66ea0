"""`scripts/mutants`, on sources of a few lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from node_tree import wait_until

from scripts.mutation import report
from scripts.mutation.mutants import apply, draw, find, write
from scripts.mutation.report import MutantObject, ResultObject
from scripts.mutation.tree import Tree
from scripts.mutation.trial import Trial

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutants"

#: A source, an operator, and all that it makes of the source.
CHANGES = [
    ("x = a < b", "comparison", ["x = a <= b"]),
    ("x = a<b >= c", "comparison", ["x = a<=b >= c", "x = a<b > c"]),
    ("x = (a < b) == c", "comparison", ["x = (a < b) != c", "x = (a <= b) == c"]),
    ("x = a is  not b", "comparison", ["x = a is b"]),
    ("x = a not in b", "comparison", ["x = a in b"]),
    ("x = a and b  and c or d", "and/or", ["x = a or b  or c or d", "x = a and b  and c and d"]),
    ("if a and not b: pass", "negated condition", ["if not a and not b: pass"]),
    ("x = [a for a in b if (y := a)]", "negated condition", ["x = [a for a in b if (not (y := a))]"]),
    ("x = a if not (b or c) else d", "negated condition",
     ["x = a if not (not b or c) else d", "x = a if not (b or not c) else d"]),
    ("while not a: pass", "removed not", ["while a: pass"]),
    ("if a == 'on': pass", "string in a comparison", ["if a == 'on?': pass"]),
    ("x = 10.0", "number", ["x = 11.0", "x = 9.0"]),
    ("def f(a, b=1): pass", "number", ["def f(a, b=2): pass", "def f(a, b=0): pass"]),
    ("x = f(sure=True)", "boolean", ["x = f(sure=False)"]),
    ("x = a - b // 2", "arithmetic", ["x = a + b // 2", "x = a - b * 2"]),
    ("x = all(a) and max(b)", "function", ["x = any(a) and max(b)", "x = all(a) and min(b)"]),
    ("X = ('a',\n     'é', 'c')", "removed item", ["X = ('é', 'c')", "X = ('a',\n     'c')", "X = ('a',\n     'é')"]),
    ("X = ('a', 'b')", "removed item", ["X = ('b',)", "X = ('a',)"]),
    ("x = {'a': 1, b: c}", "removed item", ["x = {b: c}", "x = {'a': 1}"]),
    ("def f(): return g(a)", "returns None", ["def f(): return None"]),
    ("if a:\n    f(\n        b)\n    c.d = e\n", "removed statement",
     ["if a:\n    pass\n    c.d = e\n", "if a:\n    f(\n        b)\n    pass\n"]),
    ("é = 'é'; raise ValueError", "removed statement", ["é = 'é'; pass"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "operator", "changed"), CHANGES)
def test_an_operator_changes_what_it_says_and_nothing_else(source: str, operator: str, changed: list[str]) -> None:
    found = [one for one in find("x.py", source.encode()) if one.operator == operator]
    assert sorted(apply(source.encode(), one).decode() for one in found) == sorted(changed)


def test_what_no_test_could_notice_is_not_changed() -> None:
    source = '''
"""A docstring: 1 < 2."""
from typing import TYPE_CHECKING, Literal, Mapping, Union
if TYPE_CHECKING:
    LIMIT = 1
Either = Union[Literal["a", "b"], Mapping[str, int]]
@decorator(frozen=True)
class Kind(Base):
    """Another."""
    field: Literal[1, 2]
def function(a: Literal[1], *b: Literal[2]) -> Literal[3]:
    """Another."""
    assert a == 1
    local = f"{a if a == 1 else 2} {-3}"
    return None
'''
    assert find("x.py", source.encode()) == []


SOURCE = b'''"""Doc."""

from __future__ import annotations


def clamp(n: int) -> int:
    """Return `n`, or 10 if it is larger."""
    if n > 10 and n:
        n = 10
    check(n)
    return n if n else 0


def check(n: int) -> None:
    if n < 0:
        raise ValueError("it is negative")
'''


def test_a_sample_stays_the_same_when_other_code_moves_or_changes() -> None:
    others = [f"def f{number}(n):\n    return n + {number}\n" for number in range(40)]

    def sample(source: bytes, seed: int = 1) -> set[str]:
        found = [*find("a.py", source), *find("b.py", "\n".join(others).encode())]
        return {one.key for one in draw(found, 30, seed)}

    first = sample(SOURCE)
    assert len(first) == 30
    assert {key.split("\0")[0] for key in first} == {"a.py", "b.py"}
    assert sample(SOURCE.replace(b"def check", b"# a comment\n\n\ndef check")) == first
    assert len(sample(SOURCE.replace(b"n < 0", b"n < 0 or n > 99")) & first) >= 28
    assert len(sample(SOURCE, seed=2) & first) < 28


def test_no_two_mutants_of_a_sample_change_the_same_text() -> None:
    found = find("a.py", SOURCE)
    drawn = draw(found, len(found), 1)
    assert 5 < len(drawn) < len(found)
    assert all(one.end <= other.start for one, other in pairwise(drawn))


def test_a_source_with_mutants_runs_as_before_until_one_is_active_and_records_what_it_reaches(tmp_path: Path) -> None:
    sample = [*enumerate(draw(find("a.py", SOURCE), 99, 1))]
    assert [operator for _, one in sample if (operator := one.operator) == "removed statement"]

    def results(active: Sequence[int]) -> list[object]:
        names: dict[str, object] = {}
        exec(compile(write(SOURCE, sample, active, str(tmp_path)), "a.py", "exec"), names)
        clamp = names["clamp"]
        assert callable(clamp)
        found: list[object] = []
        for number in (0, 9, 10, 11, -1):
            try:
                found.append(clamp(number))
            except ValueError as error:
                found.append(str(error))
        return found

    unchanged = [0, 9, 10, 10, "it is negative"]
    assert results([]) == unchanged
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [number for number, _ in sample]
    # `n > 10` and `n >= 10` differ in nothing, nor do `n > 10 and n` and `n > 10`.
    same = {one.operator for number, one in sample if results([number]) == unchanged}
    assert same <= {"comparison", "negated condition"}


def checkout(folder: Path, source: str, tests: str) -> Path:
    """Create a checkout of the module `price` with tests."""
    (folder / "tests/unit").mkdir(parents=True)
    (folder / "price.py").write_text(source)
    (folder / "tests/unit/test_price.py").write_text(f"import subprocess, sys, time\nfrom price import price\n{tests}")
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['extended: takes long']\n")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


def tried(folder: Path, *changed: str) -> Trial:
    """Run the mutants with these texts. Their numbers are those of the texts."""
    found = find("price.py", (folder / "price.py").read_bytes())
    sample = [next(one for one in found if one.after == text) for text in changed]
    (folder / "copy").mkdir()
    tree = Tree(folder, folder / "copy", 0, sample)
    try:
        trial = Trial([tree], sample, print)
        trial.run(["tests/unit/test_price.py"])
    finally:
        tree.close()
    return trial


PRICE = """
def price(age):
    if age < 6:
        return 0
    return age - 6
"""


@pytest.mark.extended
def test_a_mutant_is_killed_by_the_test_that_notices_it_and_another_survives(tmp_path: Path) -> None:
    test = "def test_price():\n    assert price(9) == 3"
    trial = tried(checkout(tmp_path, PRICE, test), "age + 6", "age <= 6")
    assert trial.killers == {0: "tests/unit/test_price.py::test_price"}
    assert (trial.reached(0), trial.reached(1), trial.broken) == (True, True, [])


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_a_slow_test_kills_a_mutant_that_another_one_hides_in_another_process(tmp_path: Path) -> None:
    tests = """
def test_broken():
    assert price(9) == 4

def test_slow():
    time.sleep(0.3)
    command = [sys.executable, "-c", "from price import price; assert price(6) == 0"]
    assert subprocess.run(command, cwd="/", env={}).returncode == 0
"""
    trial = tried(checkout(tmp_path, PRICE, tests), "age <= 6", "age + 6")
    assert trial.killers == {1: "tests/unit/test_price.py::test_slow"}
    assert trial.broken == ["tests/unit/test_price.py::test_broken"]


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_a_test_that_needs_another_one_before_it_kills_what_it_notices_and_nothing_else(tmp_path: Path) -> None:
    tests = """
FOUND = []

def test_slow():
    time.sleep(0.3)
    FOUND.append(price(9))

def test_quick():
    assert FOUND == [3]
"""
    trial = tried(checkout(tmp_path, PRICE, tests), "age <= 6", "age + 6")
    assert trial.killers == {1: "tests/unit/test_price.py::test_quick"}
    assert trial.broken == []


@pytest.mark.extended
def test_a_mutant_that_never_ends_or_cannot_be_imported_is_killed(tmp_path: Path) -> None:
    source = """
import time
FIRST = [7][0]
def price(age):
    while age != FIRST and time.sleep(0.01) is None:
        age += 1
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scripts.mutation.tree._MORE_S", 5.0)
        trial = tried(checkout(tmp_path, source, "def test_price():\n    price(3)\n"), "pass", "1")
    assert trial.killers == {0: "tests/unit/test_price.py::test_price", 1: "tests/unit/test_price.py"}


@pytest.mark.extended
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    tests = "def test_price():\n    subprocess.run(['sleep', '600'], start_new_session=True)"
    folder = checkout(tmp_path / "checkout", PRICE, tests)
    words = [str(SCRIPT), "--checkout", str(folder), "--only", "price.py", "--jobs", "1", "tests/unit"]
    env = {**os.environ, "TMPDIR": str(tmp_path / "t")}
    with subprocess.Popen([sys.executable, *words], env=env, stderr=subprocess.PIPE) as run:
        wait_until(lambda: bool(processes(tmp_path / "t")))
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=30)[1].endswith(b"interrupted\n")
    assert run.returncode == 130
    assert [*(tmp_path / "t").iterdir()] == []
    assert processes(tmp_path / "t") == []


def processes(folder: Path) -> list[str]:
    """Return the command lines of what runs with this directory as its directory for temporary files: `sleep`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to somebody else
            if f"TMPDIR={folder}/" in (path / "environ").read_text(errors="replace"):
                found.append((path / "cmdline").read_text())
    return [one for one in found if one.startswith("sleep")]


def row(killer: str | None, before: str = "a") -> MutantObject:
    return {
        "file": "price.py", "line": 3, "function": "price", "operator": "number", "before": before, "after": "b",
        "occurrence": 0, "reached": True, "killer": killer,
    }  # fmt: skip


def result(*rows: MutantObject) -> ResultObject:
    return {"seed": 1, "share": 0.5, "seconds": 1.0, "cpu": 1.0, "mutants": [*rows]}


def test_a_comparison_names_what_was_killed_before_and_is_not_now() -> None:
    before = result(row("test_1", "x"), row("test_2", "y"), row("test_3", "other"))
    text, fell = report.compare(before, result(row(None, "x"), row("test_4", "y"), row(None, "new")))
    assert fell
    assert text.splitlines() == [
        "of 2 mutants in both, 2 were killed before, 1 now",
        "killed before, but not now: 1",
        "  price.py:3: x -> b, which test_1 killed",
    ]
    assert report.compare(before, result(row("test_5", "x"), row("test_4", "y"))) == (
        "of 2 mutants in both, 2 were killed before, 2 now",
        False,
    )


def test_the_text_shows_the_share_of_each_file_and_the_lines_of_survivors() -> None:
    sample = [one for one in find("price.py", PRICE.encode()) if one.after in ("age <= 6", "age + 6")]
    rows = [report.as_object(one, reached=True, killer="test" if one.after == "age + 6" else None) for one in sample]
    lines = report.text(rows, sample, {"price.py": PRICE.encode()}).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["FILE", "KILLED", "OF", "SHARE"], ["price.py", "1", "2", "50.0%"], ["total", "1", "2", "50.0%"],
    ]  # fmt: skip
    assert lines[4:] == [
        "price.py:3 in price: comparison: survives", "-    if age < 6:", "+    if age <= 6:",
    ]  # fmt: skip
