"""Wheels leave the control machine once, and then go from host to host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.test_provision import edited
from tfctl.lab import spec

pytestmark = pytest.mark.timeout(420)

STORE = "/var/cache/tfctl/wheels"
NODES = ("node1", "node2", "node3", "node4")
LIST = f"cd {STORE} && ls"


class Meter:
    """The bytes that this machine has sent to the nodes. Frames between nodes do not count."""

    def __init__(self, lab: Lab) -> None:
        self._file = Path(f"/sys/class/net/{spec.bridge(lab.name)}/statistics/tx_bytes")
        self._begin = self._now()

    def _now(self) -> int:
        return int(self._file.read_text())

    @property
    def bytes(self) -> int:
        return self._now() - self._begin


@contextmanager
def without_stack(lab: Lab, *without_store: str) -> Iterator[Meter]:
    """Remove the stack from all nodes, and the store from some, and count the bytes that are sent in the block."""
    for node in NODES:
        store = STORE if node in without_store else ""
        lab.root_script(node, f"rm -rf /opt/tfctl/stacks/tf2.15* {store}", 60)
    yield Meter(lab)


def provision(lab: Lab, inventory: Path | None = None) -> str:
    """Install the stack on all nodes; return stderr."""
    words = ("provision", inventory or lab.inventory, "--tags", "tensorflow", "-o", "json")
    done = lab.tfctl(*words, timeout=400)
    assert json.loads(done.stdout)["exit"] == 0
    for node in NODES:
        expected_state.tensorflow(lab.testinfra(node), "tf2.15", "3.11")
        wrong = lab.shell(node, f"{LIST} | while read name; do echo $name $name; done | sha256sum --quiet -c", 120)
        assert wrong == ""
    return done.stderr


def size_of_store(lab: Lab) -> int:
    return int(lab.shell("node1", f"du -sb {STORE}").split()[0])


def test_each_wheel_leaves_the_control_machine_once(cluster: Lab) -> None:
    with without_stack(cluster, *NODES) as meter:
        said = provision(cluster)
        sent = meter.bytes
    assert sent < 1.3 * size_of_store(cluster)
    assert len({cluster.shell(node, LIST) for node in NODES}) == 1
    assert "this machine sends" not in said
    for node in NODES:
        assert not cluster.testinfra(node).service("tfctl_wheels").is_running


@pytest.mark.slow
def test_only_missing_wheels_are_sent(cluster: Lab) -> None:
    whole = size_of_store(cluster)
    largest = cluster.shell("node1", f"ls -S {STORE} | head -1")
    smallest = cluster.shell("node1", f"ls -rS {STORE} | head -1")
    with without_stack(cluster) as meter:
        for node in NODES:
            cluster.root_script(node, f"rm {STORE}/{smallest}; test {node} = node3 || rm {STORE}/{largest}", 20)
        provision(cluster)
        assert meter.bytes < whole / 4


@pytest.mark.slow
def test_control_machine_sends_the_wheels_to_hosts_that_reach_no_other_host(cluster: Lab, tmp_path: Path) -> None:
    nowhere = dict.fromkeys(NODES, "tfctl_address=192.0.2.1")
    with without_stack(cluster, *NODES[1:]):
        said = provision(cluster, edited(cluster, tmp_path, **nowhere))
    assert "this machine sends the wheels to the host, because http://192.0.2.1:" in said
