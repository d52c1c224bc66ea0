"""Following a job prints each line once, and its end, even if connections break."""

from __future__ import annotations

import signal

from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts

COUNT = """
    n=0
    while [ $n -lt 60 ]; do n=$((n + 1)); echo $1 $n; sleep 0.05; done
"""
COUNTING = "command: [sh, count, '{index}']\nroles: {worker: 3}\n"


def lines(out: str, task: str) -> list[str]:
    return [line.partition(" │ ")[2] for line in out.splitlines() if line.startswith(f"{task} ")]


def counted(index: int) -> list[str]:
    return [f"{index} {n}" for n in range(1, 61)]


def test_start_with_follow_prints_every_line_once_when_connections_break(hosts: Hosts) -> None:
    """The logs are the data on stdout, so the job's name is printed on stderr."""
    with hosts.begin("start", hosts.file("count", COUNTING, count=COUNT), "--follow") as client:
        client.until(out="worker/1 │ 1 5\n")
        hosts.drop("node2")
        client.until(err="node2 is back")
        hosts.drop("node2")
        hosts.drop("node3")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(3)] == [counted(index) for index in range(3)]
    assert "count\n" in done.err
    assert "~~ node2: the connection broke" in done.err
    assert "count succeeded" in done.err
    assert "tfctl:" not in done.err


def test_logs_with_follow_end_when_the_job_ends(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("count", COUNTING, count=COUNT))
    with hosts.begin("logs", "-f", "worker") as client:
        client.until(out="worker/0 │ 0 5\n", err="job: count")
        hosts.drop("node1")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(3)] == [counted(index) for index in range(3)]


def test_logs_with_follow_and_tail_print_the_last_lines_of_all_hosts_together(hosts: Hosts) -> None:
    command = "command: [sh, -c, 'for n in 1 2 3; do echo {index} $n; done; exec sleep 600']\n"
    hosts.ok("start", hosts.file("tailed", command + "roles: {worker: 3}\n"))
    wait_until(lambda: len(hosts.ok("logs", "-j", "tailed").splitlines()) == 9)
    with hosts.begin("logs", "-f", "--tail", "2", "-j", "tailed") as client:
        client.until(out=" │ ")
        hosts.ok("stop", "tailed")
        done = client.done()
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2, done.out
    assert "tfctl:" not in done.err


def test_wait_continues_when_connections_break(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("awaited", STAY + "roles: {worker: 3}\n"))
    for name in hosts.names:
        hosts.forget(name)
    with hosts.begin("wait", "awaited") as client:
        for _ in range(2):
            for _ in range(3):  # the first query is for the attempt; following then reads the states repeatedly
                wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
                for name in hosts.names:
                    hosts.forget(name)
            for name in hosts.names:
                hosts.drop(name)
        wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
        assert hosts("stop", "awaited").code == 0
        done = client.done()
    assert done.code == 103, done.err


def test_start_with_wait_says_that_the_job_keeps_running_on_ctrl_c(hosts: Hosts) -> None:
    with hosts.begin("start", hosts.file("detached", STAY + "roles: {worker: 3}\n"), "--wait") as client:
        client.until(err="3 tasks run")
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert done.code == 130
    assert "detached keeps running" in done.err
    assert "`tfctl stop detached` ends it" in done.err
    assert set(hosts.states("detached").values()) == {"running"}
