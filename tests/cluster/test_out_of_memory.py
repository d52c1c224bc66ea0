"""A task that the kernel kills for lack of memory is reported as out of memory, with its limit."""

from __future__ import annotations

import json

from tests.cluster.hosts import Hosts

TEXT = "command: [sh, -c, 'kill -KILL $$']\nroles: {worker: {limits: {memory: 16G}}}\n"


def test_a_task_that_ran_out_of_memory_is_reported_by_every_command(hosts: Hosts) -> None:
    for host in hosts.trees.values():
        (host / "manager").mkdir(exist_ok=True)
        (host / "manager/out-of-memory").touch()
    done = hosts("start", hosts.file("large", TEXT), "--wait")
    sentence = "worker/0 on node1 failed with SIGKILL: out of memory (limit 16G)"
    assert (done.code, done.err.splitlines()[-2].endswith(sentence)) == (100, True), done.err
    assert sentence in hosts.ok("status", "large")
    assert hosts.ok("status", "large").count("SIGKILL, out of memory") == 1
    assert hosts.status("large")["tasks"][0]["oom"] is True
    assert "SIGKILL, out of memory" in hosts.ok("events", "large")
    events = json.loads(hosts.ok("events", "large", "-o", "json"))["events"]
    assert [event["oom"] for event in events if event["event"] == "end"] == [True]


def test_a_task_that_somebody_killed_is_not_reported_as_out_of_memory(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("killed", TEXT), "--wait")
    assert done.code == 100
    assert "failed with SIGKILL" in done.err
    assert "memory" not in done.err
    assert hosts.status("killed")["tasks"][0]["oom"] is False
