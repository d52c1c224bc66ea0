"""What Horovod's ranks run beneath: the store in which they meet, and the way to it."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest
from node_tree import wait_until

from tfctl_runtime.horovod import mpi, store
from tfctl_runtime.horovod.agent import Agent
from tfctl_runtime.horovod.peers import answer, ask, await_free
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
def client() -> Iterator[Client]:
    """Of a store for HOSTS."""
    with store.RendezvousStore(0, store.sizes(HOSTS)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Client(server.server_address[1])
        server.shutdown()
        thread.join(10)


def test_the_store_does_not_wait_for_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> str:
        raise AssertionError("a name server was asked")

    monkeypatch.setattr("socket.getfqdn", asked)
    store.RendezvousStore(0, {}).server_close()


def test_a_stored_value_can_be_read(client: Client) -> None:
    assert client("GET", "/global/0") == (404, b"")
    assert client("PUT", "/global/0", b"\0 address of a rank") == (200, b"")
    assert client("GET", "/global/0") == (200, b"\0 address of a rank")
    assert client("GET", "/local_10.0.0.1/0") == (404, b"")


def test_a_scope_is_emptied_when_all_its_ranks_have_left(client: Client) -> None:
    client("PUT", "/global/0", b"a")
    client("PUT", "/cross_1/0", b"b")
    for rank in range(2):
        client("DELETE", f"/global/{rank}")
        assert client("GET", "/global/0") == (200, b"a")
    client("DELETE", "/global/2")
    assert client("GET", "/global/0")[0] == 404
    client("DELETE", "/cross_1/0")
    assert client("GET", "/cross_1/0")[0] == 404


def test_store_deletes_a_single_key_that_belongs_to_no_communicator(client: Client) -> None:
    client("PUT", "/tfctl/0", b"1")
    client("PUT", "/tfctl/1", b"1")
    client("DELETE", "/tfctl/0")
    assert [client("GET", f"/tfctl/{rank}")[0] for rank in range(2)] == [404, 200]


def test_a_malformed_request_is_answered(client: Client) -> None:
    assert client("GET", "/")[0] == 404
    assert client("DELETE", "/nothing/7")[0] == 200


def test_store_knows_the_sizes_of_the_communicators_of_each_horovod_version() -> None:
    """Of Horovod now, and of it before 0.20."""
    of_both = {"cross_0": 2, "cross_1": 1}
    now = {"global": 3, "local_10.0.0.1": 2, "local_10.0.0.2": 1}
    before = {"global_": 3, "local_0": 2, "local_1": 1}
    assert store.sizes(HOSTS) == {**of_both, **now, **before}


def test_the_interface_is_the_one_by_which_the_others_are_reached() -> None:
    assert elsewhere(["10.0.0.1", "10.0.0.1", "10.0.0.2"], "10.0.0.1") == "10.0.0.2"
    assert elsewhere(["10.0.0.1"], "10.0.0.1") == "10.0.0.1"
    assert interface("127.0.0.1") in {name for _, name in socket.if_nameindex() if name.startswith("lo")}


# Under mpirun


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Of rank 0, the only one, whose job has a secret."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = int(probe.getsockname()[1])
    monkeypatch.setenv("TFCTL_RANKS", f'["127.0.0.1:{found}"]')
    monkeypatch.setenv("TFCTL_SECRET", "0123456789abcdef")
    return found


def test_agent_runs_its_rank_once_with_the_environment_of_mpirun(port: int, tmp_path: Path) -> None:
    script = "import os, pathlib; pathlib.Path(os.environ['OMPI_FILE']).touch(); raise SystemExit(7)"
    agent = Agent([sys.executable, "-c", script], port)
    assert await_free(10) == []
    with ask(("127.0.0.1", port), do="rank", environment={"OMPI_FILE": str(tmp_path / "ran")}) as asked:
        assert answer(asked) == {"exit": 7}
    assert agent.result() == 7
    assert (tmp_path / "ran").exists()
    assert await_free(0.5) == [0]
    with ask(("127.0.0.1", port), do="rank", environment={}) as asked:
        assert answer(asked) == {"exit": 1}


@pytest.mark.parametrize(("needs", "without"), [(b"libmpi.so.40", False), (b"libtensorflow.so", True), (None, False)])
def test_a_horovod_without_mpi_is_refused(
    needs: bytes | None, without: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if needs:
        library = tmp_path / "horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"\x7fELF" + needs)
        (tmp_path / "horovod/__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert mpi.without_mpi() is without


def test_a_rank_ends_with_the_connection_that_asked_for_it(port: int, tmp_path: Path) -> None:
    script = f"import pathlib, time; pathlib.Path({str(tmp_path / 'began')!r}).touch(); time.sleep(600)"
    agent = Agent([sys.executable, "-c", script], port)
    with ask(("127.0.0.1", port), do="rank", environment={}):
        wait_until((tmp_path / "began").exists)
    assert agent.result() == 128 + signal.SIGTERM


@pytest.mark.parametrize("way", ["the unit is stopped", "mpirun ends"])
def test_a_rank_has_the_grace_period_of_the_job_to_end(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("TFCTL_GRACE_S", "1")
    script = "import signal, pathlib, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    script += f"pathlib.Path({str(tmp_path / 'began')!r}).touch(); time.sleep(600)"
    agent = Agent([sys.executable, "-c", script], port)
    with ask(("127.0.0.1", port), do="rank", environment={}) as asked:
        wait_until((tmp_path / "began").exists)
        ended = time.monotonic()
        if way == "the unit is stopped":
            agent.end()
        else:
            asked.close()
        assert agent.result() == 128 + signal.SIGKILL
    assert 1.0 <= time.monotonic() - ended < 8.0


def test_an_agent_requires_the_secret(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Agent(["false"], port)
    monkeypatch.setenv("TFCTL_SECRET", "a guess")
    assert await_free(0.5) == [0]
    with pytest.raises(AuthenticationError):
        ask(("127.0.0.1", port), do="daemon", line="true")


def test_a_rank_whose_program_is_missing_says_so(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    agent = Agent(["/no/such/program"], port)
    with ask(("127.0.0.1", port), do="rank", environment={}) as asked:
        assert answer(asked) == {"exit": 127}
    assert agent.result() == 127
    assert "tfctl: /no/such/program: No such file" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("addresses", "hosts", "mapped"),
    [
        (["127.0.0.1", "127.0.0.2", "127.0.0.1"], "127.0.0.1:2,127.0.0.2:1", "node"),
        (["127.0.0.1", "127.0.0.1", "127.0.0.2"], "127.0.0.1:2,127.0.0.2:1", "slot"),
        (["127.0.0.1", "127.0.0.1"], "127.0.0.1:2", "node"),
    ],
)
def test_mpirun_places_rank_n_with_worker_n(addresses: list[str], hosts: str, mapped: str) -> None:
    words = mpi.words_of("/usr/bin/mpirun", addresses)
    assert words[words.index("--host") + 1] == hosts
    assert words[words.index("--map-by") + 1] == mapped
    assert words[-3:] == ["-m", "tfctl_runtime.horovod.mpi", "--rank"]
    between = [word for word in words if word.endswith("_if_include")]
    assert len(between) == (0 if len(set(addresses)) == 1 else 2)


@pytest.mark.parametrize(
    ("addresses", "network"),
    [(["127.0.0.1", "127.0.0.2"], "127.0.0.0/8"), (["127.0.0.1", "127.0.0.2", "198.51.100.7"], None)],
)
def test_mpirun_is_limited_to_a_network_only_if_all_hosts_are_in_it(addresses: list[str], network: str | None) -> None:
    """A host without an address in this network could not take part."""
    words = mpi.words_of("/usr/bin/mpirun", addresses)
    given = {word: words[place + 1] for place, word in enumerate(words) if word.endswith("_if_include")}
    assert given == ({"btl_tcp_if_include": network, "oob_tcp_if_include": network} if network else {})
