"""A malformed message to the node part, or between guards, ends in a sentence or a closed connection: no traceback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node_tree import Tree
from records import make_record
from simulated_hosts import SimulatedHosts
from simulated_network import Network, Process

from tests.unit.node.test_node_guard_faults import make_run
from tests.unit.node.test_node_messages import mutated
from tfctl.node import names, wire
from tfctl.node.guard import link
from tfctl.node.guard.host_access import HostAccess, RequestFailed
from tfctl.node.guard.strangers import Strangers
from tfctl.node.system import System

FEW = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
#: Each example is a process.
VERY_FEW = settings(FEW, max_examples=4)
JOB = "a"  # that of `sample`
#: What guards of all versions call the messages between them.
KINDS = {
    "report": link.MemberReport, "beat": link.GuardBeat, "stop": link.StopOrder, "prepare": link.PrepareOrder,
    "launch": link.LaunchOrder, "keep": link.KeepOrder, "abort": link.AbortOrder, "end": link.JobOver,
    "stall": link.NoteStallOrder, "done": link.OrderResult,
}  # fmt: skip


# Client → node part.


@pytest.fixture(scope="module")
def host() -> Iterator[Tree]:
    """A host that knows one job."""
    with Tree() as tree:
        attempt = tree / names.attempt_dir(JOB, 1)
        (attempt / "worker-0").mkdir(parents=True)
        (attempt / "job.json").write_text(json.dumps(wire.encode(make_record(job=JOB))))
        yield tree


def answers(host: Tree, *lines: bytes) -> list[tuple[str, Any]]:
    """Return what the node part answers to a client that sends these lines, and leaves after the first answer."""
    with host.session() as session:
        session.say(b"".join(lines))
        first = session.hear()
        while first == ("beat", {}):
            first = session.hear()
        session.process.stdin.close()
        return [first, *session.rest()] if first else []


def are_sentences(found: list[tuple[str, Any]]) -> None:
    assert found, "the node part says nothing"
    errors = [value["message"] for kind, value in found if kind == "error"]
    assert not [message for message in errors if "tfctl's node part failed" in message], errors


@pytest.mark.parametrize("verb", wire.REQUESTS)
@VERY_FEW
@given(data=st.data())
def test_a_malformed_request_of_a_client_becomes_a_sentence(verb: str, host: Tree, data: st.DataObject) -> None:
    fields = data.draw(mutated(wire.REQUESTS[verb]))
    asked = fields if isinstance(fields, dict) else {"job": fields}
    line = json.dumps({"protocol": wire.PROTOCOL, "verb": verb, **asked}).encode() + b"\n"
    are_sentences(answers(host, line))


OPENINGS: dict[str, wire.Request] = {
    "start": wire.StartRequest(JOB, None, (2222, 2224)),
    "restart": wire.StartRequest(JOB, None, (2222, 2224), restart_of=1),
    "stop": wire.StopRequest(JOB, hold=True),
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("kind", wire.CLIENT_MESSAGES)
@VERY_FEW
@given(data=st.data())
def test_a_malformed_message_of_a_client_becomes_a_sentence(
    kind: str, opening: str, host: Tree, data: st.DataObject
) -> None:
    value = data.draw(mutated(wire.CLIENT_MESSAGES[kind]))
    are_sentences(answers(host, wire.request(OPENINGS[opening]), json.dumps({kind: value}).encode() + b"\n"))


@VERY_FEW
@given(noise=st.binary(max_size=60))
def test_noise_of_a_client_becomes_a_sentence(host: Tree, noise: bytes) -> None:
    are_sentences(answers(host, noise + b"\n"))


# Node part → guard.


@contextmanager
def local_node_part(
    folder: Path, *lines: bytes
) -> Iterator[tuple[HostAccess, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """Yield this host as its guard sees it, with a node part that answers every request with these lines."""
    network = Network({})
    process = Process(network, "node1")
    system = System(str(folder))

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(lines))
        writer.close()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        task = process.run(work)
        network.loop.run_until_complete(asyncio.wait([task]))
        return task.result()

    if lines:
        network.listen_locally(str(system.at(names.guard_socket_file(JOB))), process, serve)
    with network.simulated():
        yield HostAccess(JOB, "node1", system), run


async def use(here: HostAccess) -> None:
    """Do what a guard does with answers."""
    record = make_record(job=JOB, attempt=2)
    for work in (here.show(), here.stop(wire.StopRequest(JOB)), here.notify("{}"), here.leave(), here.prepare(record),
                 here.launch(), here.keep(), here.abort()):  # fmt: skip
        with suppress(RequestFailed):
            await work


@pytest.mark.parametrize("kind", wire.NODE_MESSAGES)
@FEW
@given(data=st.data())
def test_a_malformed_answer_of_the_node_part_fails_what_the_guard_asked(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    value = data.draw(mutated(wire.NODE_MESSAGES[kind]))
    with local_node_part(tmp_path_factory.getbasetemp(), json.dumps({kind: value}).encode() + b"\n") as (here, run):
        run(use(here))


def test_every_request_of_a_guard_fails_with_a_sentence_without_a_node_part(tmp_path: Path) -> None:
    with local_node_part(tmp_path) as (here, run):
        run(use(here))
        with pytest.raises(RequestFailed, match="the node part does not answer: No such file or directory"):
            run(here.prepare(make_record(job=JOB, attempt=2)))


# Guard ↔ guard.


class Peer:
    """A guard of the job that node1, the head, or node2 hears: it has the key, and sends what a test draws."""

    def __init__(self, hosts: SimulatedHosts, record: wire.Record) -> None:
        assert record.guard
        self.hosts, self.record, self.guard = hosts, record, record.guard
        self.key = bytes.fromhex(f"{1:064x}")
        self.process = Process(hosts.network, "node2")

    def say(self, message: bytes) -> None:
        """Send the head a message, over a new connection."""

        async def speak() -> None:
            address, port = self.guard.address, self.guard.port
            connection = await link.connect(address, port, self.key, "node2", self.record.run)
            connection._writer.write(connection._sealer.seal(message))
            await asyncio.sleep(1.0)
            connection.close()

        self.process.run(speak())
        self.hosts.advance(2.0)

    def say_plainly(self, line: bytes) -> None:
        """Send the head a line before it knows who this is."""

        async def speak() -> None:
            _, writer = await asyncio.open_connection(self.guard.address, self.guard.port)
            writer.write(line)
            await asyncio.sleep(1.0)
            writer.close()

        self.process.run(speak())
        self.hosts.advance(2.0)

    def answer(self, listen: Callable[[Any], Coroutine[Any, Any, object]]) -> None:
        """Take the place of the head's guard. ``listen``: accepts connections at the socket that it gets."""
        self.process = Process(self.hosts.network, "node1")
        self.process.run(listen(self.hosts.hosts["node1"]._listener))
        self.hosts.advance(8.0)


