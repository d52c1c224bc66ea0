"""The comparison of the hosts finds equal names and IDs, wrong clocks, and addresses that lead to the host itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import facts

from tfctl.provision.decide.comparison import Ahead, ComparedHost, ahead, compare
from tfctl.provision.decide.facts import Clock, Identity
from tfctl.provision.inspection import peers


def host(
    number: int,
    *,
    hostname: str = "",
    machine_id: str = "",
    address: str = "",
    resolved: tuple[str, ...] = (),
    clock: float = 0.0,
    synchronized: bool = False,
) -> ComparedHost:
    """Return a host that differs from all others. Its clock is known to a second."""
    return ComparedHost(
        Identity(hostname or f"node{number}", machine_id or f"id{number}", f"boot{number}"),
        address or f"10.0.0.{number}",
        resolved or (address or f"10.0.0.{number}",),
        Ahead(clock - 0.5, clock + 0.5),
        synchronized,
    )


def messages(*hosts: ComparedHost, warned: bool = False) -> dict[str, list[str]]:
    found = compare({f"n{number}": host for number, host in enumerate(hosts, 1)})
    assert bool(found.warnings) == warned, found.warnings
    assert all(fault["remedy"] and fault["kind"] == "unfit" for faults in found.faults.values() for fault in faults)
    return {name: [fault["message"] for fault in faults] for name, faults in found.faults.items()}


def test_different_hosts_have_no_faults() -> None:
    assert messages(host(1), host(2), host(3)) == {}


def test_equal_hostnames_and_machine_ids_are_faults_of_every_host_that_has_them() -> None:
    assert messages(host(1), host(2, hostname="node1"), host(3)) == {
        "n1": ["the hostname node1 is also that of n2"],
        "n2": ["the hostname node1 is also that of n1"],
    }
    assert messages(*(host(number, machine_id="c10ed") for number in range(1, 7)))["n6"] == [
        "the machine ID c10ed is also that of n1, n2, n3, n4 and n5"
    ]


def test_missing_machine_id_is_not_equal_to_another_missing_one() -> None:
    """A container may have none."""
    one, two = (replace(each, identity=replace(each.identity, machine_id="")) for each in (host(1), host(2)))
    assert messages(one, two) == {}


def test_several_names_of_one_machine_are_a_warning() -> None:
    found = compare({"a": host(1), "b": host(2), "also-a": host(1)})
    assert (found.faults, found.warnings) == ({}, ["a and also-a are the same machine"])


def test_machines_behind_one_address_are_a_warning() -> None:
    found_1 = host(1, address="gate", resolved=("10.0.0.1",))
    found_2 = host(2, address="GATE.", resolved=("10.0.0.2",))
    found = compare({"a": found_1, "b": found_2, "c": host(3)})
    assert found.faults == {}
    (warning,) = found.warnings
    assert warning.startswith("a and b have the same address, gate, for other hosts: set tfctl_address to the address")
    forwarded = {
        "a": replace(found_1, ports="2222-2299"),
        "b": replace(found_2, ports="2300"),
    }
    assert compare(forwarded).warnings == []


def test_address_that_other_hosts_cannot_resolve_is_a_warning() -> None:
    named = host(2, address="only-here", resolved=("10.0.0.2",))
    knows, knows_not = (replace(host(1), peers={"only-here": found}) for found in (("10.0.0.2",), ()))
    (warning,) = compare({"a": knows_not, "b": named}).warnings
    assert warning == (
        "a cannot resolve only-here, the address of b for other hosts: set tfctl_address to an address at which the "
        "other hosts reach b"
    )
    itself = replace(host(3), peers={"only-here": ("127.0.1.1", "::1")})
    (warning,) = compare({"a": knows_not, "b": named, "c": itself}).warnings
    assert warning.startswith("a and c cannot resolve only-here")
    assert compare({"a": knows, "b": named, "c": host(3)}).warnings == []


def test_next_hosts_of_a_play_have_their_names_looked_up() -> None:
    hosts = ["a", "b", "c", "d", "e"]
    known: dict[str, dict[str, str]] = {name: {"ansible_host": "10.0.0.1"} for name in hosts}
    known = {
        **known,
        "b": {"tfctl_address": "gpu2", "ansible_host": "10.0.0.2"},
        "c": {"ansible_host": "gpu3"},
        "e": {},
    }
    variables = {"ansible_play_hosts_all": hosts, "hostvars": known}
    assert peers({**variables, "inventory_hostname": "a"}) == ["gpu2", "gpu3"]
    assert peers({**variables, "inventory_hostname": "d"}) == ["gpu2"]
    assert peers({**variables, "ansible_play_hosts_all": ["b"], "inventory_hostname": "b"}) == []
    assert peers({}) == []


@pytest.mark.parametrize("loopback", ["127.0.1.1", "127.0.0.1", "::1"])
def test_name_that_resolves_to_loopback_on_its_host_is_a_fault(loopback: str) -> None:
    named = host(2, address="node2", resolved=(loopback,))
    assert messages(host(1), named) == {
        "n2": [f"node2 is {loopback} on the host itself, which other hosts cannot reach"]
    }
    assert messages(named) == {}, "there is no other host"
    assert messages(named, named, warned=True) == {}, "both names are this host"
    assert [*compare({"n2": named}, others=True).faults] == ["n2"], "another host is in the inventory"
    assert messages(host(1), host(2, address="node2", resolved=(loopback, "10.0.0.2"))) == {}
    assert messages(host(1), host(2, address="127.0.0.1")) == {
        "n2": ["its address is 127.0.0.1, which other hosts cannot reach"]
    }


def test_clock_that_differs_from_most_others_is_a_fault() -> None:
    assert messages(host(1), host(2, clock=14.0), host(3, clock=1.9)) == {
        "n2": ["the clock is at least 11 s ahead of those of the control machine, n1 and n3"]
    }
    assert messages(host(1, clock=-5.0)) == {"n1": ["the clock is at least 4 s behind that of the control machine"]}
    assert messages(host(1), host(2, clock=14.0, synchronized=True), host(3)) == {}


def test_clock_of_this_machine_is_a_warning_if_the_hosts_agree() -> None:
    found = compare({"a": host(1, clock=9.0), "b": host(2, clock=9.2), "c": host(3, clock=9.0)})
    assert found.faults == {}
    (warning,) = found.warnings
    assert warning.startswith("the clock of the control machine is at least 8 s behind those of a, b and c")


def test_slow_answer_says_little_about_a_clock() -> None:
    """A program that ran from 100.0 to 100.5 by the host's clock, sent at 90 and answered at 110."""
    bounds = ahead(Clock(100.0, 100.5), sent=90.0, received=110.0)
    assert bounds == Ahead(-9.5, 10.0)
    slow = replace(host(1), ahead=bounds)
    assert messages(slow, host(2)) == {}


