"""A job is one under its name in the whole inventory, whichever of its hosts have a task."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from loopback import Impostor
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts


def on(hosts: Hosts, name: str, where: str, command: str = STAY) -> Path:
    """Write the job file, or write it again, with a worker on each host of this pattern."""
    return hosts.file(name, command + f"roles: {{worker: {{per_host: 1, hosts: '{where}'}}}}\n")


def test_start_is_busy_when_the_job_runs_on_hosts_outside_its_layout(hosts: Hosts) -> None:
    hosts.ok("start", on(hosts, "moved", "node1:node2"))
    run = hosts.status("moved")["run"]
    done = hosts("start", on(hosts, "moved", "node3"))
    assert (done.code, done.out) == (5, "")
    assert f"node1: job moved runs there already (run {run}, attempt 1): worker/0\n" in done.err
    assert f"node2: job moved runs there already (run {run}, attempt 1): worker/1\n" in done.err
    assert "→ stop it first: tfctl stop moved" in done.err
    assert hosts.trees["node3"].files() == []
    assert hosts.states("moved") == {"worker/0": "running", "worker/1": "running"}


@pytest.mark.extended
def test_start_is_busy_when_a_guard_elsewhere_is_about_to_start_the_next_attempt(guarded: Hosts) -> None:
    failing = "command: [sh, -c, 'sleep 1; exit 4']\npolicy: {max_attempts: 5, max_restarts: 0}\n"
    guarded.ok("start", on(guarded, "tried", "node1:node2", failing))
    wait_until(lambda: "attempt 2 in" in guarded.status("tried")["reason"], timeout=30)
    done = guarded("start", on(guarded, "tried", "node3"))
    assert (done.code, done.out) == (5, ""), done
    run = guarded.status("tried")["run"]
    assert (
        f"node1: job tried failed there (run {run}, attempt 1), and its guard will start the next attempt soon"
        in done.err
    )
    assert "→ stop it first: tfctl stop tried" in done.err
    guarded.ok("stop", "tried")
    assert guarded("start", on(guarded, "tried", "node3")).code == 0
    guarded.ok("stop", "tried")


def test_start_counts_the_attempts_on_hosts_outside_its_layout(hosts: Hosts) -> None:
    hosts.ok("start", on(hosts, "moved", "node1"))
    hosts.ok("stop", "moved")
    done = hosts("start", on(hosts, "moved", "node3", "command: date\n"), "--wait")
    assert done.code == 0, done.err
    assert "moved: attempt 2, 1 task runs on 1 host" in done.err
    assert (hosts.status("moved")["attempt"], hosts.states("moved")) == (2, {"worker/0": "succeeded"})


def test_restart_counts_on_after_the_job_has_moved_to_other_hosts(hosts: Hosts) -> None:
    hosts.ok("start", on(hosts, "moved", "node1"))
    hosts.ok("stop", "moved")
    hosts.ok("start", on(hosts, "moved", "node3"))
    hosts.ok("restart", "moved")
    assert (hosts.status("moved")["attempt"], hosts.states("moved")) == (3, {"worker/0": "running"})


def test_restart_is_busy_while_an_older_run_is_alive_on_other_hosts(hosts: Hosts) -> None:
    """node1 did not answer when the job was started elsewhere."""
    hosts.ok("start", on(hosts, "moved", "node1"))
    hosts.refuse("node1", "exit 1")
    hosts.ok("start", on(hosts, "moved", "node3"))
    hosts.heal("node1")
    for words in ((), ("--dry-run",)):
        done = hosts("restart", "moved", *words)
        assert (done.code, done.out) == (5, ""), done
        said = "another run of moved is still alive: worker/0 on node1\n  → stop both runs: tfctl stop moved\n"
        assert said + "  → then start it from its job file: tfctl start JOBFILE\n" in done.err
    assert len(hosts.alive()) == 2
    hosts.ok("stop", "moved")
    assert hosts.alive() == []


@pytest.mark.extended
def test_start_names_hosts_outside_its_layout_that_do_not_answer_and_continues(hosts: Hosts) -> None:
    """node2 is not provisioned, and node3 takes connections but never answers."""
    hosts.refuse("node2", "echo 'sudo: tfctl-node: command not found' >&2; exit 1")
    file = on(hosts, "alone", "node1", "command: date\n")
    with contextlib.closing(Impostor()) as silent:
        inventory = hosts.told("node3", ansible_port=silent.port)
        inventory.write_text(inventory.read_text().replace("ConnectTimeout=1", "ConnectTimeout=30"))
        began = time.monotonic()
        done = hosts.with_inventory(inventory, "start", file)
        assert 5 <= time.monotonic() - began < 25
        assert (done.code, done.out) == (0, "alone\n")
        said = "node2, node3 did not answer within 5 s, so alone may also run there; `tfctl nodes` shows why"
        assert done.err.splitlines() == [said, "alone: attempt 1, 1 task runs on 1 host"]
        assert len(silent.sockets) == 1
    assert hosts("wait", "alone").code == 0


def test_a_dry_run_asks_only_the_hosts_of_the_layout(hosts: Hosts) -> None:
    with contextlib.closing(Impostor()) as silent:
        inventory = hosts.told("node3", ansible_port=silent.port)
        done = hosts.with_inventory(inventory, "start", on(hosts, "dry", "node1"), "--dry-run")
        assert (done.code, done.err, len(silent.sockets)) == (0, "", 0)
