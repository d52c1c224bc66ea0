"""The command line of `scripts/mutants`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.mutation import report
from scripts.mutation.mutants import Mutant, draw, find
from scripts.mutation.report import ResultObject
from scripts.mutation.tree import Interrupted, Tree
from scripts.mutation.trial import Trial

ROOT = Path(__file__).resolve().parents[2]
#: What decides about jobs and hosts: a mistake there is not seen before a job or a host fails.
TARGETS = (
    "tfctl/node/judge.py", "tfctl/node/states.py", "tfctl/node/checks.py", "tfctl/node/guard/rules.py",
    "tfctl/node/wire/codec.py", "tfctl/model/assign.py", "tfctl/model/layout.py", "tfctl/model/strategies/*.py",
    "tfctl/provision/decide/driver.py",
)  # fmt: skip
TESTS = ("tests/cluster", "tests/ssh", "tests/unit")
_EPILOG = """\
examples:
  scripts/mutants -o json > before.json
  scripts/mutants --against before.json           after a change of the tests: exit code 1 if fewer are killed
  scripts/mutants --checkout ../old -o json       the same sample against the tests of another checkout
  scripts/mutants --only tfctl/node/judge.py --count 50 tests/unit/node
"""


@dataclass(frozen=True)
class Options:
    """``tests`` and ``sources``: paths in the checkout. ``before``: an earlier result."""

    tests: list[str]
    checkout: Path
    sources: list[str]
    count: int
    seed: int
    jobs: int
    before: ResultObject | None
    json: bool


def main(words: Sequence[str]) -> int:
    """Run the mutants and print the result on stdout. Return an exit code: 1 if fewer are killed than before."""
    options = parse(words)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT in what it starts in the background
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    sources = {file: (options.checkout / file).read_bytes() for file in options.sources}
    sample = draw([one for file, source in sources.items() for one in find(file, source)], options.count, options.seed)
    try:
        trial = _tried(options, sample)
    except (KeyboardInterrupt, Interrupted):
        _say("interrupted")
        return 130
    mutants = [
        report.as_object(one, reached=trial.reached(number), killer=trial.killers.get(number))
        for number, one in enumerate(sample)
    ]
    share, seconds = len(trial.killers) / len(sample), time.monotonic() - began
    result: ResultObject = {
        "seed": options.seed, "share": round(share, 4), "seconds": round(seconds), "cpu": round(_cpu()),
        "mutants": mutants,
    }  # fmt: skip
    print(json.dumps(result, indent=2) if options.json else report.text(mutants, sample, sources))
    _say(f"{share:.1%} of {len(sample)} mutants killed in {seconds / 60:.1f} minutes on {os.cpu_count()} cores")
    if options.before is None:
        return 0
    compared, fell = report.compare(options.before, result)
    print(compared, file=sys.stderr)
    return int(fell)


def parse(words: Sequence[str]) -> Options:
    """Parse the command line; exit with code 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="mutants",
        description="Change the source of tfctl in many small ways, one by one, and count the changes (mutants) that\n"
        "the tests notice. By default, change what decides about jobs and hosts:\n\n  "
        + "\n  ".join(TARGETS)
        + "\n\nAll changes are made in copies of the checkout. Needs Linux and .venv.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = 2 * (os.cpu_count() or 1)
    parser.add_argument("tests", metavar="TESTS", nargs="*", default=TESTS, help=f"default: {' '.join(TESTS)}")
    parser.add_argument("--checkout", metavar="DIRECTORY", type=Path, default=ROOT, help="default: this one")
    parser.add_argument("--only", metavar="FILE", action="append", help="a source to change; may be repeated")
    parser.add_argument("--count", metavar="N", type=_number, default=300, help="mutants in the sample; default: 300")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="choose another sample; default: 1")
    parser.add_argument("--jobs", metavar="N", type=_number, default=jobs, help=f"tests at a time; default: {jobs}")
    parser.add_argument("--against", metavar="FILE", type=Path, help="compare with an earlier result (-o json)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    found = parser.parse_args(words)
    checkout = found.checkout.resolve()
    sources = [path for pattern in found.only or TARGETS for path in sorted(checkout.glob(pattern))]
    tests = _test_files(checkout, found.tests)
    if not sources or not tests:
        parser.error(f"{checkout} has no such {'tests' if sources else 'source'}")
    try:
        before = json.loads(found.against.read_text()) if found.against else None
    except (OSError, ValueError) as error:
        parser.error(f"--against {found.against}: {error}")
    return Options(
        tests, checkout, [str(path.relative_to(checkout)) for path in sources], found.count, found.seed, found.jobs,
        before, found.output == "json",
    )  # fmt: skip


def _test_files(checkout: Path, names: Sequence[str]) -> list[str]:
    """Return the files with tests, those first that probably take the longest."""
    sizes: dict[str, int] = {}
    for name in names:
        for path in [checkout / name] if (checkout / name).is_file() else (checkout / name).rglob("test_*.py"):
            sizes[str(path.relative_to(checkout))] = path.stat().st_size
    slow = ("tests/cluster/", "tests/ssh/")
    return sorted(sizes, key=lambda name: (not name.startswith(slow), -sizes[name]))


def _tried(options: Options, sample: Sequence[Mutant]) -> Trial:
    with tempfile.TemporaryDirectory(prefix="m-") as name:  # short, because sockets below it have paths of 108 bytes
        folder = Path(name)
        folder.chmod(0o755)
        trees: list[Tree] = []
        try:
            for number in range(options.jobs):
                (folder / str(number)).mkdir()
                trees.append(Tree(options.checkout, folder / str(number), number, sample))
            trial = Trial(trees, sample, _say)
            trial.run(options.tests)
        finally:
            for tree in trees:
                tree.close()
    return trial


def _number(word: str) -> int:
    if not word.isdecimal() or int(word) == 0:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number above 0")
    return int(word)


def _cpu() -> float:
    """Return the CPU seconds of all runs that have ended."""
    return sum(os.times()[2:4])


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} CPU {_cpu():4.0f} s  {text}", file=sys.stderr, flush=True)
