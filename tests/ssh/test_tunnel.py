"""Ports of hosts, reached over the connection that is open already, by each transport."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

import pytest
from loopback import Sshd, answering, ask
from node_tree import wait_until

from tfctl.errors import Busy, Unreachable
from tfctl.remote.transport import Connection, connect
from tfctl.remote.tunnel import Tunnel

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that answers with the number of bytes that it got."""
    with answering(lambda data: str(len(data)).encode()) as port:
        yield port


def test_connections_use_the_login_that_there_is_and_keep_their_half_closed_state(sshd: Sshd, server: int) -> None:
    with connect(sshd.host()) as connection, Tunnel(lambda: connection, server, [0], print) as tunnel:
        assert [ask(tunnel.local, b"x" * size) for size in (0, 1, 3_000_000)] == [b"0", b"1", b"3000000"]
    assert sshd.logins == 1
    assert sshd.forwards == [("127.0.0.1", server)] * 3


def test_the_end_of_a_tunnel_ends_its_connections(sshd: Sshd, server: int) -> None:
    with connect(sshd.host()) as connection:
        with Tunnel(lambda: connection, server, [0], print) as tunnel:
            end = socket.create_connection(("127.0.0.1", tunnel.local), timeout=20)
            end.sendall(b"x")
        with end, contextlib.suppress(ConnectionResetError):
            assert end.recv(1) in (b"", b"1")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", tunnel.local), timeout=5)


def test_a_tunnel_accepts_connections_again_after_this_machine_had_no_file_descriptors() -> None:
    said: list[str] = []

    def gone() -> Connection:
        raise Unreachable("node1: gone")

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Tunnel(gone, 1, [0], said.append) as tunnel, socket.socket() as early, socket.socket() as late:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            early.connect(("127.0.0.1", tunnel.local))  # `accept`, which has begun, may have a descriptor for it
            late.connect(("127.0.0.1", tunnel.local))
            wait_until(lambda: any("accept" in text for text in said), timeout=20)
            time.sleep(0.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        wait_until(lambda: said.count("node1: gone") == 2, timeout=20)
    assert said.count(f"port {tunnel.local} of this machine cannot accept a connection: Too many open files") == 1


def test_a_host_that_does_not_forward_ports_is_reported(sshd: Sshd, server: int) -> None:
    sshd.may_forward = False
    with connect(sshd.host()) as connection, pytest.raises(Unreachable) as caught:
        connection.dial(server)
    assert caught.value.message.startswith("node1: ")


def test_a_lost_connection_is_reported(sshd: Sshd, server: int) -> None:
    with connect(sshd.host()) as connection:
        sshd.drop()
        with pytest.raises(Unreachable, match=r"^node1: "):
            connection.dial(server)


def test_the_first_free_port_is_taken(sshd: Sshd, server: int) -> None:
    with connect(sshd.host()) as connection:
        with Tunnel(lambda: connection, server, [server, 0], print) as tunnel:
            assert tunnel.local != server
        with pytest.raises(Busy, match=f"port {server} of this machine cannot be used"):
            Tunnel(lambda: connection, server, [server], print)
