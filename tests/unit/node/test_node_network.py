"""A host tries to connect to others: whatever answers has been reached, also if it refuses."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from tfctl.node import network
from tfctl.node.network import Attempts, Network
from tfctl.node.wire import Peer, Unreached


class FakeNames(Network):
    """A network in which names have these addresses, and the addresses 10.9.0.N lead to this machine."""

    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        self._found = found

    def lookup(self, name: str) -> list[str]:
        if name not in self._found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [*self._found[name]]

    def connect(self, address: str, port: int) -> socket.socket:
        return super().connect("127.0.0.1" if address.startswith("10.9.0.") else address, port)


def unreached(peers: Sequence[Peer], **found: Sequence[str]) -> tuple[Unreached, ...]:
    with Attempts(FakeNames(found), peers) as attempts:
        return attempts.unreached()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that answers no more connections: the kernel drops them while the queue of the listener is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        time.sleep(0.1)
        yield port


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_peer_that_refuses_or_accepts_has_been_reached(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        try:
            listener.bind((address, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        refuses = Peer("a", address, listener.getsockname()[1])
        assert unreached([refuses]) == ()
        listener.listen()
        assert unreached([refuses]) == ()


def test_attempts_take_no_time_when_all_peers_answer() -> None:
    began = time.monotonic()
    assert unreached([Peer(f"n{number}", "127.0.0.1", free_port()) for number in range(15)]) == ()
    assert time.monotonic() - began < 0.3


def test_silent_peer_is_named_after_a_second_whatever_their_number() -> None:
    with silent_port() as port:
        began = time.monotonic()
        peers = [Peer("a", "127.0.0.1", port), Peer("b", "127.0.0.1", free_port()), Peer("c", "10.9.0.3", port)]
        found = unreached(peers)
        assert 0.9 < time.monotonic() - began < 2
    assert found == (
        Unreached("a", f"cannot reach 127.0.0.1:{port}: no answer within 1 s", named=False),
        Unreached("c", f"cannot reach 10.9.0.3:{port}: no answer within 1 s", named=False),
    )


def test_peer_without_a_route_is_named_with_the_reason() -> None:
    # no TCP connection can be made to a multicast address
    (found,) = unreached([Peer("a", "224.0.0.1", 2222)])
    assert (found.host, found.named) == ("a", False)
    assert found.failure.startswith("cannot reach 224.0.0.1:2222: ")


def test_name_that_this_host_cannot_resolve_is_the_reason() -> None:
    assert unreached([Peer("a", "only-here", 2222)]) == (
        Unreached("a", "cannot resolve the name only-here: Name or service not known", named=True),
    )


@pytest.mark.parametrize("own", ["127.0.1.1", "::1"])
def test_name_that_leads_to_this_host_itself_does_not_reach_another(own: str) -> None:
    (found,) = unreached([Peer("a", "gpu2", 2222)], gpu2=[own])
    assert found == Unreached("a", f"cannot reach gpu2: the name resolves to {own} there", named=True)
    assert unreached([Peer("a", "gpu2", free_port())], gpu2=[own, "10.9.0.2"]) == ()


def test_name_has_been_reached_when_one_of_its_addresses_answers() -> None:
    assert unreached([Peer("a", "gpu2", free_port())], gpu2=["224.0.0.1", "10.9.0.2"]) == ()


def test_lookup_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FakeNames):
        def lookup(self, name: str) -> list[str]:
            time.sleep(1.0)
            return super().lookup(name)

    monkeypatch.setattr(network, "LOOKUP_S", 0.2)
    began = time.monotonic()
    with Attempts(Slow({}), [Peer("a", "slow", 2222)]) as attempts:
        (found,) = attempts.unreached()
    assert time.monotonic() - began < 0.9
    assert found.failure == "cannot resolve the name slow: no answer within 0 s"
