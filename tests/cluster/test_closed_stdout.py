"""Commands whose output goes to a program that has ended, as in `tfctl start --follow job.yaml | head -1`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Done, Hosts

FAILS = """\
command: [sh, -c, 'echo line; sleep 1; exit 3']
roles: {worker: {replicas: 1, hosts: node1}}
policy: {max_restarts: 0}
"""
#: Prints until it is stopped.
CHATTY = "command: [sh, -c, 'while :; do echo line; sleep 0.1; done']\nroles: {worker: 1}\n"


@contextmanager
def reader() -> Iterator[int]:
    """Yield the descriptor of a pipe that has a reader, during the block."""
    read, write = os.pipe()
    try:
        yield write
    finally:
        os.close(read)
        os.close(write)


def unread(hosts: Hosts, *words: object) -> Done:
    """Run tfctl with a stdout that nobody reads."""
    with reader() as out:
        duplicate = os.dup(out)
    with hosts.begin(*words, out=duplicate) as client:
        os.close(duplicate)
        return client.done()


@pytest.mark.parametrize("output", ["text", "json"])
def test_start_waits_for_the_end_although_nobody_reads_its_stdout(hosts: Hosts, output: str) -> None:
    done = unread(hosts, "start", hosts.file("unread", FAILS), "--wait", "-o", output)
    assert (done.code, "keeps running" in done.err) == (100, False), done.err
    assert "worker/0 on node1 failed with exit code 3" in done.err


def test_start_says_that_a_job_keeps_running_when_nobody_reads_its_logs(hosts: Hosts) -> None:
    with reader() as out:
        client = hosts.begin("start", hosts.file("begun", CHATTY), "--follow", out=out)
        client.until(err="begun: attempt 1")
    with client:
        done = client.done()
    assert (done.code, "begun keeps running" in done.err) == (101, True), done.err
    assert hosts("stop", "begun").code == 0


def test_start_reports_the_end_of_a_job_whose_last_lines_nobody_reads(hosts: Hosts) -> None:
    """A journald that is slow to write them delays them until the client knows the end."""
    stopped = hosts.trees["node1"] / "journald/stopped"
    stopped.parent.mkdir()
    stopped.touch()
    with reader() as out:
        client = hosts.begin("start", hosts.file("over", FAILS), "--follow", out=out)
        client.until(err="failed with exit code 3")
    with client:
        stopped.unlink()
        done = client.done()
    assert (done.code, "keeps running" in done.err) == (100, False), done.err
    assert "over failed after" in done.err


def test_nodes_has_its_exit_code_although_nobody_reads_its_stdout(hosts: Hosts) -> None:
    hosts.refuse("node2", "exit 127")
    read, lost = hosts("nodes"), unread(hosts, "nodes")
    assert (lost.code, lost.err) == (read.code, read.err)
    assert lost.code != 0


@pytest.mark.parametrize("role", ["worker", "worker/0"])
def test_exec_ends_its_commands_when_nobody_reads_them(hosts: Hosts, role: str) -> None:
    hosts.ok("start", hosts.file("busy", "command: [sleep, '600']\nroles: {worker: 2}\n"))
    done = unread(hosts, "exec", "busy", role, "--", "sh", "-c", "while :; do echo line; sleep 0.1; done")
    assert (done.code, done.err) == (0, "")
    wait_until(lambda: not [unit for unit in hosts.alive() if "EXEC" in unit], lambda: str(hosts.alive()))
    assert hosts("stop", "busy").code == 0


def test_logs_end_when_nobody_reads_them(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("steady", CHATTY))
    done = unread(hosts, "logs", "-f", "--job", "steady")
    assert (done.code, done.err) == (0, "")
    assert hosts("stop", "steady").code == 0
