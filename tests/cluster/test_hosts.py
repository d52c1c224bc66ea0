"""The faults that the fixture `hosts` makes: those of one block do not show in another."""

from __future__ import annotations

from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts


def test_a_session_of_an_earlier_block_does_not_reach_the_fault_of_a_later_one(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("kept", f"{STAY}roles: {{worker: {{replicas: 1, hosts: node1}}}}\n"))
    flag = hosts.trees["node1"] / "flag"
    command = ["sh", "-c", f"until test -e {flag}; do sleep 0.02; done"]
    with hosts.stalled(["node1"], "node", "exited"):
        early = hosts.begin("exec", "worker", "0", "--", *command)
        wait_until(lambda: any("EXEC" in unit for unit in hosts.trees["node1"].alive()), early.__repr__)
    with early, hosts.stalled(["node1"], "node", "exited") as reached:
        flag.touch()
        wait_until(lambda: any("reached" in file.read_text() for file in hosts.folder.glob("*-node1*")))
        assert not reached()
