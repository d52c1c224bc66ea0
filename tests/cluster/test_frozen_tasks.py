"""status shows which running tasks have printed nothing for a while."""

from __future__ import annotations

import json

from node_tree import Tree, wait_until

from tests.cluster.hosts import STAY, Hosts


def make_older(tree: Tree, seconds: int) -> None:
    """Let all entries of the journal be older."""
    entries = tree.entries()
    for entry in entries:
        entry["__REALTIME_TIMESTAMP"] = str(int(entry["__REALTIME_TIMESTAMP"]) - seconds * 1_000_000)
    (tree / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_status_shows_how_long_ago_a_task_printed_its_last_line_when_that_exceeds_a_minute(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("frozen", STAY + "roles: {worker: 3}\n"))
    for tree in hosts.trees.values():
        wait_until(lambda tree=tree: any(entry["MESSAGE"] == "begun" for entry in tree.entries()))  # type: ignore[misc]
    assert all(0 <= task["last_line_age"] < 60 for task in hosts.status("frozen", with_ages=True)["tasks"])
    assert "LAST LINE" not in hosts.ok("status", "frozen")

    make_older(hosts.trees["node2"], 200)
    ages = {task["host"]: task["last_line_age"] for task in hosts.status("frozen", with_ages=True)["tasks"]}
    assert 200 <= ages["node2"] < 260
    shown = hosts.ok("status", "frozen").splitlines()
    assert "LAST LINE" in shown[1]
    assert [line.split()[1] for line in shown if line.endswith(" min ago")] == ["node2"]

    hosts.ok("stop", "frozen")
    assert [task["last_line_age"] for task in hosts.status("frozen", with_ages=True)["tasks"]] == [None, None, None]


def test_status_has_no_age_for_a_task_that_has_printed_nothing(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("silent", "command: [sleep, '600']\nroles: {worker: 1}\n"))
    assert hosts.status("silent", with_ages=True)["tasks"][0]["last_line_age"] is None
