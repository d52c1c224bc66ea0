"""A job whose record is long, as that of a thousand tasks: one host is asked for it, and nothing else is different."""

from __future__ import annotations

import json

from tests.cluster.hosts import STAY, Hosts

#: It is in the record, so that three tasks suffice.
LONG = f"progress: 'step (?P<step>[0-9]+)(?:{'a' * 5000})?'\n"


def test_one_host_is_asked_for_a_long_record(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("long", STAY + LONG + "roles: {worker: 3}\n"))
    for words in (["status", "long"], ["list"], ["events", "long"], ["report", "long"]):
        for name in hosts.names:
            hosts.forget(name)
        hosts.ok(*words)
        asked = sorted(len(tree.calls()) for tree in hosts.trees.values())
        assert asked[0] == asked[1] < asked[2], (words, asked)


def test_a_job_with_a_long_record_is_started_followed_restarted_and_stopped(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("long", STAY + LONG + "roles: {worker: 3}\n"))
    with hosts.begin("wait", "long", "-o", "json") as client:
        hosts.ok("restart", "long")
        assert hosts.status("long")["attempt"] == 2
        assert hosts.states("long") == dict.fromkeys(["worker/0", "worker/1", "worker/2"], "running")
        busy = hosts("start", hosts.folder / "long/job.yaml")
        assert (busy.code, "already" in busy.err) == (5, True), busy
        hosts.ok("stop", "long")
        assert client.process.wait(60) == 103, client.err
    [job] = json.loads(hosts.ok("list", "-o", "json"))["jobs"]
    assert (job["state"], len(job["tasks"])) == ("stopped", 3)
