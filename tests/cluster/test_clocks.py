"""Hosts whose clocks are wrong are named, because tfctl compares the times that hosts report."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from tests.cluster.hosts import STAY, Hosts


def test_start_status_list_and_nodes_name_hosts_whose_clocks_are_wrong(hosts: Hosts) -> None:
    (hosts.trees["node2"] / "clock").write_text("3600")
    (hosts.trees["node3"] / "clock").write_text("-60")
    file = hosts.file("late", STAY + "roles: {worker: 3}\n")
    for done in (hosts("start", file), hosts("status", "late"), hosts("list"), hosts("nodes")):
        assert done.code == 0, done.err
        assert done.err.count("clocks differ: ") == 1
        assert "node1 is" not in done.err
        assert "node2 is 3600 s ahead of this machine" in done.err or "node2 is 3599 s ahead of" in done.err
        assert "node3 is 60 s behind this machine" in done.err or "node3 is 59 s behind" in done.err
    [_, ahead, behind] = json.loads(hosts.ok("nodes", "-o", "json"))["nodes"]
    assert 3500 < ahead["clock_offset"] <= 3600
    assert -61 < behind["clock_offset"] < -50
    now = datetime.now(UTC)
    for task in hosts.status("late")["tasks"]:
        assert abs(datetime.fromisoformat(task["started"]) - now) < timedelta(seconds=50)
    for event in json.loads(hosts.ok("events", "late", "-o", "json"))["events"]:
        assert abs(datetime.fromisoformat(event["time"]) - now) < timedelta(seconds=50)
    hosts.ok("stop", "late")


def test_no_clock_is_named_when_all_agree_or_an_answer_is_slow(hosts: Hosts) -> None:
    (hosts.trees["node2"] / "clock").write_text("-1.5")
    assert "clocks" not in hosts("list").err
    with hosts.behind_relay("node1") as relay:
        relay.delay = 0.3
        assert "clocks" not in hosts("list").err
