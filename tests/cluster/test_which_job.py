"""status, list, stop and wait: which job they mean, and what they say of it."""

from __future__ import annotations

import re

import pytest
from hosts import STAY, Hosts
from node_tree import wait_until

ONE = STAY + "roles: {worker: 1}\n"


def test_where_there_is_no_job(hosts: Hosts) -> None:
    for words in (["status"], ["logs"], ["wait"]):
        done = hosts(*words)
        assert (done.code, done.out) == (7, ""), words
        assert "no host knows a job\n  → start one" in done.err
    for words in (["status", "never"], ["wait", "never"], ["stop", "never"]):
        done = hosts(*words)
        assert (done.code, done.out) == (7, ""), words
        assert "no host knows a job 'never'\n  → tfctl list shows the jobs that exist" in done.err
    done = hosts("stop")
    assert done.code == 2
    assert "which job? running: none" in done.err
    assert hosts("list").out == ""
    assert hosts("list", "-o", "json").objects == [{"jobs": []}]


def test_where_some_run(hosts: Hosts) -> None:
    first = hosts.file("first", ONE)
    hosts.ok("start", first)
    done = hosts("status", "-o", "json")
    assert (done.objects[0]["job"], done.err) == ("first", "job: first\n")
    assert hosts("status", first, "-o", "json").objects == hosts("status", "-j", "first", "-o", "json").objects

    hosts.ok("start", hosts.file("second", ONE))
    assert hosts("status", "-o", "json").objects[0]["job"] == "second"
    done = hosts("stop")
    assert done.code == 2
    assert "which job? running: second, first" in done.err
    rows = [re.split(r"\s{2,}", line) for line in hosts.ok("list").splitlines()]
    assert rows[0] == ["JOB", "ATTEMPT", "STATE", "STRATEGY", "TASKS", "HOSTS", "STARTED", "LASTED"]
    assert [row[:6] for row in rows[1:]] == [[job, "1", "running", "custom", "1", "1"] for job in ("second", "first")]
    assert [each["job"] for each in hosts("list", "-j", "first", "-o", "json").objects[0]["jobs"]] == ["first"]

    assert hosts("stop", first).err == "first: stopped worker/0\n"
    done = hosts("stop")
    assert (done.code, done.err) == (0, "job: second\nsecond: stopped worker/0\n")
    assert hosts("wait", "second").code == 103
    assert hosts.alive() == []


def test_words_that_are_no_job(hosts: Hosts) -> None:
    for words, code, said in (
        (["status", "one", "-j", "two"], 2, "two jobs are named, one and two"),
        (["status", "Not_A_Job"], 2, "'Not_A_Job' is neither a job's name nor a job file"),
        (["stop", "./none.yaml"], 3, "none.yaml: no such job file"),
        (["wait", "--timeout", "soon", "x"], 2, "--timeout: 'soon' is not a duration"),
        (["start", "./none.yaml", "--timeout", "5s"], 2, "add --wait or --follow"),
    ):
        done = hosts(*words)
        assert (done.code, done.out) == (code, ""), words
        assert said in done.err


def test_what_is_left_of_a_job_that_is_over_is_stopped_unnamed(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 0 || exec sleep 600; exit 3']\nroles: {worker: 2}\n"
    hosts.ok("start", hosts.file("over", text))
    wait_until(lambda: hosts.status("over")["state"] == "failed")
    assert hosts("stop").err == "job: over\nover: stopped worker/1\n"
    assert "which job? running: none" in hosts("stop").err
    assert hosts("stop", "over").err == "over: nothing was running\n"


def test_an_inventory_that_is_set_and_not_there_is_no_reason_to_take_another(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.ok("start", hosts.file("set", ONE))
    done = hosts.with_inventory(None, "status", "set")
    assert (done.code, done.err) == (0, f"inventory: {hosts.inventory}, from the last start\n")
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(hosts.folder / "none.ini"))
    done = hosts.with_inventory(None, "stop", "set")
    assert (done.code, done.out) == (3, "")
    assert "none.ini: no such inventory" in done.err
    assert hosts.ok("stop", "set") == ""


def test_no_time_at_all_asks_how_it_is_now(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("asked", ONE))
    assert hosts("wait", "--timeout", "0").code == 101
    hosts.ok("stop", "asked")
    assert hosts("wait", "--timeout", "0s").code == 103


def test_all_that_status_says(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 0 || exec sleep 600; kill -KILL $$']\nroles: {worker: 3}\n"
    hosts.ok("start", hosts.file("said", text + "policy: {clean: none}\n"))
    assert hosts("wait", "said").code == 100
    found = hosts.status("said")
    first, second = found["tasks"][:2]
    assert {key: found[key] for key in ("job", "attempt", "state", "strategy", "inventory", "reason")} == {
        "job": "said", "attempt": 1, "state": "failed", "strategy": "custom", "inventory": str(hosts.inventory),
        "reason": "worker/0 on node1 failed with SIGKILL",
    }  # fmt: skip
    assert re.fullmatch("[0-9a-f]{8}", found["run"])
    times = [found.pop("started"), first.pop("started"), first.pop("finished"), found.pop("finished")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times)
    assert times == sorted(times)
    assert second["started"] >= times[0]
    assert first == {
        "role": "worker", "index": 0, "host": "node1", "address": "10.9.0.1", "port": 23400,
        "unit": "tfctl-said-worker-0.service", "state": "failed", "exit_code": None, "signal": "SIGKILL",
        "restarts": 0, "gpus": [],
    }  # fmt: skip
    assert (second["state"], second["exit_code"], second["signal"], second["finished"]) == ("running", None, None, None)

    head, reason, *rows = hosts.ok("status", "said").splitlines()
    assert head == "said  attempt 1  custom  none  failed"
    assert reason == "  worker/0 on node1 failed with SIGKILL"
    assert [re.split(r"\s{2,}", row)[:5] for row in rows[:2]] == [
        ["TASK", "HOST", "ADDRESS", "STATE", "EXIT"],
        ["worker/0", "node1", "10.9.0.1:23400", "failed", "SIGKILL"],
    ]


def test_a_host_that_does_not_answer(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("part", STAY + "roles: {worker: 3}\n"))
    hosts.refuse("node3", "exit 127")
    done = hosts("status", "part", "-o", "json")
    assert done.code == 0
    assert [task["state"] for task in done.objects[0]["tasks"]] == ["running", "running", "unknown"]
    assert (done.objects[0]["state"], done.objects[0]["reason"]) == ("unknown", "no answer from node3")
    assert "node3: /usr/local/sbin/tfctl-node cannot be run" in done.err
    stopped = hosts("stop", "part")
    assert stopped.code == 8
    assert "node3" in stopped.err
    assert hosts.alive() == ["tfctl-part-worker-2.service"]
    for name in ("node1", "node2"):
        hosts.refuse(name, "exit 127")
    assert hosts("status", "part").code == 8
    for name in hosts.names:
        hosts.heal(name)
    assert hosts("stop", "part").code == 0


def test_a_watch_ends_with_the_job(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("watched", ONE))
    with hosts.begin("status", "--watch", "-o", "json") as client:
        client.until(out='"running"')
        hosts.ok("stop", "watched")
        done = client.done()
    assert done.code == 0
    states = [found["state"] for found in done.objects]
    assert (states[0], states[-1]) == ("running", "stopped")
