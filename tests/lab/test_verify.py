"""`tfctl verify` on real nodes: it passes on working nodes and names broken ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.lab.jobs import Jobs
from tests.lab.labs import Lab
from tests.lab.test_horovod import inventory  # noqa: F401

PACKAGES = "/opt/tfctl/stacks/tf2.15/lib/python3.11/site-packages"


def verify(lab: Lab, *words: object) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """Run `tfctl verify`; return its exit code, and the results by check and hosts."""
    done = lab.tfctl("verify", *words, "-o", "json", check=False, timeout=600)
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    return done.returncode, {(result["proof"], " ".join(result["hosts"])): result for result in results}


@pytest.fixture
def leaves_nothing(cluster: Lab, tmp_path: Path) -> Iterator[None]:
    """Assert that the jobs of `tfctl verify` leave nothing on the hosts."""
    yield
    look = Jobs(cluster, tmp_path, ["verify"])
    look.assert_nothing_left()


@pytest.mark.usefixtures("leaves_nothing")
def test_verify_passes_every_check_on_a_provisioned_lab(cluster: Lab, tmp_path: Path) -> None:
    nodes, junit = list(cluster.hosts()), tmp_path / "verify.xml"
    code, results = verify(cluster, cluster.inventory, "--shared", "/srv/tfctl", "--junit", junit)
    assert code == 0, results
    for node in nodes:
        assert results["tensorflow", node]["details"]["devices"] == ["CPU:0"]
    everybody = " ".join(nodes)
    assert results["shared-directory", everybody]["state"] == "ok"
    assert results["allreduce", everybody]["details"]["replicas"] == len(nodes)
    pairs = [" ".join(pair) for pair in combinations(nodes, 2)]
    assert [hosts for proof, hosts in results if proof == "allreduce-pair"] == pairs
    suite = ElementTree.fromstring(junit.read_text())
    cases = {(case.get("classname"), case.get("name")) for case in suite}
    assert cases == set(results) and suite.get("failures") == "0"


@pytest.mark.usefixtures("leaves_nothing")
def test_burn_in_keeps_the_processors_under_load(cluster: Lab) -> None:
    code, results = verify(cluster, cluster.inventory, "--limit", "node1", "--burn-in", "0.1")
    assert code == 0, results
    [device] = results["burn-in", "node1"]["details"]["devices"]
    assert (device["device"], device["wrong"]) == ("CPU:0", 0)
    assert 0 < device["lowest_gflops"] <= device["gflops"]
    assert results["allreduce-nccl", "node1"]["message"] == "no GPU on node1"


@pytest.mark.usefixtures("leaves_nothing")
def test_verify_checks_horovod_with_gloo_and_mpirun(cluster: Lab, inventory: Path) -> None:  # noqa: F811
    code, results = verify(cluster, inventory, "--limit", "node1,node2")
    assert code == 0, results
    for proof in ("horovod-gloo", "horovod-mpi"):
        assert results[proof, "node1 node2"]["details"]["ranks"] == 2
        assert results[f"{proof}-pair", "node1 node2"]["details"]["mb_per_s"] > 0


@contextmanager
def blocked(lab: Lab, node: str, other: str) -> Iterator[None]:
    """Let the node drop all packets from the other one, except those for ssh."""
    address = lab.hosts()[other]["ansible_host"]
    rule = f"nft add rule inet cut in ip saddr {address} tcp dport != 22 drop"
    chain = "nft add chain inet cut in '{ type filter hook input priority 0; }'"
    lab.shell(node, f'sudo sh -c "nft add table inet cut; {chain}; {rule}"')
    try:
        yield
    finally:
        lab.shell(node, "sudo nft delete table inet cut")


@pytest.mark.slow
@pytest.mark.usefixtures("leaves_nothing")
def test_verify_names_a_pair_of_hosts_that_cannot_communicate(cluster: Lab) -> None:
    with blocked(cluster, "node2", "node3"):
        code, results = verify(cluster, cluster.inventory, "--limit", "node1,node2,node3")
    assert code == 1
    assert {hosts for (proof, hosts), each in results.items() if each["state"] == "failed"} == {
        "node1 node2 node3", "node2 node3",
    }  # fmt: skip
    assert "they cannot connect to each other over TCP" in results["allreduce-pair", "node2 node3"]["message"]
    assert "firewall" in results["allreduce", "node1 node2 node3"]["remedy"]


@pytest.mark.slow
@pytest.mark.usefixtures("leaves_nothing")
def test_verify_names_broken_hosts_and_checks_the_others(cluster: Lab) -> None:
    broken, unshared = "node1", "node2"
    library = cluster.shell(broken, f"ls {PACKAGES}/tensorflow/libtensorflow_framework.so.2")
    cluster.shell(broken, f"sudo mv {library} {library}.away")
    cluster.shell(unshared, "sudo mount -t tmpfs -o mode=1777 tmpfs /srv/tfctl")
    try:
        words = (cluster.inventory, "--limit", "node1,node2,node3", "--shared", "/srv/tfctl")
        code, results = verify(cluster, *words)
    finally:
        cluster.shell(broken, f"sudo mv {library}.away {library}")
        cluster.shell(unshared, "sudo umount -l /srv/tfctl")
    assert code == 1
    assert "libtensorflow_framework.so.2" in results["tensorflow", broken]["message"]
    assert results["tensorflow", unshared]["state"] == "ok"
    shared = results["shared-directory", "node2 node3"]
    assert shared["state"] == "failed" and "does not show what" in shared["message"]
    assert results["allreduce", "node2 node3"]["state"] == "ok"
