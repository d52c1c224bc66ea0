"""The commands that show hosts and jobs: nodes, events and preflight."""

from __future__ import annotations

import json

from tests.lab.jobs import Jobs

STAY = """
    command: sleep 600
    policy: {max_restarts: 1}
    roles: {ps: 1, worker: 3}
"""


def test_nodes_and_events_describe_hosts_and_the_history_of_a_job(jobs: Jobs) -> None:
    jobs.ok("start", jobs.file("story", STAY))
    attempt = jobs.status("story")["attempt"]
    nodes = json.loads(jobs.ok("nodes", "-o", "json"))["nodes"]
    assert [node["host"] for node in nodes] == list(jobs.lab.hosts())
    assert {(node["state"], node["protocol"], node["systemd"] >= 247) for node in nodes} == {("ready", 2, True)}
    assert len({node["version"] for node in nodes}) == 1
    tasks = [f"{task['role']}/{task['index']}" for node in nodes for task in node["tasks"] if task["job"] == "story"]
    assert sorted(tasks) == ["ps/0", "worker/0", "worker/1", "worker/2"]
    assert sum(who.startswith("job story,") for node in nodes for who in node["ports"].values()) == 4

    jobs.root("node2", "systemctl kill -s KILL tfctl-story-worker-1.service")
    jobs.ok("restart", "story", "worker/0")
    jobs.ok("stop", "story")
    events = [e for e in json.loads(jobs.ok("events", "story", "-o", "json"))["events"] if e["attempt"] == attempt]
    assert [(e["event"], e["by"]) for e in events if e["role"] is None] == [("start", "ops"), ("stop", "ops")]
    first = [(e["event"], e["signal"], e["by"]) for e in events if (e["role"], e["index"]) == ("worker", 0)]
    assert first == [
        ("begin", None, None), ("restart", None, "ops"), ("end", "SIGTERM", None), ("begin", None, None),
        ("end", "SIGTERM", None),
    ]  # fmt: skip
    second = [e for e in events if (e["role"], e["index"], e["event"]) == ("worker", 1, "end")]
    assert second[0]["signal"] == "SIGKILL"


def test_preflight_finds_a_lab_fit_and_names_a_changed_gid(jobs: Jobs) -> None:
    done = jobs.lab.tfctl("preflight", jobs.lab.inventory, "--stack", "none", "-o", "json")
    assert {host["state"] for host in json.loads(done.stdout)["hosts"]} == {"fit"}
    jobs.root("node2", "groupmod -g 881 tfctl")
    try:
        done = jobs.lab.tfctl("preflight", jobs.lab.inventory, "--stack", "none", check=False)
    finally:
        jobs.root("node2", "groupmod -g 880 tfctl")
    assert done.returncode == 8
    assert "node1  fit" in done.stdout
    assert "881" in done.stdout.partition("node2  unfit")[2]
