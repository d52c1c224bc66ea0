"""Cases of the fuzzers. Each gets a source of random numbers of its own, so that one that fails can be run alone."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from random import Random

import pytest

#: The marks of a fuzzer. Its CPU time is limited, so its time depends on what else the machine does.
FUZZER = [pytest.mark.extended, pytest.mark.timeout(600)]
#: The longest CPU time (s) of a fuzzer and the programs that it runs. It ends with fewer cases then.
LIMIT_S = 20.0


class Cases:
    """Iterate over (number, source of random numbers), and collect what is wrong.

    The cases are the same in each run, unless FUZZ_SEED is another number. FUZZ_CASE=NUMBER runs this one alone.
    ``made``: how many cases there were.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._seed = os.environ.get("FUZZ_SEED", "1")
        self._faults: dict[str, str] = {}
        self.made = 0

    def __iter__(self) -> Iterator[tuple[int, Random]]:
        until = _cpu_time() + LIMIT_S
        alone = os.environ.get("FUZZ_CASE")
        for number in [int(alone)] if alone else range(self._count):
            if _cpu_time() > until:
                break
            self.made += 1
            yield number, Random(f"{self._seed} {number}")

    def fault(self, number: int, what: str, example: object) -> None:
        """Note what is wrong with a case. Only the first one of each kind is kept."""
        self._faults.setdefault(what[:200], f"case {number}: {example!r:.1000}")

    def require_none(self, least: int = 1) -> None:
        """Fail if anything was wrong, or if there were fewer than ``least`` cases."""
        assert not self._faults, "\n".join(f"{what}\n    {example}" for what, example in self._faults.items())
        assert self.made >= least or "FUZZ_CASE" in os.environ, f"only {self.made} cases"


def _cpu_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
