"""Horovod with tf1.15, tf2.0 and tf2.15 on the same two nodes, with Python trees of this machine.

Where this machine keeps no wheels for them yet, the first test waits for three builds: some minutes of two cores.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.jobs import Jobs
from tests.lab.labs import Lab
from tests.lab.test_horovod import TWO, assert_averages, inventory  # noqa: F401
from tests.lab.test_provision import provision
from tests.lab.test_stacks import tree
from tests.lab.test_verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]  # it compiles

PYTHONS = {"tf1.15": "3.7", "tf2.0": "3.6"}


@pytest.fixture(scope="module")
def stacks(cluster: Lab, inventory: Path) -> Path:  # noqa: F811
    """The inventory of nodes on which all three stacks are installed with Horovod."""
    for stack, python in PYTHONS.items():
        words = ("--stack", stack, "--python-tree", tree(python), *TWO)
        cluster.tfctl("provision", inventory, *words, timeout=900)
    return inventory


@pytest.mark.parametrize(("stack", "version"), [("tf1.15", "0.19.5"), ("tf2.0", "0.18.2"), ("tf2.15", "0.28.1")])
def test_horovod_reduces_with_three_stacks_on_the_same_hosts(
    cluster: Lab, stacks: Path, stack: str, version: str
) -> None:
    code, report, _ = provision(cluster, "--stack", stack, *TWO, inventory=stacks)
    assert (code, report["changed"]) == (0, 0)
    code, results = verify(cluster, stacks, "--stack", stack, *TWO)
    assert code == 0, results
    assert results["tensorflow", "node1"]["details"]["horovod"] == version
    for proof in ("horovod-gloo", "horovod-mpi"):
        found = results[proof, "node1 node2"]["details"]
        assert found["ranks"] == 2
        assert found["mb_per_s"] < 5000, "too fast: the ranks did not use the network"


@pytest.mark.parametrize("launcher", ["gloo", "mpi"])
@pytest.mark.parametrize(
    ("stack", "program", "tensorflow"),
    [("tf1.15", "horovod_hooks.py", "1.15.5"), ("tf2.0", "horovod_keras.py", "2.0.0")],
)
def test_horovod_programs_of_old_tensorflow_run_unchanged(
    cluster: Lab, stacks: Path, tmp_path: Path, stack: str, program: str, tensorflow: str, launcher: str
) -> None:
    versions = f"tensorflow {tensorflow} on python {PYTHONS[stack]}"
    assert_averages(Jobs(cluster, tmp_path, inventory=stacks), program, launcher, stack, versions)
