"""The conversation with tfctl-node: a stand-in for sudo runs a small program that speaks, or does not."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator

import pytest
from loopback import Relay, Sshd

from tfctl.errors import Busy, Exit, NotFound, PreflightFailed, TfctlError, Unreachable
from tfctl.node import names, wire
from tfctl.remote.node import NodeChannel, open_node
from tfctl.remote.ssh import connect

WAIT = 20.0
REQUEST = wire.request("show", job=None, attempt=None, follow=False)
PROVISION = "tfctl provision INVENTORY --tags job_host"


@contextlib.contextmanager
def conversation(sshd: Sshd, script: str) -> Iterator[NodeChannel]:
    """With a host whose sudo is ``script``."""
    sshd.command("sudo", script)
    with connect(sshd.host("node2")) as connection, open_node(connection, REQUEST) as node:
        yield node


def says(*messages: object) -> str:
    return "read request\n" + "".join(f"echo '{json.dumps(message)}'\n" for message in messages)


def test_it_is_run_by_sudo_and_reads_its_request(sshd: Sshd) -> None:
    script = f'[ "$*" = "-n {names.PROGRAM}" ] || exit 9; read -r request; echo "{{\\"got\\": $request}}"'
    with conversation(sshd, script) as node:
        assert node.receive(WAIT) == ("got", json.loads(REQUEST))


def test_root_needs_no_sudo(sshd: Sshd) -> None:
    sshd.command("sudo", "exit 9")
    with (
        connect(sshd.host(user="root")) as connection,
        open_node(connection, REQUEST) as node,
        pytest.raises(PreflightFailed) as caught,
    ):
        node.receive(WAIT)
    assert caught.value.message == f"node1: tfctl's part ({names.PROGRAM}) is not installed"
    assert caught.value.remedy == PROVISION


def test_conversation(sshd: Sshd) -> None:
    with conversation(sshd, "read request; exec cat") as node:
        node.send("plan", {"job": "ä" * 100_000})
        assert node.receive(WAIT) == ("plan", {"job": "ä" * 100_000})
        node.beat()
        node.send_raw(wire.line("go", {}))
        assert node.receive(WAIT) == ("go", {})
        node.close_stdin()
        assert node.wait() == 0


def test_a_beat_ends_the_silence_and_is_no_message(sshd: Sshd) -> None:
    beats = "for _ in 1 2 3 4 5; do sleep 0.2; echo '{\"beat\": {}}'; done; " + "echo '{\"stopped\": 1}'; sleep 60"
    with conversation(sshd, beats) as node:
        assert node.receive(0.6) == ("stopped", 1)
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"^node2: tfctl-node has said nothing for 0\.3 s"):
            node.receive(0.3)
        assert time.monotonic() - began < 5


def test_a_beat_waits_for_nobody(sshd: Sshd) -> None:
    """Where much is being sent to a node that does not read, the others want their beats all the same."""
    with conversation(sshd, "read request; echo '{\"hello\": {}}'; sleep 60") as node:
        node.receive(WAIT)

        def send() -> None:
            with contextlib.suppress(Unreachable):
                node.send_raw(b"x" * 2**26)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        began = time.monotonic()
        while time.monotonic() < began + 1:
            node.beat()
        assert sending.is_alive()
        assert time.monotonic() - began < 5
    sending.join(WAIT)


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [
        (Exit.BUSY, Busy),
        (Exit.NOT_FOUND, NotFound),
        (Exit.PREFLIGHT, PreflightFailed),
        (Exit.FAILED, TfctlError),
        (77, TfctlError),
    ],
)
def test_an_error_of_the_node(sshd: Sshd, exit_code: int, kind: type[TfctlError]) -> None:
    with conversation(
        sshd, says({"hello": {}}, {"error": wire.error(exit_code, "port 2222 is taken", "stop it")})
    ) as node:
        node.receive(WAIT)
        with pytest.raises(TfctlError) as caught:
            node.receive(WAIT)
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.remedy) == ("node2: port 2222 is taken", "stop it")


def test_another_protocol(sshd: Sshd) -> None:
    error = wire.error(8, "this node speaks protocol 2, the client 1")
    with conversation(sshd, says({"error": error})) as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
    assert caught.value.remedy == PROVISION


@pytest.mark.parametrize("said", ["Welcome to node2!", "[1, 2]", '{"a": 1, "b": 2}', "17"])
def test_what_is_no_message(sshd: Sshd, said: str) -> None:
    with conversation(sshd, f"echo '{said}'; cat") as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
    assert caught.value.message == f"node2: this is not a message of tfctl-node: {said!r}"
    assert caught.value.remedy == PROVISION


@pytest.mark.parametrize(
    ("stderr", "status", "said"),
    [
        ("sudo: a password is required", 1, "sudo does not let this user run"),
        ("sudo: unable to resolve host n1\nsudo: Ein Passwort ist notwendig", 1, "Ein Passwort ist notwendig"),
        ("Sorry, user ops is not allowed to execute '/x' as root on n1.", 1, "sudo does not let this user run"),
        ("ops is not in the sudoers file.", 1, "sudo does not let this user run"),
        (f"sudo: {names.PROGRAM}: command not found", 1, "is not installed"),
        ("sh: 1: sudo: not found", 127, "sudo is not installed"),
        (f"sh: 1: {names.PROGRAM}: not found", 127, "tfctl's part"),
        (f"python3: can't open file '{names.PROGRAM}': [Errno 2] No such file or directory", 2, "is not installed"),
        ("", 126, "cannot be run"),
    ],
)
def test_sudo_that_runs_nothing(sshd: Sshd, stderr: str, status: int, said: str) -> None:
    text = stderr.replace("'", "'\\''")
    script = f"printf '%s\\n' '{text}' >&2; exit {status}"
    with conversation(sshd, script) as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
    assert caught.value.message.startswith("node2: ")
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy


def test_node_that_ends_in_mid_sentence(sshd: Sshd) -> None:
    script = says({"hello": {}}) + "echo 'No such file or directory' >&2; echo 'ValueError: oops' >&2; exit 1"
    with conversation(sshd, script) as node:
        node.receive(WAIT)
        with pytest.raises(TfctlError, match=r"^node2: tfctl-node ended with status 1: ValueError: oops") as caught:
            node.receive(WAIT)
    assert caught.value.exit == Exit.FAILED


def test_lines(sshd: Sshd) -> None:
    script = says({"logs": {}}) + "head -c 3000000 /dev/zero | tr '\\0' a; echo; echo '{}'"
    with conversation(sshd, script) as node:
        assert node.receive(WAIT) == ("logs", {})
        assert list(node.lines()) == [b"a" * 3_000_000 + b"\n", b"{}\n"]


def test_a_line_without_its_end_is_none(sshd: Sshd) -> None:
    with conversation(sshd, says({"logs": {}}) + "echo '{}'; printf '{\"__CURSOR\":\"s='") as node:
        node.receive(WAIT)
        lines = node.lines()
        assert next(lines) == b"{}\n"
        with pytest.raises(TfctlError, match=r'node2: .*status 0: {"__CURSOR":"s='):
            next(lines)


def test_lines_of_a_journal_that_cannot_be_read(sshd: Sshd) -> None:
    script = says({"logs": {}}) + "echo '{}'; echo 'Failed to seek to cursor' >&2; exit 1"
    with conversation(sshd, script) as node:
        node.receive(WAIT)
        lines = node.lines()
        assert next(lines) == b"{}\n"
        with pytest.raises(TfctlError, match=r"node2: .*status 1: Failed to seek to cursor"):
            next(lines)


def test_connection_that_breaks(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with conversation(sshd, says({"hello": {}}) + "cat") as node:
        node.receive(WAIT)
        relay.cut()
        with pytest.raises(Unreachable, match=r"^node2: the connection broke"):
            node.receive(WAIT)
        with pytest.raises(Unreachable, match=r"^node2: the connection broke"):
            node.beat()
