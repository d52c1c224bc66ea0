"""Many hosts at once: the order of outcomes, failures as outcomes, and no host that delays another."""

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
from tfctl.remote.connecting import MOST
from tfctl.remote.fleet import Fleet, HostOutcome
from tfctl.remote.transport import Connection

#: Run the test once with each transport.
both = pytest.mark.usefixtures("transport")
WAIT = 20.0


def name_of(connection: Connection) -> str:
    return run(connection, ["printf", connection.host.name]).stdout.decode()


def test_outcomes_are_in_the_order_of_the_hosts(sshd: Sshd) -> None:
    hosts = [sshd.host(f"node{number}") for number in range(6)]

    def slow_first(connection: Connection) -> str:
        run(connection, ["sleep", "0.3" if connection.host.name == "node0" else "0"])
        return name_of(connection)

    with Fleet(hosts) as fleet:
        assert fleet.map(slow_first) == [HostOutcome(host, host.name) for host in hosts]


def test_a_fleet_without_hosts_has_no_outcomes() -> None:
    with Fleet([]) as fleet:
        assert fleet.map(name_of) == []


@both
def test_the_failure_of_one_host_is_its_outcome(sshd: Sshd) -> None:
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
    assert [each.error and each.error.hosts for each in (cut, odd, slow)] == [("rude",), ("odd",), ("slow",)]
    assert isinstance(cut.error, Unreachable)
    assert cut.error.message.startswith("rude: 127.0.0.1")
    assert isinstance(odd.error, NotFound)
    with pytest.raises(Unreachable, match="slow: `sleep 60` has sent nothing"):
        slow.get()


def test_hosts_that_do_not_answer_do_not_delay_the_others(sshd: Sshd) -> None:
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


def test_long_work_does_not_count_against_the_connection_limit(sshd: Sshd) -> None:
    """There are more hosts than connect at once, and each runs until the last has started."""
    hosts = [sshd.host(f"node{number}") for number in range(MOST + 3)]
    begun = threading.Barrier(len(hosts))
    with Fleet(hosts) as fleet:
        outcomes = fleet.map(lambda connection: (connection.exec(["true"]), begun.wait(WAIT)))
        assert [outcome.error for outcome in outcomes] == [None] * len(hosts)


