"""Find out which mutants of a sample the tests kill, in three steps.

1. Every test file runs once, in a process of its own. This shows which mutants it reaches, also in other processes, and
   how long each test takes. Tests that fail here are not used.
2. Each mutant runs alone against quick tests, those files first that reach the most of its file per second.
3. Every test file runs again with all mutants together that have survived and that it reaches. A test that fails then
   runs with halves of them, until the mutants are found that make it fail alone. Mutants that the file no longer
   reaches, because others hide them, run once more without those. Most tests that take long run only here.

A mutant is killed if a test fails with it alone, or does not end in time. A test that takes longer than _SURE_S, and so
perhaps depends on time, must fail twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from scripts.mutation.mutants import Mutant
from scripts.mutation.tree import Outcome, Tree

Item = TypeVar("Item")

#: Tests that take at most so long (s) are quick.
_QUICK_S = 0.25
#: How long (s) a test takes that has not passed before.
_UNKNOWN_S = 10.0
#: How long (s) the tests of one mutant may take in step 2, and how many files they may be in: each has to be imported.
_ALONE_S = 4.0
_ALONE_FILES = 8
#: How long (s) it takes to start pytest, about.
_START_S = 0.6
_SURE_S = 0.05


class Trial:
    """``killers``: for each killed mutant, by its number in the sample, the test that has killed it.

    ``broken``: the tests that fail without a mutant. ``say`` is called with each event.
    """

    def __init__(self, trees: Sequence[Tree], sample: Sequence[Mutant], say: Callable[[str], None]) -> None:
        self.killers: dict[int, str] = {}
        self.broken: list[str] = []
        self._trees, self._sample, self._say = trees, sample, say
        #: By test file: the seconds of each test that passes, of the quick ones, and of the fixtures that several tests
        #: use; and the mutants that are reached.
        self._seconds: dict[str, dict[str, float]] = {}
        self._quick: dict[str, dict[str, float]] = {}
        self._shared: dict[str, float] = {}
        self._reached: dict[str, frozenset[int]] = {}
        #: The files whose quick tests are known to pass without its other tests.
        self._sound: set[str] = set()
        self._lock = threading.Lock()

    def run(self, files: Sequence[str]) -> None:
        """Run the tests of these files, which are best in the order of their duration, longest first."""
        self._say(f"step 1 of 3: {len(files)} test files without mutants")
        self._each(files, self._look)
        self._say(f"step 2 of 3: {len(self._sample)} mutants, each alone with quick tests")
        self._each(range(len(self._sample)), self._alone)
        self._say(f"step 3 of 3: {len(self._sample) - len(self.killers)} mutants together, with all tests")
        slowest = sorted(self._seconds, key=lambda file: -sum(self._seconds[file].values()))
        # The tests of units first: they find a mutant sooner, and each that they kill makes the others quicker.
        self._each([file for file in slowest if file.startswith("tests/unit/")], self._together)
        self._each([file for file in slowest if not file.startswith("tests/unit/")], self._together)

    def reached(self, number: int) -> bool:
        """Return whether any test reaches a mutant."""
        return any(number in reached for reached in self._reached.values())

    def _each(self, items: Iterable[Item], work: Callable[[Tree, Item], None]) -> None:
        """Do the work for each item, with all trees at once."""
        waiting = deque(items)

        def use(tree: Tree) -> None:
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                work(tree, item)

        with ThreadPoolExecutor(len(self._trees)) as pool:
            try:
                for over in wait([pool.submit(use, tree) for tree in self._trees], return_when=FIRST_EXCEPTION).done:
                    over.result()
            except BaseException:
                for tree in self._trees:
                    tree.close()
                raise

    def _look(self, tree: Tree, file: str) -> None:
        """Run the tests of a file without mutants; those that fail, once more."""
        outcome = tree.run([file], {})
        passed, failed = dict(outcome.passed), dict(outcome.failed)
        for test in outcome.failed:
            again = tree.run([file], {test: _UNKNOWN_S})
            passed |= again.passed
        self._say(f"{file}: {len(passed)} tests reach {len(outcome.reached)} mutants")
        broken = [test for test in failed if test not in passed]
        for test in broken:
            self._say(f"not used, because it fails without a mutant: {test}: {failed[test]}")
        quick = {test: seconds for test, seconds in passed.items() if seconds <= _QUICK_S}
        with self._lock:
            self._seconds[file], self._quick[file] = passed, quick
            self._shared[file], self._reached[file] = outcome.shared, outcome.reached
            self.broken += broken

    def _alone(self, tree: Tree, number: int) -> None:
        for files in self._batches(number):
            while test := self._first_failure(tree, files, number):
                file = test.partition("::")[0]
                if file not in self._sound:
                    self._check(tree, file)
                elif files == [file] or self._first_failure(tree, [file], number):
                    self._kill([number], test)
                    return
                else:  # it fails only after the tests of other files
                    break

    def _batches(self, number: int) -> list[list[str]]:
        """Return the test files for a mutant that runs alone: first the best one, then the others together."""
        mutant = self._sample[number]
        same = {other for other, one in enumerate(self._sample) if one.file == mutant.file}
        took = {
            file: self._shared[file] + sum(self._quick[file].values())
            for file, reached in self._reached.items()
            if number in reached and self._quick[file]
        }
        chosen: list[str] = []
        left = _ALONE_S
        for file in sorted(took, key=lambda file: -len(same & self._reached[file]) / (_START_S + took[file])):
            if took[file] <= left and len(chosen) < _ALONE_FILES:
                chosen.append(file)
                left -= took[file]
        return [files for files in (chosen[:1], chosen[1:]) if files]

    def _first_failure(self, tree: Tree, files: Sequence[str], number: int) -> str:
        """Return the first quick test of these files that fails with a mutant, or an empty string."""
        tests = {test: seconds for file in files for test, seconds in self._quick[file].items()}
        test = self._failure(tree, files, tests, [number]) if tests else ""
        if tests.get(test, 0.0) > _SURE_S:
            test = self._failure(tree, files, tests, [number])
        return test

    def _check(self, tree: Tree, file: str) -> None:
        """Do not use the quick tests of a file in step 2 if they need its other tests to run before them."""
        broken = self._failure(tree, [file], self._quick[file])
        with self._lock:
            if broken:
                self._quick[file] = {}
            self._sound.add(file)

    def _run(self, tree: Tree, files: Sequence[str], tests: Mapping[str, float], active: Sequence[int] = ()) -> Outcome:
        return tree.run(files, tests, active, sum(self._shared[file] for file in files))

    def _failure(self, tree: Tree, files: Sequence[str], tests: Mapping[str, float], active: Sequence[int] = ()) -> str:
        """Return the first test that fails, or an empty string."""
        return next(iter(self._run(tree, files, tests, active).failed), "")

    def _together(self, tree: Tree, file: str) -> None:
        group = self._alive(self._reached[file])
        if group:
            self._say(f"{file}: {len(group)} mutants together")
        while group:
            met = self._survivors_of(tree, file, group)
            hidden = self._alive(set(group) - met)
            group = hidden if len(hidden) < len(group) else []

    def _survivors_of(self, tree: Tree, file: str, group: list[int]) -> set[int]:
        """Kill the mutants of a group that the tests of a file can kill. Return those that the tests have reached."""
        tests, met = dict(self._seconds[file]), set[int]()
        while tests and (group := self._alive(group)):
            outcome = self._run(tree, [file], tests, group)
            met |= outcome.reached
            tests = {test: seconds for test, seconds in tests.items() if test not in outcome.passed}
            if not outcome.failed:
                break
            test = next(iter(outcome.failed))
            killers = self._killers(tree, file, test, group)
            self._kill(killers, test)
            if not killers:
                tests = {other: seconds for other, seconds in tests.items() if other != test} if test in tests else {}
        return met

    def _killers(self, tree: Tree, file: str, test: str, group: Iterable[int]) -> list[int]:
        """Return the mutants with which a test of a file fails, each alone.

        It runs by itself or, if it needs them, after the tests above it. There are none if it fails without a mutant.
        ``test`` may also be the file, which then cannot even be imported.
        """
        every = self._seconds[file]
        before = [*every][: [*every].index(test) + 1] if test in every else [*every]
        for chosen in ([test], before) if test in every else (before,):
            tests = {one: every[one] for one in chosen}
            if not self._failure(tree, [file], tests):
                return self._split(tree, file, tests, group)
        return []

    def _split(self, tree: Tree, file: str, tests: Mapping[str, float], group: Iterable[int]) -> list[int]:
        group = self._alive(group)
        if not group:
            return []
        outcome = self._run(tree, [file], tests, group)
        if not outcome.failed or len(group) == 1:
            return group if outcome.failed else []
        guilty = [number for number in group if number in outcome.reached]
        middle = len(guilty) // 2
        return [one for half in (guilty[:middle], guilty[middle:]) for one in self._split(tree, file, tests, half)]

    def _alive(self, numbers: Iterable[int]) -> list[int]:
        return sorted(number for number in numbers if number not in self.killers)

    def _kill(self, numbers: Iterable[int], test: str) -> None:
        with self._lock:
            for number in numbers:
                if number not in self.killers:
                    self.killers[number] = test
                    mutant = self._sample[number]
                    of = f"{len(self.killers)} of {len(self._sample)}"
                    self._say(f"killed {of}: {mutant.file}:{mutant.line} {mutant.operator}, by {test}")
