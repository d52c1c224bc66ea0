"""Whole commands with the transport openssh. The other tests of this directory use paramiko."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.hosts import STAY, Hosts
from tests.cluster.test_imports import SCRIPT

pytestmark = pytest.mark.usefixtures("openssh")


@pytest.fixture
def openssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFCTL_SSH", "openssh")


def test_a_job_starts_restarts_and_stops_on_all_hosts_by_openssh(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("native", STAY + "roles: {worker: 3}\n"))
    assert set(hosts.states("native").values()) == {"running"}
    assert "begun" in hosts.ok("logs", "-j", "native")
    hosts.ok("restart", "native", "worker", "0")
    hosts.ok("stop", "native")
    assert set(hosts.states("native").values()) == {"stopped"}
    assert hosts("wait", "native").code == 103
    hosts.untouched()


def test_a_job_that_ends_is_waited_for_and_its_logs_are_followed_by_openssh(hosts: Hosts) -> None:
    file = hosts.file("brief", "command: [sh, -c, 'echo one; sleep 1; echo two']\nroles: {worker: 2}\n")
    done = hosts("start", file, "--follow")
    assert done.code == 0, done.err
    assert done.out.count("one") == done.out.count("two") == 2


def test_a_start_is_undone_when_a_host_refuses_by_openssh(hosts: Hosts) -> None:
    hosts.refuse("node2", "echo 'sudo: a password is required' >&2; exit 1")
    done = hosts("start", hosts.file("refused", STAY + "roles: {worker: 3}\n"))
    assert done.code == 8
    assert "node2: sudo does not permit this user to run" in done.err
    hosts.untouched()


@pytest.mark.extended
def test_follow_continues_after_a_lost_connection_by_openssh(hosts: Hosts) -> None:
    ticking = "command: [sh, -c, 'n=0; while :; do n=$((n + 1)); echo tick $n; sleep 0.2; done']\nroles: {worker: 1}\n"
    hosts.ok("start", hosts.file("ticking", ticking))
    with hosts.begin("logs", "-f", "-j", "ticking") as following:
        following.until(out="tick 3\n")
        hosts.drop("node1")
        following.until(err="node1 is back", out="tick 20\n")
        hosts.ok("stop", "ticking")
        assert following.done().code == 0
    ticks = [line.partition(" tick ")[2] for line in following.out.splitlines()]
    assert ticks == [str(number) for number in range(1, len(ticks) + 1)]


@pytest.mark.extended
def test_an_unreachable_host_has_its_exit_code_and_reason_by_openssh(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("partial", STAY + "roles: {worker: 2}\n"))
    done = hosts.with_inventory(hosts.told("node2", ansible_port=1), "status", "partial")
    assert "node2: 127.0.0.1:1 refuses the connection" in done.err
    assert "unknown" in done.out


@pytest.mark.extended
def test_the_inventory_chooses_the_transport_of_a_host(hosts: Hosts) -> None:
    """The host variable is stronger than the environment."""
    inventory = hosts.told("node2", tfctl_ssh="paramiko")
    script = [sys.executable, "-c", SCRIPT, "list", "-i"]
    for path, expected in ((inventory, True), (hosts.inventory, False)):
        done = subprocess.run([*script, str(path)], cwd=hosts.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert ("paramiko" in done.stderr.split()) is expected


def test_an_unknown_transport_is_refused(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFCTL_SSH", "telnet")
    done = hosts("list")
    assert done.code == 2
    assert "TFCTL_SSH=telnet: tfctl has no such transport" in done.err
    assert "set it to paramiko or openssh" in done.err


@pytest.mark.parametrize("command", ["start", "check", "nodes", "preflight", "reset"])
def test_an_inventory_with_a_password_is_refused(hosts: Hosts, command: str) -> None:
    words = {"preflight": (), "nodes": (), "reset": ("--yes",)}
    given = words.get(command, (hosts.file("locked", STAY + "roles: {worker: 3}\n"),))
    done = hosts.with_inventory(hosts.told("node2", ansible_password="secret"), command, *given)
    assert done.code == 3, done.err
    assert "node2: the inventory has a password (ansible_password)" in done.err
    assert "secret" not in done.err
    hosts.untouched()
