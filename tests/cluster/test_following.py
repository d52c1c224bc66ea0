"""Whoever follows a job sees each line once and its end, though connections break."""

from __future__ import annotations

import signal

from hosts import STAY, Hosts
from node_tree import wait_until

COUNT = """
    n=0
    while [ $n -lt 60 ]; do n=$((n + 1)); echo $1 $n; sleep 0.05; done
"""
COUNTING = "command: [sh, count, '{index}']\nroles: {worker: 3}\n"


def lines(out: str, task: str) -> list[str]:
    return [line.partition(" │ ")[2] for line in out.splitlines() if line.startswith(f"{task} ")]


def counted(index: int) -> list[str]:
    return [f"{index} {n}" for n in range(1, 61)]


def test_start_and_follow(hosts: Hosts) -> None:
    """The logs are the data, so the job's name is talk."""
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


def test_logs_of_a_job_that_runs_end_with_it(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("count", COUNTING, count=COUNT))
    with hosts.begin("logs", "-f", "worker") as client:
        client.until(out="worker/0 │ 0 5\n", err="job: count")
        hosts.drop("node1")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(3)] == [counted(index) for index in range(3)]


def test_the_last_lines_and_what_comes(hosts: Hosts) -> None:
    """Of all hosts together, as without following."""
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


def test_wait_goes_on_behind_a_connection_that_broke(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("awaited", STAY + "roles: {worker: 3}\n"))
    for name in hosts.names:
        hosts.forget(name)
    with hosts.begin("wait", "awaited") as client:
        for _ in range(2):
            for _ in range(3):  # the first time it asks which attempt there is; who follows is shown it again and again
                wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
                for name in hosts.names:
                    hosts.forget(name)
            for name in hosts.names:
                hosts.drop(name)
        wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
        assert hosts("stop", "awaited").code == 0
        done = client.done()
    assert done.code == 103, done.err


def test_ctrl_c_of_who_waits_says_what_stays(hosts: Hosts) -> None:
    with hosts.begin("start", hosts.file("detached", STAY + "roles: {worker: 3}\n"), "--wait") as client:
        client.until(err="3 tasks run")
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert done.code == 130
    assert "detached goes on" in done.err
    assert "`tfctl stop detached` ends it" in done.err
    assert set(hosts.states("detached").values()) == {"running"}
