"""`tfctl events`: what happened to a job and who did it, from the records of its hosts."""

from __future__ import annotations

import re
from typing import Any

from node_tree import wait_until
from records import make_record

from tests.cluster.hosts import STAY, Hosts
from tfctl.jobs.events import merged
from tfctl.jobs.state import JobState
from tfctl.node import wire


def told(hosts: Hosts, job: str) -> list[dict[str, Any]]:
    return list(hosts("events", job, "-o", "json").objects[0]["events"])


def short(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return attempt, event, task, and signal or exit code of each event."""
    return [
        (
            e["attempt"],
            e["event"],
            "" if e["role"] is None else f"{e['role']}/{e['index']}",
            e["signal"] or e["exit_code"],
        )
        for e in events
    ]


def test_events_lists_starts_stops_and_restarts_in_order(hosts: Hosts) -> None:
    file = hosts.file("lives", STAY + "roles: {worker: 2}\n")
    hosts.ok("start", file)
    hosts.ok("restart", "lives", "worker", 1)
    hosts.ok("stop", "lives")
    hosts.ok("stop", "lives")  # nothing ran, so it adds no event
    hosts.ok("start", file)
    found = told(hosts, "lives")
    assert [e["time"] for e in found] == sorted(e["time"] for e in found)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e["time"]) for e in found)
    lines = short(found)
    assert lines[0] == (1, "start", "", None)
    assert set(lines[1:3]) == {(1, "begin", "worker/0", None), (1, "begin", "worker/1", None)}
    assert lines[3:6] == [
        (1, "restart", "worker/1", None), (1, "end", "worker/1", "SIGTERM"), (1, "begin", "worker/1", None),
    ]  # fmt: skip
    assert lines[6] == (1, "stop", "", None)
    assert set(lines[7:9]) == {(1, "end", "worker/0", "SIGTERM"), (1, "end", "worker/1", "SIGTERM")}
    assert lines[9] == (2, "start", "", None)
    assert set(lines[10:]) == {(2, "begin", "worker/0", None), (2, "begin", "worker/1", None)}
    assert {e["by"] for e in found if e["event"] in ("start", "restart", "stop")} == {"ops"}
    assert {e["host"] for e in found if e["role"] is None} == {None}
    head, first, *_ = (re.split(r"\s{2,}", line) for line in hosts.ok("events").splitlines())
    assert head == ["TIME", "ATTEMPT", "TASK", "HOST", "EVENT", "HOW"]
    assert first[-2:] == ["start", "by ops"]


def test_events_lists_automatic_restarts_and_how_the_job_ended(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 1 || exec sleep 600; exit 7']\nroles: {worker: 2}\n"
    file = hosts.file("falls", text + "policy: {max_restarts: 1}\n")
    assert hosts("start", file, "--wait").code == 100
    lines = short(told(hosts, "falls"))
    second = [line for line in lines if line[2] == "worker/1"]
    assert second == [
        (1, "begin", "worker/1", None), (1, "end", "worker/1", 7),
        (1, "begin", "worker/1", None), (1, "end", "worker/1", 7),
    ]  # fmt: skip
    failed = lines.index((1, "failed", "", None))
    assert lines[failed - 1] == second[-1]
    assert (1, "stop", "worker/0", None) in lines[failed:], "the waiting client has stopped the other task"
    assert "worker/1 on node2 failed with exit code 7 after 1 restart" in hosts.ok("events", "falls")


def test_events_fails_when_a_host_of_the_job_is_silent_or_no_job_is_known(hosts: Hosts) -> None:
    assert hosts("events").code == 7
    done = hosts("events", "never")
    assert (done.code, "no host has a job 'never'" in done.err) == (7, True)
    hosts.ok("start", hosts.file("part", STAY + "roles: {worker: 2}\n"))
    hosts.refuse("node3", "exit 127")
    done = hosts("events")
    assert (done.code, "node3" in done.err) == (0, True), "it has nothing of this job"
    hosts.refuse("node2", "exit 127")
    done = hosts("events", "part")
    assert (done.code, "node2" in done.err, "worker/0" in done.out) == (8, True, True)
    wait_until(lambda: len(hosts.alive()) == 2)


def test_events_of_the_whole_job_are_listed_once() -> None:
    now = JobState("j", 1, "running", "", None, make_record(), ())
    stop = wire.Event(5.0, 1, "stop", None, None, by="ops", exit_code=None, signal=None)
    events = merged(now, {"a": [stop], "b": [stop._replace(time=4.0), stop._replace(time=6.0, by="eve")]})
    assert [(event.time, event.by) for event in events] == [(4.0, "ops"), (6.0, "eve")]
