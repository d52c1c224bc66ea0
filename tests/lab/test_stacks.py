"""Classic stacks beside modern ones on one Debian 12 node, with Python trees of this machine, and rollback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import expected_state
from tests.lab.jobs import Jobs, lines_of_task
from tests.lab.labs import Lab
from tests.lab.test_provision import by_name, provision

pytestmark = pytest.mark.timeout(900)

PROGRAMS = Path(__file__).parent / "programs"
#: The directory of CPython trees on this machine, as pyenv creates them.
TREES = Path(os.environ.get("TFCTL_TEST_PYTHONS", "~/.pyenv/versions")).expanduser()
STACKS = "/opt/tfctl/stacks"


def tree(version: str) -> Path:
    found = next(iter(sorted(TREES.glob(f"{version}.*"))), None)
    if found is None:
        pytest.skip(f"no CPython {version} in {TREES} (TFCTL_TEST_PYTHONS)")
    return found


@pytest.fixture(scope="module")
def node(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One bare node, or the first one of the lab that TFCTL_TEST_LAB names. Skip the tests if this machine lacks
    CPython 3.6 or 3.7."""
    for version in ("3.6", "3.7"):
        tree(version)
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
    jobs = Jobs(node, tmp_path)
    yield jobs
    jobs.clean()


def install(node: Lab, stack: str, *words: object) -> dict[str, Any]:
    """Provision node1 with a stack, which must succeed; return the entry of node1 in the report."""
    code, report, stderr = provision(node, "--stack", stack, "--limit", "node1", *words)
    assert code == 0, stderr
    return by_name(report)["node1"]


def link_target(node: Lab, stack: str) -> str:
    return node.shell("node1", f"readlink {STACKS}/{stack}")


def log_of(classic: Jobs, name: str, text: str) -> str:
    """Run a job with the classic programs, which must succeed; return its log."""
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
def test_classic_stacks_are_installed_beside_modern_ones(node: Lab) -> None:
    for stack, python in (("tf1.15", "3.7"), ("tf2.0", "3.6")):
        install(node, stack, "--python-tree", tree(python))
        inside = node.shell("node1", f"sudo -u tfctl readlink -f {STACKS}/{stack}/bin/python")
        assert inside.startswith(f"/opt/tfctl/pythons/cpython-{python}.")
    install(node, "tf2.15")
    install(node, "tf2.21")
    for stack in ("tf1.15", "tf2.0", "tf2.15", "tf2.21"):
        assert install(node, stack)["changed"] == 0, stack
        assert link_target(node, stack).startswith(f"{stack}-")


@pytest.mark.slow
def test_classic_programs_run_unchanged(classic: Jobs) -> None:
    log = log_of(classic, "flags", FLAGS)
    worker = lines_of_task(log, "worker/0")
    assert {"tensorflow 1.15.5 on python 3.7", "chief: True", "loss 0.000000"} <= set(worker)
    log = log_of(classic, "keras", KERAS)
    for task, chief in (("worker/0", True), ("worker/1", False)):
        output = {"tensorflow 2.0.0 on python 3.6", f"chief: {chief}, replicas: 2", "loss 0.000000"}
        assert output <= set(lines_of_task(log, task))


@pytest.mark.slow
def test_rollback_restores_the_previous_environment_unless_a_job_uses_it(classic: Jobs) -> None:
    node, back = classic.lab, ("--stack", "tf1.15", "--limit", "node1", "--rollback")
    first = link_target(node, "tf1.15")
    code, report, _ = provision(node, *back)
    assert (code, by_name(report)["node1"]["reason"]) == (1, f"tf1.15 has no environment before {first}")
    install(node, "tf1.15", "--python-tree", tree("3.6"))
    second = link_target(node, "tf1.15")
    assert second != first
    file = classic.file("holder", "stack: tf1.15\ncommand: sleep 300\nroles: {worker: {replicas: 1, hosts: node1}}\n")
    classic.ok("start", file)
    code, report, _ = provision(node, *back)
    assert code == 1 and by_name(report)["node1"]["reason"].startswith("tfctl-holder-worker-0.service: running with")
    classic.ok("stop", "holder")
    assert provision(node, *back, "--check")[1]["changed"] == 1
    assert link_target(node, "tf1.15") == second
    assert provision(node, *back)[0] == 0
    assert link_target(node, "tf1.15") == first
    assert provision(node, *back)[0] == 0
    assert link_target(node, "tf1.15") == second


@pytest.mark.slow
def test_stacks_explain_says_what_a_host_would_get(node: Lab) -> None:
    done = node.tfctl("stacks", "explain", "tf1.15", "--host", "node1", "-i", node.inventory, timeout=60)
    assert "  before it      tf1.15-" in done.stdout and "(in use)" in done.stdout
    assert "tf2.18  would do, with Python 3.11 from this host" in done.stdout


@pytest.mark.slow
def test_damaged_python_tree_is_sent_again(node: Lab) -> None:
    python = node.shell("node1", f"readlink -f {STACKS}/tf2.0/bin/python")
    home, host = str(Path(python).parents[1]), node.testinfra("node1")
    expected_state.python_env(host, home, "3.6")
    node.shell("node1", f"sudo rm {home}/lib/python3.6/ssl.py")
    expected_state.is_violated(expected_state.python_env, host, home, "3.6")
    code, report, _ = provision(node, "--stack", "tf2.0", "--limit", "node1", "--tags", "preflight")
    assert code == 0, "preflight accepts the other tree"
    assert install(node, "tf2.0", "--python-tree", tree("3.6"), "--check")["changed"] >= 1
    install(node, "tf2.0", "--python-tree", tree("3.6"))
    expected_state.python_env(host, home, "3.6")
    for words in ((), ("--check",)):
        assert install(node, "tf2.0", *words)["changed"] == 0
    assert report["changed"] == 0
