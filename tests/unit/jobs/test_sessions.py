"""The sessions of a start: what no host should say."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from typing import Any

import pytest
from records import make_record

from tfctl.errors import Undone, Unreachable
from tfctl.jobs.code import CodeArchive
from tfctl.jobs.sessions import Sessions
from tfctl.model.host import Host, Ssh
from tfctl.node import wire
from tfctl.remote.fleet import Fleet


class Odd:
    """A session with a host that says what it should not."""

    ended = False

    def send(self, message: object) -> None:
        pass

    def close_stdin(self) -> None:
        pass

    def expect(self, kind: object, timeout: float) -> Any:
        raise KeyError(kind, timeout)

    def receive(self, timeout: float) -> Any:
        raise KeyError(timeout)


def test_go_reports_a_defect_when_a_session_raises_an_unexpected_error() -> None:
    sessions = Sessions(Fleet([]), {"node1": Odd()}, {}, "nothing was begun")  # type: ignore[dict-item]
    with pytest.raises(Undone, match="node1: this is a bug in tfctl: KeyError"):
        sessions.go()


class Reserving:
    """A session with a host that reserves what it is sent. ``lines``: what it was sent."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def send(self, message: wire.ClientMessage) -> None:
        self.lines.append(wire.line(message))

    def send_raw(self, data: bytes) -> None:
        self.lines.append(data)

    def expect(self, _kind: object, _timeout: float) -> wire.Reserved:
        return wire.Reserved()


def test_the_record_is_packed_where_the_host_can_read_that() -> None:
    new, old = Reserving(), Reserving()
    hello = wire.Hello(0, {}, {}, (), None, code=True, restartable=())
    hellos = {"new": hello._replace(packed=True), "old": hello}
    sessions = Sessions(Fleet([]), {"new": new, "old": old}, hellos, "")  # type: ignore[dict-item]
    message = wire.Rerun(make_record())
    assert sessions.reserve({Host(name, Ssh("10.0.0.1")): message for name in hellos}) == []
    assert [type(wire.parse(each.lines[0])["rerun"]["record"]) for each in (new, old)] == [str, dict]
    assert [wire.client_message(each.lines[0]) for each in (new, old)] == [message, message]


def test_code_is_copied_for_the_hosts_that_lack_it_and_only_once() -> None:
    data = bytes(10 * 2**20)
    code = CodeArchive("c0de", data, ("train.py",))
    message = wire.Rerun(make_record())
    for lacking, copies in ((0, 0), (3, 1)):
        hosts = {f"node{number}": Reserving() for number in range(5)}
        hello = wire.Hello(0, {}, {}, (), None, code=False, restartable=())
        hellos = {name: hello._replace(code=number >= lacking) for number, name in enumerate(hosts)}
        sessions = Sessions(Fleet([]), hosts, hellos, "")  # type: ignore[arg-type]
        tracemalloc.start()
        assert sessions.reserve({Host(name, Ssh("10.0.0.1")): message for name in hosts}, code) == []
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert copies * len(data) <= most < (copies + 0.5) * len(data)
        sent = [line for each in hosts.values() for line in each.lines[1:]]
        assert sent == [wire.line(wire.Code(len(data))) + data] * lacking


class Keeping:
    """A session with a host that confirms `keep`, or is silent. The message arrives together with a signal."""

    ended = False

    def __init__(self, number: signal.Signals, *, silent: bool = False) -> None:
        self.told = False
        self._number, self._silent = number, silent

    def send(self, _message: wire.Keep) -> None:
        os.kill(os.getpid(), self._number)
        self.told = True

    def expect(self, _kind: object, _timeout: float) -> wire.Kept:
        if self._silent:
            raise Unreachable("node2: silent")
        return wire.Kept()


class Slow:
    """A session with a host that takes its time to start units. A signal arrives while another thread has the CPU."""

    ended = False

    def __init__(self) -> None:
        self.started = False

    def send(self, message: wire.Go) -> None:
        pass

    def expect(self, _kind: object, _timeout: float) -> wire.Started:
        # Unlike one for the main thread, it does not end the wait of the main thread.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        time.sleep(5)
        self.started = True
        return wire.Started()


def test_ctrl_c_ends_the_wait_for_hosts_at_whatever_moment_it_comes() -> None:
    host = Slow()
    sessions = Sessions(Fleet([]), {"node1": host}, {}, "")  # type: ignore[dict-item]
    with pytest.raises(KeyboardInterrupt):
        sessions.go()
    assert not host.started


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM]


@pytest.mark.parametrize("number", SIGNALS)
def test_interruption_while_hosts_are_told_to_keep_the_job_waits_until_all_are_told(number: signal.Signals) -> None:
    hosts = {name: Keeping(number) for name in ("node1", "node2")}
    sessions = Sessions(Fleet([]), hosts, {}, "")  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        sessions.keep()
    assert [host.told for host in hosts.values()] == [True, True]


@pytest.mark.parametrize("number", SIGNALS)
def test_interruption_does_not_hide_that_a_host_has_not_confirmed_to_keep_the_job(number: signal.Signals) -> None:
    hosts = {"node1": Keeping(number), "node2": Keeping(number, silent=True)}
    sessions = Sessions(Fleet([]), hosts, {}, "")  # type: ignore[arg-type]
    assert [str(error) for error in sessions.keep()] == ["node2: silent"]
