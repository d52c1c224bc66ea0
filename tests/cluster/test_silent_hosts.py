"""Hosts and connections that fall silent: whoever waits or follows says so, continues, and never ends with success.

The clients notice silence after 15 or 30 s. All clients of this module therefore wait at the same time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback import Impostor
from node_tree import wait_until

from tests.cluster.hosts import STAY, Client, Hosts

TICKING = "command: [sh, -c, 'n=0; while :; do n=$((n + 1)); echo tick $n; sleep 0.2; done']\nroles: {worker: 1}\n"


@dataclass(frozen=True)
class Clients:
    """Clients whose connections have broken, each in its own way.

    ``waiting`` and ``following`` of the job asleep: their connections died silently, but new ones work.
    ``cut_off`` of the job cut and ``sweeping`` of the job swept-1: no new connection is possible. ``muted``,
    ``started``, ``watching`` and ``reading`` of the job mute: node2 says nothing any more. ``tailing`` of the job slow:
    the journald of node3 does not answer. ``failing`` of the job failing: the last line of its task cannot be read.
    ``began``: when all this began (time.monotonic).
    """

    waiting: Client
    following: Client
    cut_off: Client
    sweeping: Client
    muted: Client
    started: Client
    watching: Client
    reading: Client
    tailing: Client
    failing: Client
    began: float


@pytest.fixture(scope="module")
def clients(module_hosts: Hosts) -> Iterator[Clients]:
    hosts, base = module_hosts, module_hosts.inventory
    with contextlib.ExitStack() as stack:
        asleep = stack.enter_context(hosts.behind_relay("node1"))
        hosts.ok("start", hosts.file("asleep", TICKING))
        waiting = stack.enter_context(hosts.begin("wait", "asleep"))
        following = stack.enter_context(hosts.begin("logs", "-f", "-j", "asleep"))
        following.until(out="tick 3\n")
        until_followed(hosts, "node1")

        hosts.inventory = base
        cut = stack.enter_context(hosts.behind_relay("node1"))
        hosts.ok("start", hosts.file("cut", TICKING))
        cut_off = stack.enter_context(hosts.begin("logs", "-f", "-j", "cut"))
        file = hosts.file("swept", STAY + "roles: {worker: 1}\nenv: {N: 0}\n")
        sweeping = stack.enter_context(hosts.begin("sweep", file, "--set", "env.N=1,2"))
        wait_until(lambda: "tfctl-swept-1-worker-0.service" in hosts.alive(), lambda: sweeping.err)

        hosts.inventory = base
        mute = stack.enter_context(hosts.behind_relay("node2"))
        file = hosts.file("mute", STAY + "roles: {worker: 2}\n")
        started = stack.enter_context(hosts.begin("start", file, "--wait"))
        started.until(out="mute\n")
        muted = stack.enter_context(hosts.begin("wait", "mute", "--host-timeout", "1s"))
        watching = stack.enter_context(hosts.begin("status", "mute", "--watch"))
        reading = stack.enter_context(hosts.begin("logs", "-f", "-j", "mute"))
        watching.until(out="worker/1")
        reading.until(out="worker/1")
        until_followed(hosts, "node2")
        cut_off.until(out="tick 3\n")

        hosts.inventory = base
        hosts.ok("start", hosts.file("slow", STAY + "roles: {worker: 3}\n"))
        (hosts.trees["node3"] / "journald").mkdir()
        (hosts.trees["node3"] / "journald/stopped").touch()
        tailing = stack.enter_context(hosts.begin("logs", "-f", "--tail", "3", "-j", "slow"))

        (hosts.trees["node1"] / "journald").mkdir()
        (hosts.trees["node1"] / "journald/damaged").write_text("unreadable")
        command = "command: [sh, -c, 'echo readable; echo damaged and unreadable; exit 3']\n"
        file = hosts.file("failing", command + "roles: {worker: 1}\npolicy: {max_restarts: 0}\n")
        failing = stack.enter_context(hosts.begin("start", file, "--wait"))

        asleep.forget()
        cut.close()
        mute.frozen = True
        yield Clients(
            waiting, following, cut_off, sweeping, muted, started, watching, reading, tailing, failing, time.monotonic()
        )


@pytest.fixture(scope="module")
def partly(module_hosts: Hosts, clients: Clients) -> str:  # noqa: ARG001  # they wait meanwhile
    """Start a job of two tasks, on node1 and node2."""
    module_hosts.ok("start", module_hosts.file("partly", STAY + "roles: {worker: 2}\n"))
    return "partly"


def until_followed(hosts: Hosts, name: str) -> None:
    """Wait until a client follows the states of this host's tasks, which are then read repeatedly."""
    for _ in range(4):
        hosts.forget(name)
        wait_until(lambda: hosts.shown(name))


