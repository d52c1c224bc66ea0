"""The labs of a run: made when a test needs one, gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import Jobs
from labs import LABS, TFCTL, Lab

PREFIX = "test-"

# Whoever runs the tests in the background of a shell passes on that SIGINT is ignored; a test sends it to tfctl.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", action="store_true", help="leave the run's labs standing, to look at")


@pytest.fixture(scope="session")
def run_name() -> str:
    """What the labs of this run are called, and no other's. What a run left that was killed is cleared first."""
    for entry in LABS.glob(f"{PREFIX}*"):
        if not Path("/proc", entry.name.removeprefix(PREFIX).partition("-")[0]).exists():
            subprocess.run([TFCTL, "lab", "down", "--name", entry.name], check=True, capture_output=True, timeout=180)
    return f"{PREFIX}{os.getpid()}"


@pytest.fixture(scope="session")
def lab(run_name: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Four nodes for the whole run; those of the lab that TFCTL_TEST_LAB names, where it is set."""
    standing = os.environ.get("TFCTL_TEST_LAB")
    found = Lab(standing or run_name, tmp_path_factory.mktemp("lab"))
    try:
        found.up()
        yield found
    finally:
        if not standing and not request.config.getoption("--keep"):
            found.down()


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Lab:
    """The run's lab, ready for jobs."""
    lab.tfctl("provision", lab.inventory, timeout=400)
    return lab


@pytest.fixture
def jobs(cluster: Lab, tmp_path: Path) -> Iterator[Jobs]:
    """For jobs of one test, which are stopped at its end."""
    made = Jobs(cluster, tmp_path)
    yield made
    made.clean()


@pytest.fixture(scope="module")
def module_jobs(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    made = Jobs(cluster, tmp_path_factory.mktemp("jobs"))
    yield made
    made.clean()
