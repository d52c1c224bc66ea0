"""What Horovod's ranks run beneath: the store in which they meet, and the way to it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from tfctl_runtime.horovod import store
from tfctl_runtime.horovod.route import elsewhere, interface

HOSTS = ["10.0.0.1", "10.0.0.1", "10.0.0.2"]


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def ask() -> Iterator[Client]:
    """Of a store for HOSTS."""
    with store.Store(0, store.sizes(HOSTS)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Client(server.server_address[1])
        server.shutdown()
        thread.join(10)


def test_a_value_is_there_when_it_was_put(ask: Client) -> None:
    assert ask("GET", "/global/0") == (404, b"")
    assert ask("PUT", "/global/0", b"\0 address of a rank") == (200, b"")
    assert ask("GET", "/global/0") == (200, b"\0 address of a rank")
    assert ask("GET", "/local_10.0.0.1/0") == (404, b"")


def test_a_scope_is_empty_when_all_its_ranks_have_left(ask: Client) -> None:
    ask("PUT", "/global/0", b"a")
    ask("PUT", "/cross_1/0", b"b")
    for rank in range(2):
        ask("DELETE", f"/global/{rank}")
        assert ask("GET", "/global/0") == (200, b"a")
    ask("DELETE", "/global/2")
    assert ask("GET", "/global/0")[0] == 404
    ask("DELETE", "/cross_1/0")
    assert ask("GET", "/cross_1/0")[0] == 404


def test_a_key_of_no_communicator_goes_by_itself(ask: Client) -> None:
    ask("PUT", "/tfctl/0", b"1")
    ask("PUT", "/tfctl/1", b"1")
    ask("DELETE", "/tfctl/0")
    assert [ask("GET", f"/tfctl/{rank}")[0] for rank in range(2)] == [404, 200]


def test_nonsense_is_answered(ask: Client) -> None:
    assert ask("GET", "/")[0] == 404
    assert ask("DELETE", "/nothing/7")[0] == 200


def test_the_sizes_of_horovods_communicators() -> None:
    assert store.sizes(HOSTS) == {"global": 3, "local_10.0.0.1": 2, "local_10.0.0.2": 1, "cross_0": 2, "cross_1": 1}


def test_the_interface_is_the_one_by_which_the_others_are_reached() -> None:
    assert elsewhere(["10.0.0.1:2222", "10.0.0.1:2223", "10.0.0.2:2222"], "10.0.0.1:2223") == "10.0.0.2"
    assert elsewhere(["10.0.0.1:2222"], "10.0.0.1:2222") == "10.0.0.1"
    assert interface("127.0.0.1") in {name for _, name in socket.if_nameindex() if name.startswith("lo")}
