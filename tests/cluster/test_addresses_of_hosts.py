"""Hosts that are one machine, or that other hosts cannot reach: `start` says so at once, and leaves nothing."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import forget_files

from tests.cluster.hosts import STAY, Hosts

THREE = STAY + "roles: {worker: 3}\n"


def talking(hosts: Hosts, name: str) -> Path:
    """Write the file of a job whose tasks connect to each other."""
    file = hosts.file(name, THREE)
    text = file.read_text().replace("custom", "multi_worker_mirrored").replace("stack: none", "stack: tf2.15")
    file.write_text(text)
    return file


def cut(hosts: Hosts, name: str, *addresses: str) -> None:
    """Leave a host without a route to these addresses."""
    (hosts.trees[name] / "cut").write_text("\n".join(addresses))


def test_start_refuses_an_address_that_other_hosts_cannot_reach(hosts: Hosts) -> None:
    for name in ("node1", "node3"):
        cut(hosts, name, "10.9.0.2")
    done = hosts("start", talking(hosts, "apart"))
    assert done.code == 8, done
    assert "node2: node1 and node3 cannot reach 10.9.0.2:23400: No route to host" in done.err
    assert "→ set tfctl_address to an address at which the other hosts reach node2; if it is right, let its" in done.err
    hosts.untouched()


def test_start_warns_of_an_address_that_other_hosts_cannot_reach_when_tasks_may_not_connect(hosts: Hosts) -> None:
    cut(hosts, "node1", "10.9.0.2", "10.9.0.3")
    cut(hosts, "node2", "10.9.0.3")
    done = hosts("start", hosts.file("loose", THREE))
    assert done.code == 0, done
    assert "node2: node1 cannot reach 10.9.0.2:23400: No route to host\n  → set tfctl_address" in done.err
    assert "node3: node1 and node2 cannot reach 10.9.0.3:23400: No route to host\n  → set tfctl_address" in done.err
    assert len(hosts.alive()) == 3


def test_start_says_nothing_when_hosts_reach_each_other(hosts: Hosts) -> None:
    assert "reach" not in hosts("start", hosts.file("near", THREE)).err


def test_start_refuses_a_name_that_other_hosts_cannot_resolve(hosts: Hosts) -> None:
    """The host itself and one other know the name."""
    for name in ("node2", "node3"):
        (hosts.trees[name] / "hosts").write_text("10.9.0.2 only-here.invalid\n")
    inventory = hosts.told("node2", tfctl_address="only-here.invalid")
    done = hosts.with_inventory(inventory, "start", talking(hosts, "named"))
    assert done.code == 8, done
    assert "node2: node1 cannot resolve the name only-here.invalid: " in done.err
    assert "→ set tfctl_address to an address at which the other hosts reach node2\n" in done.err
    hosts.untouched()
    assert hosts.with_inventory(inventory, "start", hosts.file("loosely", THREE)).code == 0


def test_start_refuses_a_name_that_leads_other_hosts_to_themselves(hosts: Hosts) -> None:
    for tree in hosts.trees.values():
        (tree / "hosts").write_text("127.0.1.1 gpu2\n")
    done = hosts.with_inventory(hosts.told("node2", tfctl_address="gpu2"), "start", talking(hosts, "own"))
    assert done.code == 8, done
    assert "node2: node1 and node3 cannot reach gpu2: the name resolves to 127.0.1.1 there" in done.err
    hosts.untouched()


@contextlib.contextmanager
def known_as_localhost(hosts: Hosts, name: str) -> Iterator[None]:
    """Let ssh find the key of this host under another name too."""
    known = hosts.known_hosts(name)
    before = known.read_text()
    known.write_text(before + before.replace("127.0.0.1", "localhost"))
    forget_files()
    try:
        yield
    finally:
        known.write_text(before)
        forget_files()


def test_start_refuses_a_host_without_an_address_whose_name_no_host_resolves(hosts: Hosts) -> None:
    """Only the hosts know that, so they are unfit, and no file is wrong."""
    text = hosts.inventory.read_text().replace("node2 ansible_host=127.0.0.1", "localhost")
    inventory = hosts.folder / "nameless.ini"
    inventory.write_text(text.replace("tfctl_address=10.9.0.2 ", ""))
    with known_as_localhost(hosts, "node2"):
        done = hosts.with_inventory(inventory, "start", "--dry-run", hosts.file("nameless", THREE))
    assert done.code == 8, done
    assert "localhost: the hosts cannot resolve this name\n  → set tfctl_address" in done.err


@pytest.mark.parametrize("words", [["start"], ["start", "--dry-run"]])
def test_start_refuses_one_machine_under_two_names_at_once(words: list[str], hosts: Hosts) -> None:
    """The inventory does not show it: address and name differ."""
    first, _, *rest = hosts.inventory.read_text().splitlines(keepends=True)
    again = first.replace("node1 ", "node2 ").replace("ansible_host=127.0.0.1", "ansible_host=localhost")
    inventory = hosts.folder / "twice.ini"
    inventory.write_text("".join([first, again.replace("10.9.0.1", "10.9.0.2"), *rest]))
    with known_as_localhost(hosts, "node1"):
        began = time.monotonic()
        done = hosts.with_inventory(inventory, *words, hosts.file("twice", THREE))
        assert time.monotonic() - began < 20
        warned = hosts.with_inventory(inventory, "nodes")
    assert (warned.code, "node1 and node2 are the same machine\n  → let a job use one" in warned.err) == (0, True)
    assert done.code == 3, done
    assert "node1 and node2 are the same machine" in done.err
    assert "→ let a job use one of these names" in done.err
    hosts.untouched()


def test_start_refuses_two_names_that_the_hosts_resolve_to_one_address(hosts: Hosts) -> None:
    for tree in hosts.trees.values():
        (tree / "hosts").write_text("10.9.0.7 gate1 gate2\n")
    text = hosts.inventory.read_text().replace("10.9.0.1 ", "gate1 ").replace("10.9.0.2 ", "gate2 ")
    (hosts.folder / "gates.ini").write_text(text)
    done = hosts.with_inventory(hosts.folder / "gates.ini", "start", hosts.file("gates", THREE))
    assert done.code == 3, done
    assert "node1 and node2 have the same address, 10.9.0.7, for other hosts" in done.err


@pytest.mark.parametrize("verb", ["check", "render", "start"])
def test_job_on_two_machines_behind_one_address_is_refused(verb: str, hosts: Hosts) -> None:
    inventory = hosts.told("node2", tfctl_address="10.9.0.1")
    done = hosts.with_inventory(inventory, verb, hosts.file("behind", THREE))
    assert done.code == 3, done
    assert "node1 and node2 have the same address, 10.9.0.1, for other hosts" in done.err
    assert "→ set tfctl_address to the address at which the other hosts reach each of them" in done.err
    alone = hosts.file("alone", STAY + "roles: {worker: {replicas: 2, hosts: 'node2:node3'}}\n")
    assert hosts.with_inventory(inventory, verb, alone).code == 0


def test_verify_tests_hosts_whose_addresses_a_job_would_refuse(hosts: Hosts) -> None:
    """It names the pairs that cannot connect."""
    cut(hosts, "node1", "10.9.0.3")
    inventory = hosts.told("node2", tfctl_address="10.9.0.1")
    done = hosts.with_inventory(None, "verify", inventory, "--stack", "tf2.15", "-o", "json")
    results = json.loads(done.out)["results"]
    assert {host for result in results for host in result["hosts"]} == {"node1", "node2", "node3"}
    assert not any(word in done.out + done.err for word in ("same address", "cannot reach"))


def test_nodes_warns_of_machines_behind_one_address(hosts: Hosts) -> None:
    done = hosts.with_inventory(hosts.told("node2", tfctl_address="10.9.0.1"), "nodes")
    assert done.code == 0, done
    assert "node1 and node2 have the same address, 10.9.0.1, for other hosts\n  → set tfctl_address" in done.err
    assert "same" not in hosts("nodes").err
