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
from scripts.mutation.tree import Tree

Item = TypeVar("Item")

#: Tests that take at most so long (s) are quick.
_QUICK_S = 0.25
#: How long (s) the quick tests of one mutant may take in step 2.
_ALONE_S = 5.0
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
        #: By test file: the seconds of each test that passes, and the mutants that it reaches.
        self._seconds: dict[str, dict[str, float]] = {}
        self._reached: dict[str, frozenset[int]] = {}
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
        outcome = tree.run([file], {})
        with self._lock:
            self._seconds[file], self._reached[file] = outcome.passed, outcome.reached
            self.broken += outcome.failed
        self._say(f"{file}: {len(outcome.passed)} tests reach {len(outcome.reached)} mutants")
        for test in outcome.failed:
            self._say(f"not used, because it fails without a mutant: {test}")

    def _alone(self, tree: Tree, number: int) -> None:
        for files in self._batches(number):
            tests = {test: seconds for file in files for test, seconds in self._quick(file).items()}
            failed = tree.run(files, tests, [number]).failed
            if failed and tests.get(failed[0], 0.0) > _SURE_S:
                failed = tree.run(files, tests, [number]).failed
            if failed:
                self._kill([number], failed[0])
                return

    def _batches(self, number: int) -> list[list[str]]:
        """Return the test files for a mutant that runs alone: first the best one, then the others together."""
        file = self._sample[number].file
        same = {other for other, mutant in enumerate(self._sample) if mutant.file == file}
        took = {file: sum(self._quick(file).values()) for file, reached in self._reached.items() if number in reached}
        best = sorted(took, key=lambda file: -len(same & self._reached[file]) / (_START_S + took[file]))
        chosen, left = [], _ALONE_S
        for each in best:
            if self._quick(each) and took[each] <= left:
                chosen.append(each)
                left -= took[each]
        return [files for files in (chosen[:1], chosen[1:]) if files]

    def _quick(self, file: str) -> dict[str, float]:
        return {test: seconds for test, seconds in self._seconds[file].items() if seconds <= _QUICK_S}

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
            outcome = tree.run([file], tests, group)
            met |= outcome.reached
            tests = {test: seconds for test, seconds in tests.items() if test not in outcome.passed}
            if not outcome.failed:
                break
            test = outcome.failed[0]
            chosen = {test: tests[test]} if test in tests else self._seconds[file]  # without its name: all of the file
            killers = self._killers(tree, file, chosen, group)
            self._kill(killers, test)
            if not killers:
                for one in chosen:
                    tests.pop(one, None)
        return met

    def _killers(self, tree: Tree, file: str, tests: Mapping[str, float], group: Iterable[int]) -> list[int]:
        """Return the mutants with which these tests fail, each alone. There are none if the tests fail without any."""
        if tree.run([file], tests).failed:
            return []
        return self._split(tree, file, tests, group)

    def _split(self, tree: Tree, file: str, tests: Mapping[str, float], group: Iterable[int]) -> list[int]:
        group = self._alive(group)
        if not group:
            return []
        outcome = tree.run([file], tests, group)
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
