"""`tfctl verify` where there is nothing to prove: each host says why, and the exit code is the cause's."""

from __future__ import annotations

import json

import pytest
from hosts import Hosts


def test_a_host_that_cannot_be_reached_is_named_and_so_is_what_the_others_lack(hosts: Hosts) -> None:
    inventory = hosts.told("node2", ansible_port=9)
    done = hosts.with_inventory(None, "verify", inventory, "--stack", "tf2.15", "-o", "json", "--junit", "v.xml")
    results = {tuple(result["hosts"]): result for result in json.loads(done.out)["results"]}
    assert results["node2",]["state"] == results["node1",]["state"] == "failed"
    assert "node2" in results["node2",]["message"] and "node1" in results["node1",]["message"]
    assert {result["proof"] for result in results.values()} == {"tensorflow"}, "nobody is left for the others"
    assert done.code == json.loads(done.out)["exit"] != 0
    assert "testsuite" in (hosts.folder / "v.xml").read_text()
    assert hosts.left() == []


def test_without_a_stack_there_is_nothing_to_verify(hosts: Hosts) -> None:
    done = hosts.with_inventory(None, "verify", hosts.inventory)
    assert (done.code, "names no stack to verify" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--shared", "data", "'data' is not a plain absolute path"), ("--junit", "no/v.xml", "no such directory")],
)
def test_what_cannot_be_is_said_before_anything_runs(hosts: Hosts, option: str, value: str, said: str) -> None:
    done = hosts.with_inventory(None, "verify", hosts.inventory, "--stack", "tf2.15", option, value)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"tfctl: {option}") and said in done.err
