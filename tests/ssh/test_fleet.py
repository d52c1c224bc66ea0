"""Many hosts at once: order, failures as results, nothing that holds up the rest."""

from __future__ import annotations

import contextlib
import queue
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
from loopback import Impostor, Relay, Sshd, run

from tfctl.errors import NotFound, TfctlError, Unreachable
from tfctl.model.host import Host, Ssh
from tfctl.remote.fleet import CONNECTING, Fleet, Outcome
from tfctl.remote.ssh import Connection

WAIT = 20.0


def name_of(connection: Connection) -> str:
    return run(connection, ["printf", connection.host.name]).stdout.decode()


def test_order_is_kept(sshd: Sshd) -> None:
    hosts = [sshd.host(f"node{number}") for number in range(6)]

    def slow_first(connection: Connection) -> str:
        run(connection, ["sleep", "0.3" if connection.host.name == "node0" else "0"])
        return name_of(connection)

    with Fleet(hosts) as fleet:
        assert fleet.map(slow_first) == [Outcome(host, host.name) for host in hosts]


def test_no_hosts() -> None:
    with Fleet([]) as fleet:
        assert fleet.map(name_of) == []


def test_failure_of_one_host_is_its_result(sshd: Sshd) -> None:
    def work(connection: Connection) -> str:
        if connection.host.name == "odd":
            raise NotFound("odd: no such job")
        if connection.host.name == "slow":
            connection.exec(["sleep", "60"]).readline(0.2)
        return name_of(connection)

    with contextlib.closing(Impostor(hang_up=True)) as rude:
        hosts = [sshd.host("good"), sshd.host("rude", port=rude.port), sshd.host("odd"), sshd.host("slow")]
        with Fleet(hosts) as fleet:
            good, cut, odd, slow = fleet.map(work)
    assert (good.get(), good.error) == ("good", None)
    assert isinstance(cut.error, Unreachable)
    assert cut.error.message.startswith("rude: 127.0.0.1")
    assert isinstance(odd.error, NotFound)
    with pytest.raises(Unreachable, match="slow: `sleep 60` has said nothing"):
        slow.get()


def test_dead_hosts_hold_up_nobody(sshd: Sshd) -> None:
    with contextlib.closing(Impostor()) as silent:
        hosts = [sshd.host("silent", port=silent.port), *(sshd.host(f"node{number}") for number in range(4))]
        ended: list[str] = []

        def work(connection: Connection) -> str:
            ended.append(name_of(connection))
            if len(ended) == 4:
                silent.close()
            return ended[-1]

        with Fleet(hosts) as fleet:
            outcomes = fleet.map(work)
    assert [outcome.value for outcome in outcomes[1:]] == ["node0", "node1", "node2", "node3"]
    assert outcomes[0].error is not None
    assert "closes the connection" in outcomes[0].error.message


def test_streams_are_not_counted_among_those_that_connect(sshd: Sshd) -> None:
    """More hosts than connect at once, all of which stream until the last has begun."""
    hosts = [sshd.host(f"node{number}") for number in range(CONNECTING + 3)]
    begun = threading.Barrier(len(hosts))
    with Fleet(hosts) as fleet:
        outcomes = fleet.map(lambda connection: (connection.exec(["true"]), begun.wait(WAIT)))
        assert [outcome.error for outcome in outcomes] == [None] * len(hosts)


def test_a_defect_is_not_a_result(sshd: Sshd) -> None:
    with Fleet([sshd.host()]) as fleet:
        with pytest.raises(ZeroDivisionError):
            fleet.map(lambda _: 1 // 0)
        told: list[Outcome[int]] = []
        rung = threading.Event()
        fleet.begin(lambda _: 1 // 0, lambda outcome: (told.append(outcome), rung.set()))
        assert rung.wait(WAIT)
        assert isinstance(told[0].error, TfctlError)
        assert "node1: this is a defect in tfctl: ZeroDivisionError" in told[0].error.message


def test_connections_are_kept_until_the_end(sshd: Sshd) -> None:
    hosts = [sshd.host("node0"), sshd.host("node1")]
    kept: list[Connection] = []
    with Fleet(hosts) as fleet:
        fleet.map(kept.append)
        for _ in range(3):
            assert [outcome.value for outcome in fleet.map(name_of)] == ["node0", "node1"]
        assert [outcome.value for outcome in fleet.map(name_of, hosts[1:])] == ["node1"]
    assert sshd.logins == 2
    assert [connection.alive for connection in kept] == [False, False]


def test_who_wants_a_connection_while_it_is_made_gets_the_same(sshd: Sshd) -> None:
    """A second one would end the first, and what runs on it."""
    sshd.hang_in_login = True
    found: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    with Fleet([sshd.host()]) as fleet:
        fleet.prepare()
        for _ in range(3):
            fleet.begin(found.put, lambda _: None)
        sshd.hang_in_login = False
        assert len({found.get(timeout=WAIT) for _ in range(3)}) == 1
    assert len(sshd.connections) == 1


def test_a_lost_connection_is_made_anew(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)

    def lose(connection: Connection) -> int:
        channel = connection.exec(["cat"])
        relay.cut()
        return len(channel.readline(WAIT))

    with Fleet([sshd.host()]) as fleet:
        [lost] = fleet.map(lose)
        assert isinstance(lost.error, Unreachable)
        assert [outcome.value for outcome in fleet.map(name_of)] == ["node1"]


def test_closing_ends_what_goes_on(sshd: Sshd) -> None:
    fleet = Fleet([sshd.host()])
    started = threading.Event()

    def follow(connection: Connection) -> bytes:
        with connection.exec(["cat"]) as channel:
            started.set()
            return channel.readline(WAIT)

    def stop() -> None:
        started.wait(WAIT)
        fleet.close()

    stopper = threading.Thread(target=stop)
    stopper.start()
    began = time.monotonic()
    [outcome] = fleet.map(follow)
    assert isinstance(outcome.error, Unreachable)
    assert time.monotonic() - began < WAIT / 2
    stopper.join()


def test_ctrl_c_is_passed_on_at_once(sshd: Sshd) -> None:
    # It leaves as tfctl.cli.main does: the interpreter's own farewell may wait for a connection's thread.
    script = f"""
import os, sys
from tfctl.remote.fleet import Fleet
from tfctl.model.host import Host, Ssh
print("ready", flush=True)
hosts = [Host(f"silent{{n}}", Ssh("127.0.0.1", PORT, "ops", {str(sshd.key_file)!r})) for n in range(3)]
try:
    with Fleet(hosts) as fleet:
        fleet.map(print)
except KeyboardInterrupt:
    print("KeyboardInterrupt", file=sys.stderr, flush=True)
    os._exit(130)
"""
    with contextlib.closing(Impostor(b"SSH-2.0-x\r\n")) as silent:
        process = subprocess.Popen(
            [sys.executable, "-c", script.replace("PORT", str(silent.port))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        limit = time.monotonic() + WAIT
        while len(silent.sockets) < 3 and time.monotonic() < limit:
            time.sleep(0.01)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert stderr.endswith(b"KeyboardInterrupt\n")
    assert time.monotonic() - began < 3.0


def test_file_limit_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        Fleet([Host("node1", Ssh("10.0.0.1"))]).close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
