"""`tfctl verify` when no host has a stack: each result names the cause, which determines the exit code."""

from __future__ import annotations

import json

import pytest

from tests.cluster.hosts import Hosts
from tests.cluster.test_nodes import put_gpus


def test_verify_names_the_unreachable_host_and_what_the_others_lack(hosts: Hosts) -> None:
    inventory = hosts.told("node2", ansible_port=9)
    done = hosts.with_inventory(None, "verify", inventory, "--stack", "tf2.15", "-o", "json", "--junit", "v.xml")
    results = {tuple(result["hosts"]): result for result in json.loads(done.out)["results"]}
    assert results["node2",]["state"] == results["node1",]["state"] == "failed"
    assert "node2" in results["node2",]["message"] and "node1" in results["node1",]["message"]
    assert {result["proof"] for result in results.values()} == {"tensorflow"}, "no host is left for the other proofs"
    assert done.code == json.loads(done.out)["exit"] != 0
    assert "testsuite" in (hosts.folder / "v.xml").read_text()
    assert hosts.left() == []


@pytest.mark.parametrize(
    ("expected", "state", "message"),
    [
        (None, "failed", "node1: nvidia-smi does not show the GPU at 0000:02:00.0"),
        (1, "ok", ""),
        (3, "failed", "node1: tfctl_gpus_expected is 3, and nvidia-smi shows 1; nvidia-smi does not show the GPU"),
    ],
)
def test_verify_names_a_gpu_that_is_on_the_bus_and_that_nvidia_smi_does_not_show(
    hosts: Hosts, expected: int | None, state: str, message: str
) -> None:
    put_gpus(hosts, "1", there=("1", "2"))
    inventory = hosts.told("node1", tfctl_gpus_expected=expected) if expected else hosts.inventory
    done = hosts.with_inventory(None, "verify", inventory, "--stack", "tf2.15", "-o", "json")
    (found,) = [result for result in json.loads(done.out)["results"] if result["proof"] == "gpus"]
    assert (found["hosts"], found["state"]) == (["node1"], state)
    assert found["message"].startswith(message) and bool(found["message"]) == bool(message)
    assert ("restart the host" in found["remedy"]) == (state == "failed")


def test_verify_is_refused_without_a_stack(hosts: Hosts) -> None:
    done = hosts.with_inventory(None, "verify", hosts.inventory)
    assert (done.code, "names no stack to verify" in done.err) == (2, True)


def test_verify_is_refused_if_a_variable_of_the_inventory_is_misspelt(hosts: Hosts) -> None:
    inventory = hosts.told("node1", tfctl_firewal="true")
    done = hosts.with_inventory(None, "verify", inventory, "--stack", "tf2.15")
    assert (done.code, done.out) == (3, "")
    assert "tfctl_firewal (of node1) is not a tfctl variable" in done.err and "tfctl_firewall?" in done.err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--shared", "data", "'data' is not a plain absolute path"), ("--junit", "no/v.xml", "no such directory")],
)
def test_verify_rejects_invalid_options_before_it_runs_anything(
    hosts: Hosts, option: str, value: str, said: str
) -> None:
    done = hosts.with_inventory(None, "verify", hosts.inventory, "--stack", "tf2.15", option, value)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"tfctl: {option}") and said in done.err
