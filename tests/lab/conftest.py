"""The labs of a test run: created when a test needs one, deleted at the end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.lab.durations import pytest_terminal_summary as pytest_terminal_summary
from tests.lab.jobs import Jobs
from tests.lab.labs import LABS, TFCTL, Lab
from tfctl.errors import Exit

PREFIX = "test-"
#: Seconds that a test may take if it does not set a limit of its own. No limit includes the fixtures, which limit their
#: own waits: the first of them builds an image and downloads a stack, and the last deletes the nodes.
LIMIT_S = 120

# A shell lets background processes ignore SIGINT, and children inherit that. Tests send SIGINT to tfctl.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", action="store_true", help="keep the lab of the run for inspection")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            own = item.get_closest_marker("timeout")
            seconds = own.args[0] if own else LIMIT_S
            item.add_marker(pytest.mark.timeout(seconds, func_only=True), append=False)
    # Files that run alone come first, while the other process still creates its nodes; then those with the most tests.
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.get_closest_marker("alone") is not None, tests[item.path]), reverse=True)


class Processors:
    """What keeps all processors busy is done only while the other process of the run waits.

    Otherwise commands that take seconds would take minutes, and exceed their limits.
    """

    held = False

    @classmethod
    @contextmanager
    def hold(cls, *, alone: bool) -> Iterator[None]:
        """Use the processors, ``alone`` or beside the other process."""
        LABS.parent.mkdir(parents=True, exist_ok=True)
        with (LABS.parent / "processors.lock").open("w") as lock:
            # Wait in turn: otherwise the other process could begin one file after another meanwhile.
            with (LABS.parent / "turn.lock").open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            cls.held = True
            try:
                yield
            finally:
                cls.held = False


@pytest.fixture(scope="module", autouse=True)
def processors(request: pytest.FixtureRequest) -> Iterator[None]:
    with Processors.hold(alone=request.node.get_closest_marker("alone") is not None):
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once, because the report of a run comes after half an hour."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext}", flush=True)


@pytest.fixture(scope="session")
def run_name() -> str:
    """The prefix of the names of this run's labs. Deletes first what killed runs have left."""
    commands = [
        *(["down", "--name", entry.name] for entry in LABS.glob(f"{PREFIX}*") if not lives(entry.name)),
        *(["snapshot", name, "--delete"] for name in snapshots() if name.startswith(PREFIX) and not lives(name)),
    ]
    for words in commands:
        done = subprocess.run([TFCTL, "lab", *words], capture_output=True, timeout=180)
        assert done.returncode in (0, Exit.NOT_FOUND), done.stderr  # the other process of the run may be faster
    return f"{PREFIX}{os.getpid()}"


def lives(name: str) -> bool:
    """Return whether the process after which a lab or snapshot is named runs."""
    return Path("/proc", name.removeprefix(PREFIX).partition("-")[0]).exists()


def snapshots() -> list[str]:
    return [file.stem for file in (LABS.parent / "snapshots").glob("*.json")]


@pytest.fixture(scope="module")
def node(run_name: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab of one bare node. The module sets the end of its name: NODE = "alone"."""
    suffix: str = request.module.NODE
    found = Lab(f"{run_name}-{suffix}", tmp_path_factory.mktemp(suffix))
    found.up("--nodes", 1)
    try:
        yield found
    finally:
        found.down()


@pytest.fixture(scope="session")
def cluster(run_name: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Four nodes after `tfctl provision`, for the whole run, or those of the lab that TFCTL_TEST_LAB names.

    The first process of the run provisions bare nodes. The others boot theirs from its snapshot.
    """
    standing = os.environ.get("TFCTL_TEST_LAB")
    found = Lab(standing or run_name, tmp_path_factory.mktemp("lab"))
    # Named after the process that has started the others.
    snapshot = f"{PREFIX}{os.getppid()}" if "PYTEST_XDIST_WORKER" in os.environ and not standing else ""
    taken = False
    try:
        # pytest sets this fixture up before `processors`, unless the first test of a file does not need it. Then this
        # process has locked the processors already, and would wait for itself.
        with nullcontext() if Processors.held else Processors.hold(alone=True):
            if snapshot and snapshot in snapshots():
                found.up("--from", snapshot)
            else:
                found.up()
            found.tfctl("provision", found.inventory, timeout=400)
            if snapshot and snapshot not in snapshots():
                taken = True
                found.tfctl("lab", "snapshot", snapshot, "--name", found.name)
        yield found
    finally:
        if taken:
            found.tfctl("lab", "snapshot", snapshot, "--delete")
        if not standing and not request.config.getoption("--keep"):
            found.down()


@pytest.fixture
def jobs(cluster: Lab, tmp_path: Path) -> Iterator[Jobs]:
    """For the jobs of one test, which are stopped at its end."""
    found = Jobs(cluster, tmp_path)
    yield found
    found.clean()


@pytest.fixture(scope="module")
def module_jobs(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    found = Jobs(cluster, tmp_path_factory.mktemp("jobs"))
    yield found
    found.clean()