VERBS = (
    "start", "status", "list", "nodes", "logs", "wait", "restart", "exec", "events", "report", "pull", "stop", "prune",
)  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize("verb", VERBS)
def test_a_command_dials_a_silent_host_only_once(module_hosts: Hosts, partly: str, verb: str, tmp_path: Path) -> None:
    words: dict[str, list[object]] = {
        "start": [module_hosts.file("another", STAY + "roles: {worker: 2}\n")],
        "list": [],
        "nodes": [],
        "logs": ["-j", partly],
        "wait": [partly, "--timeout", "1s"],
        "exec": [partly, "worker", "--", "true"],
        "pull": [partly, tmp_path],
        "prune": ["--yes"],
    }
    with contextlib.closing(Impostor()) as silent:
        inventory = module_hosts.told("node2", ansible_port=silent.port)
        module_hosts.with_inventory(inventory, verb, *words.get(verb, [partly]))
        assert len(silent.sockets) == 1


def test_wait_and_logs_continue_when_their_connections_die_silently(module_hosts: Hosts, clients: Clients) -> None:
    waiting, following = clients.waiting, clients.following
    waiting.until(err="node1 is back")
    following.until(err="node1 is back", out="tick 100\n")
    module_hosts.ok("stop", "asleep")
    assert waiting.done().code == 103
    assert following.done().code == 0
    ticks = [line.partition(" tick ")[2] for line in following.out.splitlines()]
    assert ticks == [str(number) for number in range(1, len(ticks) + 1)]


def test_wait_reports_a_silent_host_and_ends_after_its_host_timeout(clients: Clients) -> None:
    done = clients.muted.done()
    assert done.code == 101, done.err
    assert "~~ node2: tfctl-node has sent nothing for 15 s" in done.err
    assert "the states of its tasks are unknown" in done.err
    assert "gave up after 1 s without an answer from node2; to wait longer: tfctl wait" in done.err


def test_commands_that_wait_for_a_job_or_follow_it_report_a_silent_host(clients: Clients) -> None:
    for client in (clients.started, clients.watching):
        client.until(err="~~ node2: tfctl-node has sent nothing for 15 s")
    clients.reading.until(err="~~ node2: ")


def test_logs_wait_longer_for_the_last_lines_than_for_states(module_hosts: Hosts, clients: Clients) -> None:
    """A journald on a slow disk may take a minute, and states are followed only then."""
    clients.reading.until(err="~~ node2: ")
    time.sleep(max(0.0, clients.began + 32.0 - time.monotonic()))
    assert clients.tailing.process.poll() is None, clients.tailing.err
    (module_hosts.trees["node3"] / "journald/stopped").unlink()
    clients.tailing.until(out="begun")
    module_hosts.ok("stop", "slow")
    assert clients.tailing.done().code == 0


def test_sweep_starts_no_other_run_when_no_host_says_whether_the_last_one_has_ended(clients: Clients) -> None:
    done = clients.sweeping.done()
    assert done.code == 4, done.err
    assert "swept-1 keeps running" in done.err
    assert "run 2 of 2" not in done.err


def test_wait_ends_although_the_last_lines_of_a_failed_task_cannot_be_read(clients: Clients) -> None:
    done = clients.failing.done()
    assert done.code == 100, done.err
    assert "the last lines of worker/0 can be shown: node1: tfctl-node has sent nothing for 15 s\n" in done.err
    assert "the last 1 line of worker/0 on node1:\n  readable\n" in done.err


def test_logs_do_not_end_with_success_when_no_host_answers_any_more(clients: Clients) -> None:
    assert clients.cut_off.done().code == 4
