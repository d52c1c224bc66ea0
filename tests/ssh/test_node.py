"""The session with tfctl-node: a stand-in for sudo runs a small program that speaks, or does not."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from loopback import Relay, Sshd

from tfctl.errors import Busy, Exit, NotFound, PreflightFailed, TfctlError, Unreachable
from tfctl.node import names, wire
from tfctl.remote import session
from tfctl.remote.session import Session, ask_node, open_session
from tfctl.remote.transport import connect

WAIT = 20.0
REQUEST = wire.ShowRequest()
HELLO = {"highest": 0, "ports": {}, "names": {}, "gpus": [], "gpu_trouble": None, "code": True, "restartable": []}
LOGS = {"attempt": 1, "run": "0123abcd", "units": {}}
PROVISION = "tfctl provision INVENTORY --tags job_host"


@contextlib.contextmanager
def session_with(sshd: Sshd, script: str) -> Iterator[Session]:
    """Open a session with a host whose sudo is ``script``."""
    sshd.command("sudo", script)
    with connect(sshd.host("node2")) as connection, open_session(connection, REQUEST) as node:
        yield node


def says(*messages: object) -> str:
    return "read request\n" + "".join(f"echo '{json.dumps(message)}'\n" for message in messages)


def test_node_part_is_run_with_sudo_and_reads_its_request(sshd: Sshd) -> None:
    header = json.dumps({"logs": LOGS})
    script = f"[ \"$*\" = '-n {names.PROGRAM}' ] || exit 9; read -r request; echo '{header}'; echo \"$request\""
    with session_with(sshd, script) as node:
        node.expect(wire.Logs, WAIT)
        assert list(chain(*node.batches())) == [wire.request(REQUEST)]


#: A node part that counts its processes, and answers requests until its input ends.
ANSWERING = """
    echo >> {count}
    while read -r request; do {more} echo '{{"show": {{"jobs": [], "time": 1.0}}}}'; {end} done
"""


def processes(sshd: Sshd, count: Path, more: str = "", end: str = "") -> int:
    """Ask a node part three times, and return how many processes that took."""
    sshd.command("sudo", ANSWERING.format(count=count, more=more, end=end))
    with connect(sshd.host()) as connection:
        for _ in range(2):
            assert ask_node(connection, REQUEST, wire.Shown, WAIT).time == 1.0
            time.sleep(0.1)
        with open_session(connection, REQUEST) as node:
            assert node.expect(wire.Shown, WAIT).time == 1.0
    return count.read_text().count("\n")


def test_a_node_part_answers_several_requests_on_one_connection(sshd: Sshd, tmp_path: Path) -> None:
    assert processes(sshd, tmp_path / "count") == 1


def test_an_older_node_part_is_started_for_each_request(sshd: Sshd, tmp_path: Path) -> None:
    """It ends after its answer."""
    assert processes(sshd, tmp_path / "count", end="exit 0;") == 3


def test_a_request_is_sent_again_to_a_new_node_part_if_the_first_had_ended(sshd: Sshd, tmp_path: Path) -> None:
    """This is not known before it is sent: the process ends just as it gets the second request."""
    once = f"[ ! -e {tmp_path}/answered ] || {{ rm {tmp_path}/answered; exit 0; }}; touch {tmp_path}/answered;"
    assert processes(sshd, tmp_path / "count", more=once) == 3


def test_a_request_is_not_sent_again_if_the_node_part_failed(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(TfctlError, match="tfctl-node ended with status 3"):
        processes(sshd, tmp_path / "count", more=f"[ ! -e {tmp_path}/answered ] || exit 3; touch {tmp_path}/answered;")


def test_a_request_that_must_not_be_repeated_has_a_node_part_of_its_own(sshd: Sshd, tmp_path: Path) -> None:
    """It starts when the other one has ended: sshd allows ten at a time on a connection."""
    began = f"[ ! -e {tmp_path}/runs ] || touch {tmp_path}/two; touch {tmp_path}/runs;"
    ended = f"\nsleep 0.3; rm {tmp_path}/runs"
    sshd.command("sudo", began + ANSWERING.format(count=tmp_path / "count", more="", end="") + ended)
    with connect(sshd.host()) as connection:
        ask_node(connection, REQUEST, wire.Shown, WAIT)
        ask_node(connection, wire.PruneRequest(attempts=()), wire.Shown, WAIT)
    assert (tmp_path / "count").read_text() == "\n\n"
    assert not (tmp_path / "two").exists()


def test_a_node_part_whose_channel_has_another_window_is_not_asked_again(sshd: Sshd, tmp_path: Path) -> None:
    sshd.command("sudo", ANSWERING.format(count=tmp_path / "count", more="", end=""))
    with connect(sshd.host()) as connection:
        for window in (1 << 16, 1 << 16, None, 2 << 20):
            ask_node(connection, REQUEST, wire.Shown, WAIT, window)
    assert (tmp_path / "count").read_text() == "\n\n"


def test_a_connection_is_closed_if_a_node_part_is_silent_that_had_answered(sshd: Sshd, tmp_path: Path) -> None:
    """Perhaps it died while the client slept. Nothing else would notice that."""
    once = f"[ ! -e {tmp_path}/answered ] || sleep 60; touch {tmp_path}/answered;"
    sshd.command("sudo", ANSWERING.format(count=tmp_path / "count", more=once, end=""))
    with connect(sshd.host()) as connection:
        ask_node(connection, REQUEST, wire.Shown, WAIT)
        with pytest.raises(Unreachable, match="sent nothing"):
            ask_node(connection, REQUEST, wire.Shown, 1.0)
        assert not connection.alive


def test_a_node_part_that_has_waited_for_long_is_not_asked_again(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be about to end."""
    monkeypatch.setattr(session, "_SPARE_S", 0.05)
    assert processes(sshd, tmp_path / "count") == 3


