"""`tfctl forward` and `tfctl tensorboard`: ports of hosts, reached from this machine."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from loopback import answering, ask
from node_tree import free_port, wait_until

from tests.cluster.hosts import STAY, Hosts
from tests.cluster.test_exec import left
from tfctl.model.host import TRANSPORTS

#: A fake of TensorBoard: it prints what the real one prints, and serves HTTP.
TENSORBOARD = """#!/bin/sh
test "$1 $2 $3 $4 $5 $6" = "--logdir {output} --host 127.0.0.1 --port 0" || exit 9
exec {python} -c '
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print("NOTE: Using experimental fast data loading logic.", file=sys.stderr)
at = "TensorBoard 2.15.2 at http://127.0.0.1:%d/ (Press CTRL+C to quit)" % server.server_port
print(at, file=sys.stderr, flush=True)
server.serve_forever()
'
"""


@pytest.fixture(params=TRANSPORTS)
def job(request: pytest.FixtureRequest, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setenv("TFCTL_SSH", request.param)
    hosts.ok("start", hosts.file("open", STAY + "roles: {worker: 2}\n"))
    return hosts


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers in capitals. Hosts have the loopback address of this machine."""
    with answering(bytes.upper) as port:
        yield port


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_forward_connects_this_machine_to_a_port_of_the_host(job: Hosts, echo: int) -> None:
    local = free_port()
    with job.begin("forward", "worker", f"1:{echo}", local) as client:
        client.until(out=f"127.0.0.1:{local}\n", err=f"forwarding to port {echo} of node2, the host of worker/1")
        assert ask(local, b"hello") == b"HELLO"
        assert ask(local, b"x" * 1_000_000) == b"X" * 1_000_000
        client.process.send_signal(2)
        assert client.done().code == 130
    assert is_closed(local)
    with job.begin("forward", "worker", f"1:{echo}", local, "-o", "json") as client:
        client.until(out="}\n")
        place = {"job": "open", "role": "worker", "index": 1, "host": "node2", "host_port": echo}
        assert json.loads(client.out) == {**place, "address": "127.0.0.1", "port": local}


def test_forward_survives_a_broken_connection(job: Hosts, echo: int) -> None:
    local = free_port()
    with job.begin("forward", "open", "worker", f"0:{echo}", local) as client:
        client.until(out=f"127.0.0.1:{local}\n")
        assert ask(local, b"one") == b"ONE"
        job.drop("node1")
        wait_until(lambda: asked(local) == b"TWO", timeout=40)


def asked(port: int) -> bytes:
    try:
        return ask(port, b"two")
    except OSError:
        return b""


def test_forward_says_that_nothing_listens_there(job: Hosts) -> None:
    local = free_port()
    with job.begin("forward", f"worker/0:{free_port()}", local) as client:
        client.until(out=f"127.0.0.1:{local}\n")
        assert ask(local, b"") == b""
        client.until(err="nothing listens on port")


def test_forward_refuses_a_port_that_is_taken(job: Hosts, echo: int) -> None:
    done = job("forward", "worker", f"0:{echo}", echo)
    assert (done.code, f"port {echo} of this machine cannot be used" in done.err) == (5, True), done


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["worker", "0"], "names no port of a task"),
        ([], "names no port of a task"),
        (["worker", "0:0"], "a port is a number from 1 to 65535"),
        (["worker", "0:99999"], "a port is a number from 1 to 65535"),
        (["worker", "0:80", "x"], "'x' is not a port"),
        (["worker", "0:80", "1", "2"], "names no port of a task"),
    ],
)
def test_forward_refuses_other_words(words: list[str], said: str, hosts: Hosts) -> None:
    done = hosts("forward", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.fixture
def with_stack(hosts: Hosts) -> Callable[[str], None]:
    """Return a function that starts a job with a stack, whose `tensorboard` is this script, or missing."""
    import sys

    def start(script: str) -> None:
        for tree in hosts.trees.values():
            program = tree / "opt/tfctl/stacks/tf2.15-ab/bin/tensorboard"
            if script:
                program.write_text(script.replace("{python}", sys.executable).replace("{output}", "/srv/tfctl/curves"))
                program.chmod(0o755)
        file = hosts.file("curves", STAY + "roles: {worker: 2}\n")
        file.write_text(file.read_text().replace("stack: none", "stack: tf2.15"))
        hosts.ok("start", file)

    return start


@pytest.mark.parametrize("stopped", [False, True])
def test_tensorboard_runs_where_the_output_is_and_prints_its_url(
    stopped: bool, hosts: Hosts, with_stack: Callable[[str], None]
) -> None:
    with_stack(TENSORBOARD)
    if stopped:
        hosts.ok("stop", "curves")
    local = free_port()
    with hosts.begin("tensorboard", "--port", local) as client:
        client.until(out=f"http://127.0.0.1:{local}/\n", err="starting TensorBoard on node1, for /srv/tfctl/curves")
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=20) as page:
            assert page.status == 200
        client.process.send_signal(2)
        assert client.done().code == 130
    wait_until(lambda: left(hosts) == [], lambda: str(left(hosts)), timeout=20)
    assert is_closed(local)


def test_tensorboard_says_that_the_stack_does_not_have_it(hosts: Hosts, with_stack: Callable[[str], None]) -> None:
    with_stack("")
    done = hosts("tensorboard", "curves")
    assert (done.code, done.out) == (7, ""), done
    assert "stack tf2.15 has no TensorBoard on node1\n  → copy the output to this machine: tfctl pull" in done.err


def test_tensorboard_says_why_it_has_ended(hosts: Hosts, with_stack: Callable[[str], None]) -> None:
    script = "printf 'Error: no directory M\\303' >&2; sleep 0.3; printf x; sleep 0.3"
    with_stack(f"#!/bin/sh\n{script}; printf '\\244rz\\n' >&2; exit 1\n")
    done = hosts("tensorboard", "curves", "worker", 1)
    assert (done.code, "TensorBoard on node2 has ended: Error: no directory März" in done.err) == (1, True), done


def test_tensorboard_needs_a_stack(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("plain", STAY + "roles: {worker: 1}\n"))
    done = hosts("tensorboard")
    assert (done.code, "plain has no stack, and so no TensorBoard" in done.err) == (7, True), done
