"""Remote processes: their arguments, streams and ends, and the loss of the connection."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Relay, Sshd, finish, run

from tfctl.errors import TfctlError, Unreachable
from tfctl.model.host import Host
from tfctl.node.wire import LINE_LIMIT
from tfctl.remote.channel import STDERR_KEPT, Channel
from tfctl.remote.transport import connect

#: Run the test once with each transport over ssh.
overssh = pytest.mark.usefixtures("transport")
WAIT = 20.0
"""Limit in seconds, which no passing test reaches."""


def test_a_command_returns_its_output_and_its_exit_status(machine: Host) -> None:
    with connect(machine) as connection:
        done = run(connection, ["sh", "-c", "cat; echo oops >&2; exit 3"], b"in\0put")
        assert done == (3, b"in\0put", "oops\n")
        assert run(connection, ["true"]) == (0, b"", "")
        assert run(connection, ["sh", "-c", "kill -9 $$"]).status == -1


@overssh
def test_a_command_without_an_exit_status_is_like_one_that_a_signal_has_killed(sshd: Sshd) -> None:
    with connect(sshd.host()) as connection:
        assert run(connection, ["vanish"]) == (-1, b"", "")


def test_arguments_arrive_unchanged(machine: Host) -> None:
    words = st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), max_size=40
    )

    with connect(machine) as connection:

        @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(words)
        def check(given_words: list[str]) -> None:
            said = run(connection, ["printf", "%s\\0", *given_words, "'$(id) `id` ~ *"]).stdout
            assert said.decode().split("\0")[:-1] == [*given_words, "'$(id) `id` ~ *"]

        check()


def test_a_missing_command_ends_with_status_127(machine: Host) -> None:
    with connect(machine) as connection:
        done = run(connection, ["no-such-command"], b"x" * 200_000)
        assert done.status == 127
        assert "no-such-command" in done.stderr


def test_wait_raises_a_timeout_while_the_command_runs(machine: Host) -> None:
    with connect(machine) as connection:
        with (
            pytest.raises(TimeoutError, match=r"^node1: `sleep 60` still runs"),
            connection.exec(["sleep", "60"]) as long,
        ):
            long.wait(0.2)
        assert run(connection, ["echo", "on"]).stdout == b"on\n"


def test_input_and_output_alternate_line_by_line(machine: Host) -> None:
    with connect(machine) as connection, connection.exec(["cat"]) as channel:
        for number in range(3):
            channel.send(b"line %d\n" % number)
            assert channel.readline(WAIT) == b"line %d\n" % number
        channel.send(b"no newline")
        channel.close_stdin()
        assert channel.readline(WAIT) == b"no newline"
        assert channel.readline(WAIT) == b""
        assert channel.wait(WAIT) == 0


def test_lines_that_have_arrived_are_read_together(machine: Host) -> None:
    script = r"printf 'one\ntwo\r\n\nhal'; read go; printf 'f\nrest'"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        assert channel.readlines(WAIT) == [b"one\n", b"two\r\n", b"\n"]
        with pytest.raises(TimeoutError):
            channel.readlines(0.3)
        channel.send(b"go\n")
        assert channel.readlines(WAIT) == [b"half\n"]
        assert channel.readlines(WAIT) == [b"rest"]
        assert channel.readlines(WAIT) == []


def test_reading_continues_without_loss_after_a_timeout(machine: Host) -> None:
    script = "printf half; read go; echo ' and half'"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        with pytest.raises(TimeoutError, match=r"has sent nothing for 0\.3 s"):
            channel.readline(0.3)
        with pytest.raises(TimeoutError, match="still runs"):
            channel.wait(0.1)
        channel.send(b"go\n")
        assert channel.readline(WAIT) == b"half and half\n"


def test_the_time_in_which_this_process_does_not_run_is_no_silence_of_the_host(machine: Host) -> None:
    """A function that is called by PyDLL keeps the lock of the interpreter: no thread runs while it sleeps."""
    script = "sleep 1.5; echo here; exec sleep 60"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        found: list[bytes | TimeoutError] = []

        def read() -> None:
            try:
                found.append(channel.readline(1.0))
            except TimeoutError as error:
                found.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.2)
        ctypes.PyDLL(None).sleep(3)
        reader.join(WAIT)
        assert found == [b"here\n"]


def test_raw_bytes_are_read_between_lines(machine: Host, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "data").write_bytes(data)
    script = f"echo before; cat {tmp_path}/data; echo after"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        assert channel.readline(WAIT) == b"before\n"
        found = b""
        while len(found) < len(data):
            found += channel.read(min(100_000, len(data) - len(found)), WAIT)
        assert found == data
        assert channel.readline(WAIT) == b"after\n"
        assert channel.read(10, WAIT) == b""


def test_a_line_longer_than_the_limit_is_an_error(machine: Host) -> None:
    with (
        connect(machine) as connection,
        connection.exec(["cat", "/dev/zero"]) as channel,
        pytest.raises(TfctlError, match=f"does not end within {LINE_LIMIT} bytes"),
    ):
        channel.readline(WAIT)


def test_much_output_on_stderr_does_not_block_stdout(machine: Host) -> None:
    # Both streams share one window of 2 MiB: whoever reads stdout alone waits for ever.
    script = "head -c 5000000 /dev/zero | tr '\\0' e >&2; echo last >&2; echo done"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        assert channel.readline(WAIT) == b"done\n"
        assert channel.wait(WAIT) == 0
        tail = channel.stderr()
        assert tail.endswith("eeelast\n")
        assert len(tail) == STDERR_KEPT


def test_much_input_and_much_output_do_not_block_each_other(machine: Host) -> None:
    data = os.urandom(5_000_000)
    with connect(machine) as connection, connection.exec(["cat"]) as channel:
        # Nobody reads while this is sent, so cat cannot write, so it cannot read.
        channel.send(data)
        assert finish(channel) == (0, data, "")


def test_much_output_passes_a_small_window(machine: Host) -> None:
    words = ["sh", "-c", "head -c 5000000 /dev/zero; echo done"]
    with connect(machine) as connection, connection.exec(words, 1 << 16) as channel:
        assert len(channel.readline(WAIT)) == 5_000_005
        assert channel.wait(WAIT) == 0


def test_wait_reads_the_output_that_the_command_would_block_on(machine: Host) -> None:
    with connect(machine) as connection, connection.exec(["head", "-c", "5000000", "/dev/zero"]) as channel:
        assert channel.wait(WAIT) == 0
        assert len(channel.readline(WAIT)) == 5_000_000


@overssh
def test_a_stream_continues_when_the_server_renews_its_keys(sshd_with: Callable[..., Sshd]) -> None:
    with connect(sshd_with(rekey_bytes=1 << 20).host()) as connection:
        done = run(connection, ["sh", "-c", "head -c 8000000 /dev/zero; echo end"])
        assert done == (0, bytes(8_000_000) + b"end\n", "")


def test_two_processes_share_one_connection(machine: Host, sshd: Sshd) -> None:
    with connect(machine) as connection, connection.exec(["cat"]) as one, connection.exec(["cat"]) as two:
        one.send(b"1\n")
        two.send(b"2\n")
        assert (two.readline(WAIT), one.readline(WAIT)) == (b"2\n", b"1\n")
    assert sshd.logins == (0 if machine.is_local else 1)


def test_closing_a_channel_ends_its_process(machine: Host, tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    with connect(machine) as connection:
        channel = connection.exec(["sh", "-c", f"echo up; cat; touch {mark}"])
        assert channel.readline(WAIT) == b"up\n"
        channel.close()
        limit = time.monotonic() + WAIT
        while not mark.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        assert mark.exists()


@pytest.fixture
def chatting(sshd: Sshd, relay: Relay) -> Iterator[Channel]:
    """Start a process whose output has begun, over a network that a test can cut."""
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with connect(sshd.host()) as connection:
        channel = connection.exec(["sh", "-c", "echo hello; printf half; exec cat"])
        assert channel.readline(WAIT) == b"hello\n"
        yield channel


def send_for_ever(channel: Channel) -> None:
    while True:
        channel.send(b"x" * 100_000)


@overssh
@pytest.mark.parametrize(
    "use",
    [
        lambda channel: channel.readline(WAIT),
        lambda channel: channel.wait(WAIT),
        send_for_ever,
    ],
    ids=["readline", "wait", "send"],
)
def test_a_lost_connection_is_an_error_and_not_the_end_of_the_output(
    chatting: Channel, relay: Relay, use: Callable[[Channel], object]
) -> None:
    threading.Timer(0.1, relay.cut).start()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"^node1: the connection broke while `sh -c .*` ran") as caught:
        use(chatting)
    assert caught.value.remedy
    assert time.monotonic() - began < WAIT / 2


@overssh
def test_starting_a_process_on_a_lost_connection_fails(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with connect(sshd.host()) as connection:
        assert connection.alive
        relay.cut()
        limit = time.monotonic() + WAIT
        while connection.alive and time.monotonic() < limit:
            time.sleep(0.01)
        with pytest.raises(Unreachable, match="node1: the connection broke before `true` ran"):
            connection.exec(["true"])


def test_input_for_a_process_that_has_ended_is_discarded(machine: Host) -> None:
    script = "read first; echo no; echo enough >&2; exit 4"
    with connect(machine) as connection, connection.exec(["sh", "-c", script]) as channel:
        channel.send(b"a question\n")
        for _ in range(100):
            channel.send(b"x" * 100_000)
        assert channel.readline(WAIT) == b"no\n"
        assert channel.readline(WAIT) == b""
        assert channel.wait(WAIT) == 4
        assert channel.stderr() == "enough\n"