def drawn(data: st.DataObject, kind: str, run: str) -> bytes:
    """Return a message of this kind, about the run of the job unless its run is what is malformed."""
    value = data.draw(mutated(KINDS[kind]))
    if isinstance(value, dict) and value.get("run") == "a":
        value["run"] = run
    return json.dumps({kind: value}).encode()


@contextmanager
def guarded(folder: Path) -> Iterator[Peer]:
    run = make_run(folder, "tf1_ps")
    with run.hosts.running():
        record = run.hosts.start()
        run.hosts.advance(3)
        yield Peer(run.hosts, record)


def test_guards_keep_the_kinds_of_their_messages() -> None:
    assert link.KINDS == KINDS
    assert set(get_args(link.Message)) == set(KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_message_of_another_guard_does_not_stop_the_head(kind: str, tmp_path: Path) -> None:
    with guarded(tmp_path) as peer:
        peer.hosts.hosts["node2"].kill_guard(for_good=True)
        head = peer.hosts.hosts["node1"].guard

        @FEW
        @given(st.data())
        def check(data: st.DataObject) -> None:
            peer.say(drawn(data, kind, peer.record.run))
            assert not peer.hosts.network.tracebacks
            assert peer.hosts.hosts["node1"].guard is head

        check()


def test_a_stranger_does_not_stop_the_head(tmp_path: Path) -> None:
    with guarded(tmp_path) as peer:
        head = peer.hosts.hosts["node1"].guard

        @settings(FEW, max_examples=40)
        @given(st.binary(max_size=80) | mutated(link.MemberHello).map(lambda value: json.dumps(value).encode()))
        def check(line: bytes) -> None:
            peer.say_plainly(line + b"\n")
            assert not peer.hosts.network.tracebacks

        check()
        peer.hosts.advance(30)
        assert peer.hosts.hosts["node1"].guard is head
        assert peer.hosts.outcome() == ("running", 101, "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_message_of_the_head_does_not_stop_another_guard(kind: str, tmp_path: Path) -> None:
    with guarded(tmp_path) as peer:
        peer.hosts.hosts["node1"].kill_guard(for_good=True)
        messages = [b'{"beat":{}}']

        async def serve(connection: link.Link) -> None:
            connection._writer.write(connection._sealer.seal(messages[-1]))
            with suppress(link.Broken):
                while True:
                    await connection.receive(wire.FOLLOW_SILENCE_S)
            connection.close()

        def welcome(connection: link.Link, _: link.MemberHello) -> None:
            peer.process.run(serve(connection))

        peer.answer(Strangers(peer.key, {"node2"}, (), welcome, link.LIMIT).listen)
        member = peer.hosts.hosts["node2"]

        @FEW
        @given(st.data())
        def check(data: st.DataObject) -> None:
            if member.guard is None:  # the message was not malformed, and told it to leave
                member.install_guard(peer.key.hex(), peer.record)
            before = member.guard
            messages.append(drawn(data, kind, peer.record.run))
            peer.hosts.advance(20.0)  # it connects again
            assert not peer.hosts.network.tracebacks
            assert member.guard in (before, None)

        check()


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"\xff", b"[" * 5000, b'{"nonce": 7}', b'{"nonce": "\\ud800"}', b'{"nonce": ["a"]}',
     b'{"nonce": "' + b"9" * 100_000 + b'"}', b'{"nonce": ' + b"9" * 5000 + b"}"],
    ids=lambda line: repr(line[:20]),
)  # fmt: skip
def test_another_program_at_the_place_of_the_head_does_not_stop_a_guard(line: bytes, tmp_path: Path) -> None:
    """A guard whose head has another beginning goes on to connect, until the head is back."""
    with guarded(tmp_path) as peer:
        peer.hosts.hosts["node1"].kill_guard(for_good=True)
        greeted = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal greeted
            greeted += 1
            writer.write(line + b"\n")
            await reader.read()
            writer.close()

        async def listen(listener: Any) -> None:
            await asyncio.start_server(serve, sock=listener, limit=link.LIMIT)

        peer.answer(listen)
        peer.hosts.advance(15)
        assert not peer.hosts.network.tracebacks
        assert greeted > 2, "each of the two guards tries again"
