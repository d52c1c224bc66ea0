"""Whoever follows or awaits a job learns which tasks failed and were restarted, and what the culprit printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Hosts

#: Its third run succeeds if $2 says so; every other fails. $1 counts the runs. Each ends when it is told to.
FAILING = """
    runs=0
    [ -e "$1" ] && read -r runs < "$1"
    runs=$((runs + 1))
    echo "$runs" > "$1"
    for n in 1 2 3 4 5 6 7 8 9 10 11; do echo "run $runs line $n"; done
    while [ ! -e "$1.$runs" ]; do sleep 0.05; done
    [ "$2" = recovers ] && [ "$runs" -gt 2 ] && exit 0
    exit 3
"""


def job(hosts: Hosts, name: str, restarts: int, how: str = "fails", ends: int = 9) -> Path:
    """A job file. The first ``ends`` runs end at once."""
    count = hosts.folder / f"{name}.runs"
    for run in range(1, 10):
        Path(f"{count}.{run}").unlink(missing_ok=True)
    for run in range(1, ends + 1):
        end(hosts, name, run)
    text = f"command: [sh, failing, {count}, {how}]\nroles: {{worker: 1}}\npolicy: {{max_restarts: {restarts}}}\n"
    return hosts.file(name, text, failing=FAILING)


def end(hosts: Hosts, name: str, run: int) -> None:
    """Let this run end."""
    (hosts.folder / f"{name}.runs.{run}").touch()


@pytest.mark.extended
def test_following_a_start_reports_each_restart_of_a_task(hosts: Hosts) -> None:
    with hosts.begin("start", job(hosts, "recovering", 3, "recovers", ends=1), "--follow") as client:
        client.until(err="restart 1 of 3\n")
        end(hosts, "recovering", 2)
        client.until(err="restart 2 of 3\n")
        end(hosts, "recovering", 3)
        done = client.done()
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if "worker/0" in line]
    assert said == [
        "~~ worker/0 on node1 failed with exit code 3; restart 1 of 3",
        "~~ worker/0 on node1 failed with exit code 3; restart 2 of 3",
    ]


@pytest.mark.extended
def test_following_a_start_reports_the_death_of_a_task_and_does_not_repeat_its_lines(hosts: Hosts) -> None:
    with hosts.begin("start", job(hosts, "dying", 1, ends=1), "--wait", "--follow") as client:
        client.until(err="~~ worker/0 on node1 failed with exit code 3; restart 1 of 1\n")
        end(hosts, "dying", 2)
        done = client.done()
    assert done.code == 100
    assert "~~ worker/0 on node1 failed with exit code 3 after 1 restart\n" in done.err
    assert done.out.count("run 2 line 11") == 1
    assert "run 2 line" not in done.err


@pytest.mark.extended
def test_following_the_logs_reports_deaths_but_not_those_before(hosts: Hosts) -> None:
    hosts.ok("start", job(hosts, "watched", 2, ends=1))
    wait_until(lambda: hosts.status("watched")["tasks"][0]["restarts"] == 1)
    with hosts.begin("logs", "-f", "-j", "watched") as client:
        client.until(out="run 2 line 11")
        end(hosts, "watched", 2)
        client.until(err="~~ worker/0 on node1 failed with exit code 3; restart 2 of 2\n")
        end(hosts, "watched", 3)
        done = client.done()
    assert done.code == 0, done.err
    assert "restart 1 of 2" not in done.err
    assert "~~ worker/0 on node1 failed with exit code 3 after 2 restarts\n" in done.err


def test_waiting_prints_the_last_lines_of_the_task_that_made_the_job_fail(hosts: Hosts) -> None:
    done = hosts("start", job(hosts, "failing", 0), "--wait")
    assert (done.code, done.out) == (100, "failing\n")
    *_, heading = done.err.partition("the last 10 lines of worker/0 on node1:\n")
    lines = heading.splitlines()
    assert lines[:10] == [f"  run 1 line {number}" for number in range(2, 12)]
    assert lines[10].startswith("failing failed after ")

    again = hosts("wait", "failing", "-o", "json")
    assert again.code == 100
    found = json.loads(again.out)
    assert (found["job"], found["state"]) == ("failing", "failed")
    assert found["last_lines"] == [f"run 1 line {number}" for number in range(2, 12)]
    assert "run 1" not in again.err


def test_waiting_prints_no_last_lines_when_the_job_has_succeeded(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("fine", "command: [sh, -c, 'echo hello']\nroles: {worker: 1}\n"), "--wait")
    assert done.code == 0
    assert "the last 1" not in done.err
    assert json.loads(hosts.ok("wait", "fine", "-o", "json"))["last_lines"] is None