def test_root_needs_no_sudo(sshd: Sshd) -> None:
    sshd.command("sudo", "exit 9")
    with (
        connect(sshd.host(user="root")) as connection,
        open_session(connection, REQUEST) as node,
        pytest.raises(PreflightFailed) as caught,
    ):
        node.receive(WAIT)
    assert caught.value.message == f"node1: tfctl's part ({names.PROGRAM}) is not installed"
    assert caught.value.remedy == PROVISION


def test_session_exchanges_messages_with_the_node_part(sshd: Sshd) -> None:
    with session_with(sshd, "read request; exec cat") as node:
        error = wire.Undone(wire.Error(6, "ä" * 100_000))
        node.send_raw(wire.line(error))
        assert node.expect(wire.Undone, WAIT) == error
        node.beat()
        node.send_raw(wire.line(wire.Kept()))
        assert isinstance(node.receive(WAIT), wire.Kept)
        node.close_stdin()
        assert node.wait() == 0


def test_heartbeat_ends_the_silence_and_is_not_a_message(sshd: Sshd) -> None:
    beats = "for _ in 1 2 3 4 5; do sleep 0.2; echo '{\"beat\": {}}'; done; " + "echo '{\"kept\": {}}'; sleep 60"
    with session_with(sshd, beats) as node:
        assert isinstance(node.receive(0.6), wire.Kept)
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"^node2: tfctl-node has sent nothing for 0\.3 s"):
            node.receive(0.3)
        assert time.monotonic() - began < 5


def test_heartbeats_reach_other_nodes_while_one_reads_nothing(sshd: Sshd) -> None:
    """A node that does not read its input must not delay the heartbeats of the others."""
    with session_with(sshd, says({"hello": HELLO}) + "sleep 60") as node:
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
def test_error_of_the_node_part_is_raised_with_its_exit_code(
    sshd: Sshd, exit_code: int, kind: type[TfctlError]
) -> None:
    with session_with(
        sshd,
        says({"hello": HELLO}, {"error": {"exit": exit_code, "message": "port 2222 is taken", "remedy": "stop it"}}),
    ) as node:
        node.receive(WAIT)
        with pytest.raises(TfctlError) as caught:
            node.receive(WAIT)
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.remedy) == ("node2: port 2222 is taken", "stop it")


def test_session_is_refused_when_the_node_part_uses_another_protocol(sshd: Sshd) -> None:
    error = {"exit": 8, "message": "this node uses protocol 1, the client 2"}
    with session_with(sshd, says({"error": error})) as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
    assert caught.value.remedy == PROVISION