def test_an_exception_that_is_no_tfctl_error_is_raised(sshd: Sshd) -> None:
    with Fleet([sshd.host()]) as fleet:
        with pytest.raises(ZeroDivisionError):
            fleet.map(lambda _: 1 // 0)
        outcomes: queue.SimpleQueue[HostOutcome[int]] = queue.SimpleQueue()
        fleet.begin(lambda _: 1 // 0, outcomes.put)
        error = outcomes.get(timeout=WAIT).error
        assert isinstance(error, TfctlError)
        assert "node1: this is a bug in tfctl: ZeroDivisionError" in error.message


@both
def test_a_connection_is_used_again_until_the_fleet_is_closed(sshd: Sshd) -> None:
    hosts = [sshd.host("node0"), sshd.host("node1")]
    kept: list[Connection] = []
    with Fleet(hosts) as fleet:
        fleet.map(kept.append)
        for _ in range(3):
            assert [outcome.value for outcome in fleet.map(name_of)] == ["node0", "node1"]
        assert [outcome.value for outcome in fleet.map(name_of, hosts[1:])] == ["node1"]
    assert sshd.logins == 2
    assert [connection.alive for connection in kept] == [False, False]


@both
def test_a_fleet_that_keeps_no_connections_closes_each_after_the_work_on_it(sshd: Sshd) -> None:
    hosts = [sshd.host("node0"), sshd.host("node1")]
    used: list[Connection] = []

    def work(connection: Connection) -> str:
        used.append(connection)
        if connection.host.name == "node1":
            raise NotFound("nothing there")
        return name_of(connection)

    with Fleet(hosts, keep=False) as fleet:
        good, bad = fleet.map(work)
        limit = time.monotonic() + WAIT
        while any(connection.alive for connection in used) and time.monotonic() < limit:
            time.sleep(0.01)
        assert [connection.alive for connection in used] == [False, False]
        assert (good.get(), bad.error and bad.error.message) == ("node0", "nothing there")
        # It connects again.
        assert fleet.map(name_of, hosts[:1])[0].get() == "node0"
    assert sshd.logins == 3


def test_hosts_that_wait_for_their_turn_to_connect_have_no_threads(sshd: Sshd) -> None:
    with contextlib.closing(Impostor()) as silent:
        hosts = [sshd.host(f"silent{number}", port=silent.port) for number in range(3 * MOST)]
        outcomes: queue.SimpleQueue[HostOutcome[str]] = queue.SimpleQueue()
        with Fleet(hosts) as fleet:
            fleet.begin(name_of, outcomes.put)
            threads = [thread for thread in threading.enumerate() if thread.name == "fleet"]
            assert len(threads) == MOST
            silent.close()
            assert all(outcomes.get(timeout=WAIT).error for _ in hosts)


def test_a_thread_goes_on_with_the_next_host(sshd: Sshd) -> None:
    hosts = [sshd.host(f"node{number}") for number in range(4 * MOST)]
    used: set[int] = set()
    with Fleet(hosts) as fleet:
        fleet.map(lambda _: used.add(threading.get_native_id()))
    assert len(used) <= 2 * MOST


def test_a_host_that_is_named_twice_is_asked_and_has_one_outcome(sshd: Sshd) -> None:
    host = sshd.host("node0")
    with Fleet([host]) as fleet:
        assert [outcome.value for outcome in fleet.map(name_of, [host, host])] == ["node0", "node0"]


@both
def test_narrowing_a_fleet_closes_the_connections_to_the_other_hosts(sshd: Sshd) -> None:
    hosts = [sshd.host(f"node{number}") for number in range(3)]
    with Fleet(hosts) as fleet:
        first, *others = [outcome.get() for outcome in fleet.map(lambda connection: connection)]
        fleet.narrow(["node0"])
        limit = time.monotonic() + WAIT
        while any(connection.alive for connection in others) and time.monotonic() < limit:
            time.sleep(0.01)
        assert [connection.alive for connection in (first, *others)] == [True, False, False]
        assert [outcome.value for outcome in fleet.map(name_of)] == ["node0"]
        assert sshd.logins == 3
        # A host that is asked all the same is connected to again.
        assert [outcome.value for outcome in fleet.map(name_of, hosts[:2])] == ["node0", "node1"]
    assert sshd.logins == 4


def test_narrowing_a_fleet_to_hosts_that_it_does_not_have_changes_nothing(sshd: Sshd) -> None:
    with Fleet([sshd.host()]) as fleet:
        [outcome] = fleet.map(lambda connection: connection)
        fleet.narrow(["elsewhere"])
        assert [host.name for host in fleet.hosts] == ["node1"]
        assert [found.get() for found in fleet.map(lambda connection: connection)] == [outcome.get()]


@both
def test_concurrent_callers_share_one_connection_attempt(sshd: Sshd) -> None:
    """A second connection would replace the first and end what runs on it."""
    sshd.hang_in_login = True
    found: queue.SimpleQueue[Connection] = queue.SimpleQueue()
    with Fleet([sshd.host()]) as fleet:
        fleet.prepare()
        for _ in range(3):
            fleet.begin(found.put, lambda _: None)
        sshd.hang_in_login = False
        assert len({found.get(timeout=WAIT) for _ in range(3)}) == 1
    assert len(sshd.connections) == 1


@both
def test_a_lost_connection_is_replaced(sshd: Sshd, relay: Relay) -> None:
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


@pytest.mark.extended
@both
def test_one_login_at_a_jump_host_carries_forty_hosts_behind_it(
    sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]
) -> None:
    server, config = bastion
    hosts = [sshd.host(f"node{number}", *config, "-J", "bastion", "-o", "ConnectTimeout=60") for number in range(40)]
    with Fleet(hosts) as fleet:
        assert [outcome.value for outcome in fleet.map(name_of)] == [host.name for host in hosts]
    assert server.logins == 1
    assert server.forwards == [("127.0.0.1", sshd.port)] * 40


def test_the_login_at_a_jump_host_is_made_anew_when_its_connection_broke(
    sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]
) -> None:
    server, config = bastion
    with Fleet([sshd.host("node1", *config, "-J", "bastion")]) as fleet:
        assert [outcome.value for outcome in fleet.map(name_of)] == ["node1"]
        server.drop()
        limit = time.monotonic() + WAIT
        while fleet.connection(fleet.hosts[0]).alive and server.logins < 2 and time.monotonic() < limit:
            time.sleep(0.05)
        assert [outcome.value for outcome in fleet.map(name_of)] == ["node1"]
    assert server.logins == 2


def test_a_jump_host_that_refuses_the_login_is_asked_less_often_than_once_per_host(
    sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]
) -> None:
    server, config = bastion
    server.may_log_in = False
    with Fleet([sshd.host(f"node{number}", *config, "-J", "bastion") for number in range(8)]) as fleet:
        errors = [outcome.error for outcome in fleet.map(name_of)]
    assert all(error is not None and "Permission denied" in error.message for error in errors)
    assert len(server.connections) < 8


def test_proxy_commands_that_log_in_to_a_jump_host_take_turns(
    sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]
) -> None:
    server, (_, config) = bastion
    way = ("-o", f"ProxyCommand=ssh -F {config} -W %h:%p bastion", "-o", "ConnectTimeout=60")
    with Fleet([sshd.host(f"node{number}", *way) for number in range(20)]) as fleet:
        assert [outcome.error for outcome in fleet.map(name_of)] == [None] * 20
    assert server.most_pending < 10


@both
def test_closing_a_fleet_ends_unfinished_work(sshd: Sshd) -> None:
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


@both
def test_ctrl_c_ends_the_program_at_once(sshd: Sshd) -> None:
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


def test_the_limit_on_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
    try:
        Fleet([Host("node1", Ssh("10.0.0.1"))]).close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
