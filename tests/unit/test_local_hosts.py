"""Hosts with ansible_connection=local: what the inventory says of them, and which address the other hosts get."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tfctl.model.host import LOCAL, Host, Inventory, Ssh
from tfctl.remote import hostvars, own_address
from tfctl.remote.ansible_cfg import AnsibleSettings

HERE = Host("localhost", Ssh("localhost", transport=LOCAL))


def host(**variables: Any) -> Host:
    return hostvars.host(Path("/hosts.ini"), "here", variables, AnsibleSettings(None, {}))


@pytest.mark.parametrize("connection", ["local", "ansible.builtin.local"])
def test_a_local_host_needs_no_settings_of_ssh(connection: str) -> None:
    """Variables of all hosts may contain some, even such as tfctl cannot use."""
    found = host(ansible_connection=connection, ansible_user="{{ me }}", ansible_port="{{ p }}", tfctl_ssh="openssh")
    assert found == Host("here", Ssh("here", transport=LOCAL))
    assert found.is_local


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, None),
        ({"ansible_host": "127.0.0.1"}, None),
        ({"ansible_host": "localhost"}, None),
        ({"ansible_host": "10.0.0.5"}, "10.0.0.5"),
        ({"ansible_host": "10.0.0.5", "tfctl_address": "10.1.0.5"}, "10.1.0.5"),
        ({"ansible_host": "127.0.0.1", "tfctl_address": "10.1.0.5"}, "10.1.0.5"),
    ],
)
def test_the_address_of_a_local_host_is_what_other_hosts_can_reach(variables: dict[str, str], address: str) -> None:
    assert host(ansible_connection="local", **variables).address == address


def away(name: str, address: str | None) -> Host:
    return Host(name, Ssh(address or name), address=address)


def found_address(*others: Host, routes: dict[str, str]) -> str | None:
    inventory = Inventory("/hosts.ini", (HERE, *others))
    local, *rest = own_address.with_own_addresses(inventory, routes.get).hosts
    assert tuple(rest) == others
    return local.address


def test_it_is_the_address_from_which_this_machine_sends_to_the_others() -> None:
    routes = {"10.0.0.1": "10.0.0.5", "10.0.0.2": "10.0.0.5"}
    assert found_address(away("a", "10.0.0.1"), away("b", "10.0.0.2"), routes=routes) == "10.0.0.5"


def test_none_is_chosen_between_several() -> None:
    routes = {"10.0.0.1": "10.0.0.5", "10.1.0.2": "10.1.0.5"}
    assert found_address(away("a", "10.0.0.1"), away("b", "10.1.0.2"), routes=routes) is None


def test_hosts_without_a_route_do_not_count() -> None:
    assert found_address(away("a", "10.9.9.9"), away("b", "10.1.0.2"), routes={"10.1.0.2": "10.1.0.5"}) == "10.1.0.5"
    assert found_address(away("a", "10.9.9.9"), routes={}) is None


def test_few_names_are_looked_up_and_only_if_no_host_has_a_number() -> None:
    names = [away(f"gpu{number}", None) for number in range(9)]
    routes = {host.name: "10.0.0.5" for host in names}
    asked: list[str] = []

    def source(target: str) -> str | None:
        asked.append(target)
        return routes.get(target)

    own_address.with_own_addresses(Inventory("/hosts.ini", (HERE, *names)), source)
    assert asked == ["gpu0", "gpu1", "gpu2"]
    asked.clear()
    own_address.with_own_addresses(Inventory("/hosts.ini", (HERE, *names, away("a", "10.0.0.1"))), source)
    assert asked == ["10.0.0.1"]


def test_without_other_hosts_nothing_is_asked_and_an_address_that_is_set_stays() -> None:
    assert found_address(routes={}) is None
    told = Host("here", Ssh("here", transport=LOCAL), address="10.2.0.5")
    inventory = Inventory("/hosts.ini", (told, away("a", "10.0.0.1")))
    assert own_address.with_own_addresses(inventory, {"10.0.0.1": "10.0.0.5"}.get) is inventory


def test_the_kernel_is_asked_and_a_loopback_address_is_none() -> None:
    assert own_address.source("127.0.0.1") is None
    assert own_address.source("no such name") is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            expected = None  # this machine has no network
        else:
            expected = probe.getsockname()[0]
    assert own_address.source("192.0.2.1") == expected