@pytest.mark.parametrize("said", ["Welcome to node2!", "", "[1, 2]", "17", "[info] module loaded", "{"])
def test_a_session_skips_lines_before_the_first_message_that_are_not_messages(sshd: Sshd, said: str) -> None:
    with session_with(sshd, f"echo '{said}'; echo '{said}'\n" + says({"kept": {}})) as node:
        assert isinstance(node.receive(WAIT), wire.Kept)


@pytest.mark.parametrize("said", ["Welcome to node2! ", r"\033]0;ops@node2\007", "{", '[1] {"a": 1}', '{"kept": '])
def test_a_session_skips_text_without_a_newline_before_the_first_message(sshd: Sshd, said: str) -> None:
    with session_with(sshd, f"printf '{said}'\n" + says({"kept": {}}, {"hello": HELLO})) as node:
        assert isinstance(node.receive(WAIT), wire.Kept)
        assert isinstance(node.receive(WAIT), wire.Hello)


def test_a_session_quotes_what_it_skipped_when_no_message_follows(sshd: Sshd) -> None:
    with (
        session_with(sshd, "echo Welcome; sleep 60") as node,
        pytest.raises(Unreachable, match=r"nothing for 0\.5 s but 'Welcome'"),
    ):
        node.receive(0.5)
    with (
        session_with(sshd, "echo 'This account is locked'; exit 1") as node,
        pytest.raises(TfctlError, match="ended with status 1: This account is locked"),
    ):
        node.receive(WAIT)


def test_a_session_skips_only_a_limited_number_of_lines(sshd: Sshd) -> None:
    with (
        session_with(sshd, "exec yes") as node,
        pytest.raises(PreflightFailed, match="not a message of tfctl-node: 'y'"),
    ):
        node.receive(WAIT)


@pytest.mark.parametrize("said", ["Welcome to node2!", "[1, 2]", '{"a": 1, "b": 2}', "17"])
def test_a_line_after_the_first_message_that_is_no_message_is_an_error(sshd: Sshd, said: str) -> None:
    script = says({"hello": HELLO}) + f"echo '{said}'; cat"
    with session_with(sshd, script) as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
        node.receive(WAIT)
    assert caught.value.message.startswith(f"node2: this is not a message of tfctl-node: {said!r} (it is not ")
    assert caught.value.remedy == PROVISION


@pytest.mark.parametrize(
    ("stderr", "status", "said"),
    [
        ("sudo: a password is required", 1, "sudo does not permit this user to run"),
        ("sudo: unable to resolve host n1\nsudo: Ein Passwort ist notwendig", 1, "Ein Passwort ist notwendig"),
        ("Sorry, user ops is not allowed to execute '/x' as root on n1.", 1, "sudo does not permit this user to run"),
        ("ops is not in the sudoers file.", 1, "sudo does not permit this user to run"),
        (f"sudo: {names.PROGRAM}: command not found", 1, "is not installed"),
        ("Traceback\nModuleNotFoundError: No module named 'tfctl_node'", 1, "is not installed"),
        ("sh: 1: sudo: not found", 127, "sudo is not installed"),
        (f"sh: 1: {names.PROGRAM}: not found", 127, "tfctl's part"),
        (f"python3: can't open file '{names.PROGRAM}': [Errno 2] No such file or directory", 2, "is not installed"),
        ("", 126, "cannot be run"),
    ],
)
def test_session_says_why_sudo_runs_nothing(sshd: Sshd, stderr: str, status: int, said: str) -> None:
    text = stderr.replace("'", "'\\''")
    script = f"printf '%s\\n' '{text}' >&2; exit {status}"
    with session_with(sshd, script) as node, pytest.raises(PreflightFailed) as caught:
        node.receive(WAIT)
    assert caught.value.message.startswith("node2: ")
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("script", "said", "remedy"),
    [
        ("echo 'This account is currently not available.'; exit 1", "This account is currently not", "usermod -s"),
        (
            "echo 'Password change required but no TTY available.' >&2; exit 1",
            "Password change required",
            "chage -M -1 USER",
        ),
    ],
)
def test_session_says_why_a_login_ends_at_once(sshd: Sshd, script: str, said: str, remedy: str) -> None:
    with (
        session_with(sshd, script) as node,
        pytest.raises(Unreachable, match=r"^node2: the login ends at once") as caught,
    ):
        node.receive(WAIT)
    assert said in caught.value.message
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        ("echo 'sh: 1: Cannot fork' >&2; exit 2", "too many processes"),
        ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "free space on node2"),
        ("echo 'ValueError: oops' >&2; exit 1", "log in to node2 as the same user: sudo -n /usr/local/sbin/tfctl-node"),
    ],
)
def test_remedy_for_a_node_part_that_ends_says_what_helps(sshd: Sshd, script: str, remedy: str) -> None:
    with session_with(sshd, script) as node, pytest.raises(TfctlError) as caught:
        node.receive(WAIT)
    assert remedy in caught.value.remedy


