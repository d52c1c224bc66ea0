"""Whoever reaches the port of a head cannot keep the members of the job away from it, or use up its memory or files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from fake_manager import directives
from node_tree import RUN, Tree, free_port, make_plan, make_task, wait_until
from simulated_network import Network, Process
from strangers_at_port import strangers_at

from tfctl.node import names
from tfctl.node.guard import link, strangers
from tfctl.node.guard.strangers import Strangers

KEY = "a" * 64
UNIT = names.guard_service("digits")


# The real guard, and real connections.


class Head:
    """The guard of a head on a tree. The other host of its job is node2, which is known at ``address``."""

    def __init__(self, tree: Tree, address: str) -> None:
        self.tree, self.port = tree, free_port()
        plan = make_plan(make_task())
        record = plan["record"]
        unit = names.unit("digits", "worker", 1)
        other = {**record["tasks"][0], "index": 1, "host": "node2", "address": address, "unit": unit}
        guard = {"head": "node1", "address": "127.0.0.1", "port": self.port, "origin": RUN, "lease": 600,
                 "max_attempts": 1}  # fmt: skip
        record.update(tasks=[*record["tasks"], other], guard=guard)
        (tree / "guards").touch()
        tree.run({**plan, "guard": {"key": KEY}})
        wait_until(lambda: self.pid > 0)

    @property
    def pid(self) -> int:
        return int(directives((self.tree / f"manager/{UNIT}.state").read_text()).get("MainPID", 0))

    async def connect(self) -> link.Link:
        """Return the connection of a member."""
        return await link.connect("127.0.0.1", self.port, bytes.fromhex(KEY), "node2", RUN)

    def peak(self) -> int:
        """Return how much memory it has used at most (kB)."""
        [found] = re.findall(r"^VmHWM:\s+([0-9]+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        return int(found)

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def limit(self) -> int:
        """How many files it may open."""
        return resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[0]


#: Members connect from 127.0.0.1.
SAME, OTHER = ["127.0.0.1"], ["127.0.0.2"]
THOUSANDS = [f"127.1.{number >> 8}.{number & 255}" for number in range(1, 3000)]


@pytest.mark.parametrize(
    ("addresses", "known"),
    [
        pytest.param(SAME, "127.0.0.1", id="same"),
        pytest.param(SAME, "node2", id="same-not-known"),
        pytest.param(OTHER, "node2", id="other", marks=pytest.mark.extended),
        pytest.param(THOUSANDS, "127.0.0.1", id="thousands", marks=pytest.mark.extended),
        pytest.param(THOUSANDS, "10.9.0.2", id="thousands-not-known"),
    ],
)
def test_a_member_connects_within_5_s_although_2000_strangers_hold_and_flood_the_port_of_the_head(
    addresses: Sequence[str], known: str, tree: Tree
) -> None:
    """The guard keeps the connection, and stays below 100 MB and its limit of files."""
    head = Head(tree, known)

    async def connect() -> None:
        began = time.monotonic()
        connection = await head.connect()
        assert time.monotonic() - began < 5.0
        with pytest.raises(link.Broken, match="silent"):
            while True:
                await connection.receive(1.0)
        connection.close()

    with strangers_at(head.port, addresses, idle=1000, sending=1000):
        for _ in range(2):
            asyncio.run(connect())
            assert head.files() < head.limit
        assert head.peak() < 100_000


def test_a_guard_keeps_files_for_its_work_when_the_limit_of_files_is_low(tree: Tree) -> None:
    head = Head(tree, "127.0.0.1")
    unit = tree / names.UNITS / UNIT
    unit.write_text(re.sub("^LimitNOFILE=.*$", "LimitNOFILE=256", unit.read_text(), flags=re.MULTILINE))
    before = head.pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: head.pid != before and head.limit == 256)

    async def connect() -> None:
        """Connect as a member does, which tries again: an address has few places here."""
        until = time.monotonic() + 30.0
        while time.monotonic() < until:
            with suppress(link.Broken):
                (await head.connect()).close()
                return
        raise AssertionError("not connected")

    with strangers_at(head.port, [*SAME, *OTHER], idle=200, sending=100, greeting=100):
        asyncio.run(connect())
        assert head.files() < 256 - 20
    assert "Too many open files" not in (tree / f"{UNIT}.log").read_text()


# Who makes room for whom, in a simulated network.

PORT = 2345
RECORDED = "10.9.0.2"  # the address of node2, a host of the job


class Visitor:
    """A connection to the head. ``open``: whether the head has not closed it yet."""

    def __init__(self, network: Network, address: str, *pieces: bytes) -> None:
        self.open = True
        self._task = Process(network, address).run(self._stay(pieces))

    async def _stay(self, pieces: Iterable[bytes]) -> None:
        reader, writer = await asyncio.open_connection("10.9.0.1", PORT)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        await reader.read()
        self.open = False
        writer.close()


class Door:
    """The port of a head."""

    def __init__(self, hosts: Collection[str] = ("node2",)) -> None:
        self.addresses = {"10.9.0.1": "node1"}
        self.network = Network(self.addresses)
        self.hosts, self.known = hosts, [RECORDED, "host-with-a-name"]
        self.welcomed: list[tuple[link.Link, str]] = []
        self._members: list[link.Link] = []
        self._visitors: list[Visitor] = []

    @contextmanager
    def opened(self) -> Iterator[Door]:
        def welcome(connection: link.Link, hello: link.MemberHello) -> None:
            self.welcomed.append((connection, hello.host))

        found = Strangers(bytes.fromhex(KEY), self.hosts, self.known, welcome, link.LIMIT)
        with self.network.simulated():
            process = Process(self.network, "node1")
            process.run(found.listen(cast(Any, self.network.listen(process, PORT))))
            self.network.advance(0.1)
            yield self
            for connection in (*self._members, *(connection for connection, _ in self.welcomed)):
                connection.close()
            self.network.advance(strangers.HANDSHAKE_S + 1)
            assert not self.network.tracebacks

    def visit(self, *addresses: str, say: Iterable[bytes] = ()) -> list[Visitor]:
        """Connect from each of these addresses, one after the other."""
        found = []
        for address in addresses:
            self.addresses[address] = address
            found.append(Visitor(self.network, address, *say))
            self.network.advance(0.01)
        self._visitors += found
        return found

    def join(self, address: str, *hosts: str) -> None:
        """Connect as the members on these hosts do, at once."""

        async def connect(host: str) -> None:
            self._members.append(await link.connect("10.9.0.1", PORT, bytes.fromhex(KEY), host, RUN))

        self.addresses[address] = address
        for host in hosts:
            Process(self.network, address).run(connect(host))
        self.network.advance(1.0)
        assert [host for _, host in self.welcomed] == [*hosts]


def open_ones(visitors: Iterable[Visitor]) -> list[bool]:
    return [visitor.open for visitor in visitors]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """A port with eight places for each kind of address, four of them for one address."""
    monkeypatch.setattr(strangers, "PLACES", 8)
    with Door().opened() as found:
        yield found


def others(count: int) -> list[str]:
    return [f"10.8.0.{number}" for number in range(1, count + 1)]


def test_an_address_with_too_many_connections_loses_its_oldest_one_and_no_other_does(door: Door) -> None:
    first = door.visit(*others(3))
    many = door.visit(*["10.7.0.1"] * 10)
    assert open_ones(first) == [True] * 3
    assert open_ones(many) == [False] * 6 + [True] * 4


def test_strangers_from_many_addresses_make_room_for_the_next_one(door: Door) -> None:
    assert open_ones(door.visit(*others(20))) == [False] * 12 + [True] * 8


def test_strangers_from_elsewhere_take_no_place_of_a_host_of_the_job(door: Door) -> None:
    ours = door.visit(RECORDED, f"::ffff:{RECORDED}")
    assert open_ones(door.visit(*others(20))) == [False] * 12 + [True] * 8
    assert open_ones(ours) == [True, True]


def test_strangers_on_a_host_of_the_job_take_no_place_of_another_host(door: Door) -> None:
    first = door.visit(*others(2))
    assert open_ones(door.visit(*[RECORDED] * 10)) == [False] * 6 + [True] * 4
    assert open_ones(first) == [True, True]


def test_all_addresses_of_an_ipv6_network_count_as_one(door: Door) -> None:
    first = door.visit("2001:db8:0:2::1", "fe80::1%eth0")
    many = door.visit(*(f"2001:db8:0:1::{number:x}" for number in range(1, 11)))
    assert open_ones(many) == [False] * 6 + [True] * 4
    assert open_ones(first) == [True, True]


@pytest.mark.parametrize("address", ["10.6.0.1", "2001:db8:0:1::ffff"])
def test_the_address_of_a_member_is_that_of_a_host_of_the_job_from_then_on(address: str, door: Door) -> None:
    """A host may have several addresses, or be known by a name."""
    door.join(address, "node2")
    [again] = door.visit(address)
    door.visit(*others(20), *(f"2001:db8:0:1::{number:x}" for number in range(1, 11)))
    assert again.open


def test_a_member_is_not_closed_for_strangers(door: Door) -> None:
    door.join(RECORDED, "node2")
    door.visit(*others(20), *[RECORDED] * 20)
    [(connection, _)] = door.welcomed
    assert not connection._writer.is_closing()
    door.network.advance(strangers.HANDSHAKE_S + 1)
    assert not connection._writer.is_closing()


HELLO = json.dumps({"host": "node2", "run": RUN, "nonce": "0" * 32}).encode() + b"\n"
PROOF = b"0" * 64 + b' {"beat":{}}\n'


@pytest.mark.parametrize(
    "said",
    [b"x" * 1000, b"\n\n", HELLO + PROOF, HELLO + b"\n", b"9" * 200 + b"\n" + PROOF, b"[" * 200 + b"\n\n",
     HELLO.replace(b"node2", b"node3") + PROOF],
    ids=lambda said: repr(said[:12]),
)  # fmt: skip
def test_a_stranger_that_has_said_something_wrong_is_closed_a_second_later(said: bytes, door: Door) -> None:
    """Not at once: it would only connect again."""
    found = [*door.visit(RECORDED, say=[said]), *door.visit(RECORDED, say=[bytes([byte]) for byte in said])]
    door.network.advance(strangers.REFUSED_S / 2)
    assert open_ones(found) == [True, True]
    door.network.advance(strangers.REFUSED_S)
    assert open_ones(found) == [False, False]
    assert not door.welcomed


@pytest.mark.parametrize("said", [b"", b"x" * 400, HELLO], ids=["nothing", "half-a-line", "hello"])
def test_a_stranger_that_says_too_little_is_closed_after_some_seconds(said: bytes, door: Door) -> None:
    [silent] = door.visit(RECORDED, say=[said])
    door.network.advance(strangers.HANDSHAKE_S - 1)
    assert silent.open
    door.network.advance(2.0)
    assert not silent.open


def test_a_member_whose_host_has_a_long_name_connects() -> None:
    name = "é" * 250
    with Door((name,)).opened() as door:
        door.join(RECORDED, name)


def test_all_members_of_a_job_with_1000_hosts_connect_at_once_from_one_address() -> None:
    """As behind a router that hides their addresses."""
    hosts = [f"node{number}" for number in range(2, 1001)]
    with Door(hosts).opened() as door:
        door.join("10.6.0.1", *hosts)
