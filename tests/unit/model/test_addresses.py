"""Addresses of hosts: what an inventory may write, how tasks get them, and hosts that would share one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests.unit.model.four_hosts import HOSTS, MakeJob
from tfctl.errors import BadFile
from tfctl.model import addresses, env
from tfctl.model.assign import assign, draft
from tfctl.model.host import Host, Site, Ssh
from tfctl.model.job import Job, Layout
from tfctl.model.plan import peers
from tfctl.model.task import Task

WORKERS = "name: digits\nstrategy: multi_worker_mirrored\nstack: tf2.15\ncommand: python t.py\nroles: {worker: 2}\n"


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("ops@10.0.0.1", "it holds a user", "write ops as ansible_user"),
        ("ops@gpu1:2200", "it holds a user and a port", "write ops as ansible_user; PORT"),
        ("ops:secret@gpu1", "it holds a user", "write ops as ansible_user"),
        ("10.0.0.1:22", "it holds a port", "PORT"),
        ("gpu1:", "it holds a port", "PORT"),
        ("gpu1:ssh", "it holds a port", "PORT"),
        ("[2001:db8::1]:22", "it holds a port and brackets", "PORT; write 2001:db8::1 without them"),
        ("[2001:db8::1]", "it holds brackets", "write 2001:db8::1 without them"),
        ("10.0.0.1/24", "it holds a path", "leave out /24"),
        ("gpu1:/srv/a", "it holds a path", "leave out /srv/a; directories to which jobs write belong in"),
        ("ssh://ops@gpu1:22/", "it holds a scheme, a user, a path and a port", "leave out ssh://; write ops as "),
        ("gpu1 gpu2", "is not the address of a host: it has several words", "WORDS"),
        ("10.0.0.1,10.0.0.2", "is not the address of a host: it has several words", "WORDS"),
        ("gpu1 -p 2200", "is not the address of a host: it has several words", "WORDS"),
        ("-oProxyCommand=x", "is not the address of a host", "write a name or an IP address"),
        ("[gpu1", "is not the address of a host", "write a name or an IP address"),
        ("10.0.0.1:22:33", "is not the address of a host", "write a name or an IP address"),
    ],
)  # fmt: skip
def test_text_that_is_more_than_an_address_is_refused_with_the_variable_for_the_rest(
    text: str, what: str, remedy: str
) -> None:
    found, instead = addresses.fault(text, "PORT", "WORDS")
    assert found == what.replace("it holds", "is more than an address: it holds")
    assert instead.startswith(remedy)


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "gpu1", "gpu1.example.org.", "2001:db8::1", "fe80::1%eth0", "gpu_1", "::1"]
)
def test_name_or_ip_address_is_accepted(text: str) -> None:
    assert addresses.fault(text, "PORT", "WORDS") == ("", "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpu1", "GPU1."),
        ("2001:db8::1", "2001:0DB8:0::1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_spellings_of_one_address_are_equal(one: str, other: str) -> None:
    assert addresses.canonical(one) == addresses.canonical(other)
    assert addresses.canonical(one) != addresses.canonical("gpu2")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.1", "::1", "localhost", "Localhost.localdomain", "0.0.0.0", "::", "224.0.0.1", "ip6-localhost",
     "::ffff:127.0.0.1", "fe80::1", "fe80::1%eth0"],
)  # fmt: skip
def test_address_that_no_other_host_can_reach_is_refused_with_a_remedy(address: str, make_job: MakeJob) -> None:
    layout = make_job(WORKERS).layout
    with pytest.raises(BadFile, match=f"node2: its address is {re.escape(address)}, which ") as caught:
        assign(layout, {"node1": Site("10.0.0.1", {}), "node2": Site(address, {})})
    assert "set tfctl_address" in caught.value.remedy


def with_addresses(layout: Layout, *found: str) -> Job:
    sites = {host.name: Site(address, {}) for host, address in zip(layout.hosts, found, strict=True)}
    return Job(layout, 1, "00000000", 0.0, assign(layout, sites))


def test_tf_config_has_ipv6_addresses_in_brackets(make_job: MakeJob) -> None:
    job = with_addresses(make_job(WORKERS).layout, "2001:db8::1", "gpu2")
    cluster = json.loads(env.environment(job, job.tasks[0])["TF_CONFIG"])["cluster"]
    assert cluster == {"worker": ["[2001:db8::1]:2222", "gpu2:2222"]}


def test_flags_have_ipv6_addresses_in_brackets(make_job: MakeJob) -> None:
    text = WORKERS.replace("multi_worker_mirrored", "tf1_ps").replace("t.py", "t.py --worker_hosts={worker_hosts}")
    layout = make_job(text.replace("{worker: 2}", "{ps: 1, worker: 2}")).layout
    job = with_addresses(layout, "2001:db8::1", "2001:db8::2")
    assert env.words(job, job.tasks[1])[-1] == "--worker_hosts=[2001:db8::1]:2223,[2001:db8::2]:2222"


@pytest.mark.parametrize("launcher", ["gloo", "mpi"])
def test_horovod_refuses_ipv6_addresses_with_the_reason(launcher: str, make_job: MakeJob) -> None:
    text = WORKERS.replace("multi_worker_mirrored", f"horovod\nlauncher: {launcher}")
    with pytest.raises(BadFile) as caught:
        with_addresses(make_job(text).layout, "10.0.0.1", "2001:db8::2")
    assert caught.value.message == "node2: 2001:db8::2 is an IPv6 address; Horovod's ranks meet over IPv4 only"
    assert caught.value.remedy.startswith("set tfctl_address to an IPv4 address")


def host(name: str, address: str | None = None, ssh: Ssh | None = None, ports: tuple[int, int] = (2222, 2299)) -> Host:
    return Host(name, ssh or Ssh(name), address, ports=ports)


def refused(*hosts: Host, machines: dict[str, str] | None = None, ports: tuple[int, int] | None = None) -> str:
    try:
        addresses.require_distinct(hosts, {each.name: each.address or each.name for each in hosts}, ports, machines)
    except BadFile as error:
        assert error.remedy or "(" in error.message
        return error.message
    return ""


def test_two_machines_behind_one_address_are_refused() -> None:
    one = host("node1", "203.0.113.10", Ssh("203.0.113.10", 32101))
    other = host("node2", "203.0.113.10", Ssh("203.0.113.10", 32001))
    assert refused(one, other) == "node1 and node2 have the same address, 203.0.113.10, for other hosts"
    assert refused(one, replace(other, address="10.0.0.2")) == ""


@pytest.mark.parametrize(
    ("one", "other"), [("gpu1", "GPU1."), ("2001:db8::1", "2001:db8:0::1"), ("10.0.0.1", "::ffff:10.0.0.1")]
)
def test_one_address_in_two_spellings_is_refused(one: str, other: str) -> None:
    assert "have the same address" in refused(host("node1", one), host("node2", other))
    assert "have the same address" in refused(host("gpu1"), host("node2", "gpu1"))


def test_one_address_is_accepted_when_no_port_can_be_taken_twice() -> None:
    """A router may forward the ports of each machine to it."""
    one, other = host("node1", "gate", ports=(2222, 2299)), host("node2", "gate", ports=(2300, 2399))
    assert refused(one, other) == ""
    assert "have the same address" in refused(one, other, ports=(3000, 3009))
    assert "have the same address" in refused(one, replace(other, ports=(2299, 2399)))
    inside = [
        host("node1", "gate", ports=(1, 9999)),
        host("node2", "gate", ports=(5, 6)),
        host("n3", "gate", ports=(7, 8)),
    ]
    assert "node1, node2 and n3 have" in refused(*inside)


def test_one_machine_under_two_names_is_refused_when_ssh_connects_to_the_same_place() -> None:
    one, other = host("node1", "10.0.0.1", Ssh("gpu1", 22)), host("node2", "10.0.0.2", Ssh("GPU1", 22))
    assert (
        refused(one, other) == "node1 and node2 are the same machine: ssh connects to port 22 of gpu1 for each of them"
    )
    assert refused(one, replace(other, ssh=Ssh("gpu1", 23))) == ""
    assert refused(one, replace(other, ssh=Ssh("gpu1", 22, args=("-J", "bastion")))) == ""


def test_what_machines_say_of_themselves_counts_more_than_where_ssh_connects_to() -> None:
    one, other, third = host("node1", ssh=Ssh("gpu1")), host("node2", ssh=Ssh("gpu1")), host("node3")
    assert refused(one, other, third, machines={"node1": "a", "node2": "b", "node3": "c"}) == ""
    assert refused(one, other, third, machines={"node1": "a", "node2": "b", "node3": "a"}) == (
        "node1 and node3 are the same machine"
    )
    assert refused(one, third, machines={"node1": "", "node3": ""}) == ""


def test_draft_refuses_hosts_with_one_address(make_job: MakeJob) -> None:
    layout = make_job(WORKERS).layout
    slots = tuple(replace(slot, host=replace(slot.host, address="10.0.0.9")) for slot in layout.slots)
    with pytest.raises(BadFile, match="node1 and node2 have the same address") as caught:
        draft(replace(layout, slots=slots))
    assert "set tfctl_address" in caught.value.remedy


@pytest.mark.parametrize(("count", "each"), [(1, 0), (2, 1), (16, 15), (17, 1), (40, 1)])
def test_hosts_try_to_reach_all_others_when_they_are_few_and_the_next_one_when_they_are_many(
    count: int, each: int, make_job: MakeJob
) -> None:
    slot = make_job(WORKERS).layout.slots[0]
    hosts = [replace(HOSTS[0], name=f"n{number}", address=f"10.0.1.{number}") for number in range(count)]
    found = peers({one: [Task(replace(slot, host=one), one.address or "", 2222, None)] * 2 for one in hosts})
    assert {len(reach) for reach in found.values()} == {each}
    assert all(peer.host != one.name for one, reach in found.items() for peer in reach)
    assert {peer.address for reach in found.values() for peer in reach} == {one.address for one in hosts if count > 1}