def shared(*roots: dict[str, str] | None) -> list[str]:
    """Return the warnings about hosts whose directories for output have these marks."""
    hosts = [replace(host(number), roots=marks) for number, marks in enumerate(roots, 1)]
    return compare({f"n{number}": each for number, each in enumerate(hosts, 1)}).warnings


@pytest.mark.parametrize("local", [{"/srv/tfctl": "7 2"}, {"/srv/tfctl": ""}, {"/data": "7 1"}])
def test_warning_names_the_jobs_that_start_will_refuse_when_hosts_share_no_directory(local: dict[str, str]) -> None:
    [warning] = shared({"/srv/tfctl": "7 1"}, local)
    assert warning.startswith("the hosts share no directory of tfctl_output_roots (")
    assert "refuse jobs of estimator, multi_worker_mirrored and parameter_server, and jobs with several ps" in warning
    assert warning.endswith("; jobs of custom, horovod and mirrored run with `output: local` in the job file")
    assert shared({"/srv/tfctl": ""}, {"/srv/tfctl": ""}), "before the first provisioning"


def test_tutorial_shows_the_warning_about_hosts_that_share_no_directory() -> None:
    [warning] = shared({"/srv/tfctl": ""}, {"/srv/tfctl": ""})
    assert f"\nnode1: {warning}\n" in (Path(__file__).parents[3] / "docs/tutorial.md").read_text()


def test_a_shared_directory_among_several_is_enough() -> None:
    assert shared({"/a": "1 1", "/b": "7 1"}, {"/a": "1 2", "/b": "7 1"}) == []


def test_no_warning_about_shared_directories_for_one_host_or_if_provisioning_mounts_one() -> None:
    assert shared({"/a": ""}) == []
    assert shared(None, None) == []
    one = replace(host(1), roots={"/a": ""})
    assert not any("share no" in warning for warning in compare({"n1": one, "alias": one}).warnings)


def test_the_mark_of_a_directory_is_empty_until_it_exists_and_changes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "root"
    assert facts.disk(str(path))["mark"] == ""
    path.mkdir()
    first = facts.disk(str(path))["mark"]
    assert first and first == facts.disk(str(path))["mark"]
    other = tmp_path / "other"
    other.mkdir()
    assert facts.disk(str(other))["mark"] != first


def test_different_drivers_are_a_warning() -> None:
    drivers = ("580.95.05", "580.159.03", "580.95.05", "")
    hosts = {f"n{number}": replace(host(number), driver=driver) for number, driver in enumerate(drivers, 1)}
    found = compare(hosts)
    assert found.faults == {}
    assert found.warnings == ["the hosts have different NVIDIA drivers: 580.159.03 on n2; 580.95.05 on n1 and n3"]
    assert compare({name: each for name, each in hosts.items() if name != "n2"}).warnings == []
