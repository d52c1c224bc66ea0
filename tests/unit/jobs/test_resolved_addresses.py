"""Where tasks reach hosts that have no address in the inventory: other hosts of the job look up their names."""

from __future__ import annotations

from collections import Counter

import pytest

from tfctl.jobs.start import _names_to_resolve, _resolved, unreached
from tfctl.model.host import Host, Ssh
from tfctl.node import wire


def make_hosts(count: int, *, with_address: int = 0) -> list[Host]:
    """Return hosts, of which every ``with_address``-th has an address."""
    return [
        Host(f"node{number}", Ssh(f"node{number}"), "10.0.0.1" if with_address and number % with_address == 0 else None)
        for number in range(count)
    ]


@pytest.mark.parametrize(("count", "with_address"), [(5, 0), (100, 0), (100, 2), (100, 7)])
def test_start_has_each_name_looked_up_on_three_other_hosts_when_there_are_many(count: int, with_address: int) -> None:
    hosts = make_hosts(count, with_address=with_address)
    asked = _names_to_resolve(hosts)
    assert list(asked) == [host.name for host in hosts]
    looked_up = Counter(name for names in asked.values() for name in names)
    assert dict(looked_up) == {host.name: 3 for host in hosts if host.address is None}
    assert not any(host in names for host, names in asked.items())


@pytest.mark.parametrize("count", [1, 4])
def test_start_has_all_names_looked_up_on_every_host_when_there_are_few(count: int) -> None:
    names = tuple(f"node{number}" for number in range(count))
    assert _names_to_resolve(make_hosts(count)) == dict.fromkeys(names, names)


def test_start_has_addresses_looked_up_that_are_names() -> None:
    hosts = [Host(name, Ssh(name), address) for name, address in [("a", "gpu1"), ("b", "10.0.0.2"), ("c", None)]]
    assert _names_to_resolve([*hosts, Host("d", Ssh("d"), "2001:db8::1")])["b"] == ("gpu1", "c")


def test_each_host_that_cannot_be_reached_is_named_once_with_those_that_tried() -> None:
    silent = wire.Unreached("node3", "cannot reach 10.0.0.3:2222: no answer within 1 s", named=False)
    unnamed = wire.Unreached("node2", "cannot resolve the name gpu2: Name or service not known", named=True)
    errors = unreached({"node2": (silent,), "node1": (unnamed, silent), "node4": ()})
    assert [error.message for error in errors] == [
        "node2: node1 cannot resolve the name gpu2: Name or service not known",
        "node3: node1 and node2 cannot reach 10.0.0.3:2222: no answer within 1 s",
    ]
    assert "firewall" not in errors[0].remedy and "firewall" in errors[1].remedy
    assert all(error.remedy.startswith("set tfctl_address to an address") for error in errors)


def test_start_uses_the_first_address_that_is_not_loopback() -> None:
    hello = wire.Hello(0, {}, {}, (), None, code=True, restartable=())
    found: list[dict[str, str | None]] = [
        {"node1": "127.0.1.1", "node2": None, "node3": "10.0.0.3"},
        {"node1": "10.0.0.1", "node2": "10.0.0.2", "node3": "10.0.1.3"},
        {"node4": None},
    ]
    resolved = _resolved(hello._replace(names=names) for names in found)
    assert resolved == {"node1": "10.0.0.1", "node2": "10.0.0.2", "node3": "10.0.0.3"}
