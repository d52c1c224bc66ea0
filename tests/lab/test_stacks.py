"""Classic stacks beside a modern one on one Debian 12 node, with Pythons of this machine; there and back again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made
import pytest
from jobs import Jobs, said_by
from labs import Lab
from test_provision import by_name, provision

pytestmark = pytest.mark.timeout(600)

PROGRAMS = Path(__file__).parent / "programs"
#: Where this machine has CPython trees, as pyenv keeps them.
TREES = Path(os.environ.get("TFCTL_TEST_PYTHONS", "~/.pyenv/versions")).expanduser()
STACKS = "/opt/tfctl/stacks"


def tree(version: str) -> Path:
    found = next(iter(sorted(TREES.glob(f"{version}.*"))), None)
    if found is None:
        pytest.skip(f"no CPython {version} in {TREES} (TFCTL_TEST_PYTHONS)")
    return found


@pytest.fixture(scope="module")
def node(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One bare node; of the lab that TFCTL_TEST_LAB names the first, where it is set."""
    standing = os.environ.get("TFCTL_TEST_LAB")
    found = Lab(standing or f"{run_name}-classic", tmp_path_factory.mktemp("classic"))
    found.up(*(() if standing else ("--nodes", 1)))
    try:
        yield found
    finally:
        if not standing:
            found.down()


@pytest.fixture
def classic(node: Lab, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(node, tmp_path)
    yield made
    made.clean()


def bring(node: Lab, stack: str, *words: object) -> dict[str, Any]:
    """What became of node1, which must be right."""
    code, report, told = provision(node, "--stack", stack, "--limit", "node1", *words)
    assert code == 0, told
    return by_name(report)["node1"]


def leads_to(node: Lab, stack: str) -> str:
    return node.said("node1", f"readlink {STACKS}/{stack}")


def trained(classic: Jobs, name: str, text: str) -> str:
    """The log of a job with the programs of this folder, which must end well."""
    file = classic.file(name, text)
    for program in PROGRAMS.glob("classic_*.py"):
        shutil.copy(program, file.parent)
    done = classic("start", file, "--wait", "--timeout", "2m", timeout=150)
    log = classic.ok("logs", "--job", name)
    assert done.returncode == 0, done.stderr + log[-3000:]
    return log


FLAGS = """
    strategy: tf1_ps
    stack: tf1.15
    command: >-
      python classic_flags.py --job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}
    roles: {ps: {replicas: 1, hosts: node1}, worker: {replicas: 1, hosts: node1}}
"""
KERAS = """
    strategy: multi_worker_mirrored
    stack: tf2.0
    command: python classic_keras.py
    roles: {worker: {replicas: 2, hosts: node1}}
"""


@pytest.mark.slow
def test_classic_stacks_stand_beside_modern_ones(node: Lab) -> None:
    for stack, python in (("tf1.15", "3.7"), ("tf2.0", "3.6")):
        bring(node, stack, "--python-tree", tree(python))
        inside = node.said("node1", f"sudo -u tfctl readlink -f {STACKS}/{stack}/bin/python")
        assert inside.startswith(f"/opt/tfctl/pythons/cpython-{python}.")
    bring(node, "tf2.15")
    bring(node, "tf2.21")
    for stack in ("tf1.15", "tf2.0", "tf2.15", "tf2.21"):
        assert bring(node, stack)["changed"] == 0, stack
        assert leads_to(node, stack).startswith(f"{stack}-")


@pytest.mark.slow
def test_programs_of_their_time_run_unchanged(classic: Jobs) -> None:
    log = trained(classic, "flags", FLAGS)
    worker = said_by(log, "worker/0")
    assert {"tensorflow 1.15.5 on python 3.7", "chief: True", "loss 0.000000"} <= set(worker)
    log = trained(classic, "keras", KERAS)
    for task, chief in (("worker/0", True), ("worker/1", False)):
        said = {"tensorflow 2.0.0 on python 3.6", f"chief: {chief}, replicas: 2", "loss 0.000000"}
        assert said <= set(said_by(log, task))


@pytest.mark.slow
def test_a_stack_goes_back_to_what_it_was_and_not_under_a_job(classic: Jobs) -> None:
    node, back = classic.lab, ("--stack", "tf1.15", "--limit", "node1", "--rollback")
    first = leads_to(node, "tf1.15")
    code, report, _ = provision(node, *back)
    assert (code, by_name(report)["node1"]["reason"]) == (1, f"of tf1.15 there is no environment before {first}")
    bring(node, "tf1.15", "--python-tree", tree("3.6"))
    second = leads_to(node, "tf1.15")
    assert second != first
    file = classic.file("holder", "stack: tf1.15\ncommand: sleep 300\nroles: {worker: {replicas: 1, hosts: node1}}\n")
    classic.ok("start", file)
    code, report, _ = provision(node, *back)
    assert code == 1 and by_name(report)["node1"]["reason"].startswith("tfctl-holder-worker-0.service: running with")
    classic.ok("stop", "holder")
    assert provision(node, *back, "--check")[1]["changed"] == 1
    assert leads_to(node, "tf1.15") == second
    assert provision(node, *back)[0] == 0
    assert leads_to(node, "tf1.15") == first
    assert provision(node, *back)[0] == 0
    assert leads_to(node, "tf1.15") == second


@pytest.mark.slow
def test_what_a_host_would_get_is_told(node: Lab) -> None:
    done = node.tfctl("stacks", "explain", "tf1.15", "--host", "node1", "-i", node.inventory, timeout=60)
    assert "  before it      tf1.15-" in done.stdout and "(in use)" in done.stdout
    assert "tf2.18  would do, with Python 3.11 from this host" in done.stdout


@pytest.mark.slow
def test_a_tree_that_was_broken_is_sent_again(node: Lab) -> None:
    python = node.said("node1", f"readlink -f {STACKS}/tf2.0/bin/python")
    home, host = str(Path(python).parents[1]), node.testinfra("node1")
    made.python_env(host, home, "3.6")
    node.said("node1", f"sudo rm {home}/lib/python3.6/ssl.py")
    made.seen(made.python_env, host, home, "3.6")
    code, report, _ = provision(node, "--stack", "tf2.0", "--limit", "node1", "--tags", "preflight")
    assert code == 0, "the other tree would do"
    assert bring(node, "tf2.0", "--python-tree", tree("3.6"), "--check")["changed"] >= 1
    bring(node, "tf2.0", "--python-tree", tree("3.6"))
    made.python_env(host, home, "3.6")
    for words in ((), ("--check",)):
        assert bring(node, "tf2.0", *words)["changed"] == 0
    assert report["changed"] == 0