def test_session_reports_a_node_part_that_ends_within_a_message(sshd: Sshd) -> None:
    script = says({"hello": HELLO}) + "echo 'No such file or directory' >&2; echo 'ValueError: oops' >&2; exit 1"
    with session_with(sshd, script) as node:
        node.receive(WAIT)
        with pytest.raises(TfctlError, match=r"^node2: tfctl-node ended with status 1: ValueError: oops") as caught:
            node.receive(WAIT)
    assert caught.value.exit == Exit.FAILED


def test_lines_are_yielded_to_the_end_of_the_output(sshd: Sshd) -> None:
    script = says({"logs": LOGS}) + "head -c 3000000 /dev/zero | tr '\\0' a; echo; echo '{}'"
    with session_with(sshd, script) as node:
        assert node.receive(WAIT) == wire.Logs(1, "0123abcd", {})
        assert list(chain(*node.batches())) == [b"a" * 3_000_000 + b"\n", b"{}\n"]


def test_states_among_the_lines_are_decoded(sshd: Sshd) -> None:
    with session_with(sshd, says({"logs": LOGS}, {"show": {"jobs": []}}, {"beat": {}}, {"MESSAGE": "x"})) as node:
        node.receive(WAIT)
        assert list(chain(*node.batches(WAIT))) == [wire.Shown(()), b'{"MESSAGE": "x"}\n']


def test_silence_after_the_last_line_is_an_error_if_it_is_limited(sshd: Sshd) -> None:
    """Beats end the silence, and are no lines."""
    beats = "for _ in 1 2 3 4 5; do sleep 0.2; echo '{\"beat\":{}}'; done; echo '{}'; exec sleep 60"
    with session_with(sshd, says({"logs": LOGS}) + beats) as node:
        node.receive(WAIT)
        lines = chain.from_iterable(node.batches(0.6))
        assert next(lines) == b"{}\n"
        with pytest.raises(Unreachable, match=r"^node2: tfctl-node has sent nothing for 0\.6 s"):
            next(lines)


def test_incomplete_last_line_is_an_error(sshd: Sshd) -> None:
    with session_with(sshd, says({"logs": LOGS}) + "echo '{}'; printf '{\"__CURSOR\":\"s='") as node:
        node.receive(WAIT)
        lines = chain.from_iterable(node.batches())
        assert next(lines) == b"{}\n"
        with pytest.raises(TfctlError, match=r'node2: .*status 0: {"__CURSOR":"s='):
            next(lines)


def test_lines_raise_the_error_of_a_node_part_that_fails(sshd: Sshd) -> None:
    script = says({"logs": LOGS}) + "echo '{}'; echo 'Failed to seek to cursor' >&2; exit 1"
    with session_with(sshd, script) as node:
        node.receive(WAIT)
        lines = chain.from_iterable(node.batches())
        assert next(lines) == b"{}\n"
        with pytest.raises(TfctlError, match=r"node2: .*status 1: Failed to seek to cursor"):
            next(lines)


def test_session_reports_a_broken_connection(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with session_with(sshd, says({"hello": HELLO}) + "cat") as node:
        node.receive(WAIT)
        relay.cut()
        with pytest.raises(Unreachable, match=r"^node2: the connection broke"):
            node.receive(WAIT)
        with pytest.raises(Unreachable, match=r"^node2: the connection broke"):
            node.beat()
