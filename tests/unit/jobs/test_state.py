"""What hosts say, and the state that follows for the job."""

from __future__ import annotations

from typing import Any

import pytest

from tfctl.jobs.events import merged
from tfctl.jobs.state import JobState, jobs

#: wire.RECORD of two workers that decide and one ps.
RECORD: dict[str, Any] = {
    "job": "digits", "attempt": 2, "run": "0123abcd", "strategy": "custom", "stack": "none", "inventory": "/i.ini",
    "output": "/srv/tfctl/digits", "started": 100.0, "policy": {}, "env": [],
    "deciders": [["worker", 0], ["worker", 1]],
    "tasks": [
        {"role": role, "index": index, "host": host, "address": "10.0.0.1", "port": 2222, "unit": "u", "gpus": []}
        for role, index, host in (("worker", 0, "node1"), ("worker", 1, "node2"), ("ps", 0, "node2"))
    ],
}  # fmt: skip
_WHERE = {"worker/0": "node1", "worker/1": "node2", "ps/0": "node2"}


def told(stopped: float | None = None, attempt: int = 2, record: dict[str, Any] = RECORD, **states: str) -> JobState:
    """The job of hosts that say these states: ``worker0="failed"``; ``node2="silent"`` for a host without answer."""
    answers: dict[str, Any] = {}
    for host in ("node1", "node2"):
        tasks = [
            {"role": "worker" if name[0] == "w" else "ps", "index": int(name[-1]), "state": state, "signal": None,
             "exit_code": {"failed": 7, "succeeded": 0}.get(state), "started": 101.0, "restarts": 0,
             "finished": 110.0 + int(name[-1]) if state in ("failed", "succeeded") else None}
            for name, state in states.items()
            if name[:4] != "node" and _WHERE[f"{name[:-1]}/{name[-1]}"] == host
        ]  # fmt: skip
        shown = {"job": "digits", "attempt": attempt, "run": "r", "record": record, "stopped": stopped, "tasks": tasks}
        answers[host] = None if states.get(host) == "silent" else [shown]
    return jobs(answers)[0]


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ({"worker0": "running", "worker1": "running", "ps0": "running"}, "running"),
        ({"worker0": "starting", "worker1": "running", "ps0": "running"}, "starting"),
        ({"worker0": "pending", "worker1": "pending", "ps0": "pending"}, "starting"),
        ({"worker0": "succeeded", "worker1": "succeeded", "ps0": "running"}, "succeeded"),
        ({"worker0": "succeeded", "worker1": "running", "ps0": "running"}, "running"),
        ({"worker0": "failed", "worker1": "running", "ps0": "running"}, "failed"),
        ({"worker0": "lost", "worker1": "running", "ps0": "running"}, "failed"),
        ({"worker0": "succeeded", "worker1": "succeeded", "ps0": "failed"}, "succeeded"),
        ({"worker0": "running", "worker1": "running", "ps0": "failed"}, "running"),
        ({"worker0": "stopped", "worker1": "failed", "ps0": "stopped"}, "failed"),
        ({"worker0": "stopped", "worker1": "stopped", "ps0": "stopped"}, "stopped"),
        ({"worker0": "running", "node2": "silent"}, "unknown"),
        ({"worker0": "failed", "node2": "silent"}, "failed"),
        ({"worker0": "running", "worker1": "running"}, "running"),
    ],
)
def test_the_jobs_state(states: dict[str, str], state: str) -> None:
    assert told(**states).state == state


@pytest.mark.parametrize(
    ("vital", "states", "state"),
    [
        ([[["ps", 0]]], {"worker0": "running", "worker1": "running", "ps0": "failed"}, "failed"),
        ([[["ps", 0]]], {"worker0": "running", "worker1": "running", "ps0": "lost"}, "failed"),
        ([[["ps", 0]]], {"worker0": "succeeded", "worker1": "running", "ps0": "failed"}, "succeeded"),
        ([[["worker", 1], ["ps", 0]]], {"worker0": "running", "worker1": "failed", "ps0": "running"}, "running"),
        ([[["worker", 1], ["ps", 0]]], {"worker0": "running", "worker1": "failed", "ps0": "failed"}, "failed"),
    ],
)
def test_a_group_that_the_others_need_takes_the_job_with_it_when_all_of_it_is_gone(
    vital: list[list[list[Any]]], states: dict[str, str], state: str
) -> None:
    record = {**RECORD, "deciders": [["worker", 0]], "vital": vital}
    assert told(record=record, **states).state == state


def test_a_stop_mark_goes_before_everything() -> None:
    found = told(stopped=120.0, worker0="failed", worker1="succeeded", ps0="stopped")
    assert (found.state, found.finished, found.ended) == ("stopped", 120.0, True)


def test_the_reason_names_task_host_and_ending() -> None:
    assert (
        told(worker0="succeeded", worker1="failed", ps0="running").reason == "worker/1 on node2 failed with exit code 7"
    )
    assert told(worker0="lost", worker1="running", ps0="running").reason.startswith("worker/0 on node1 is lost: ")
    assert told(worker0="running", node2="silent").reason == "no answer from node2"


def test_a_host_that_answers_and_knows_nothing_has_lost_its_task() -> None:
    states = {str(task): task.state for task in told(worker0="running").tasks}
    assert states == {"worker/0": "running", "worker/1": "lost", "ps/0": "lost"}


def test_what_a_newer_version_adds_is_left_out() -> None:
    newer = {**RECORD, "rack": 7, "tasks": [{**task, "rack": 7} for task in RECORD["tasks"]]}
    assert told(record=newer, worker0="running", worker1="running", ps0="running").state == "running"
    event = {"time": 1.0, "attempt": 1, "event": "begin", "role": "ps", "index": 0, "by": None, "rack": 7}
    assert [str(one.task) for one in merged(told(worker0="running"), {"node1": [event]})] == ["ps/0"]


def test_the_highest_attempt_counts() -> None:
    old = {"job": "digits", "attempt": 1, "run": "r", "record": RECORD, "stopped": None, "tasks": []}
    new = {**old, "attempt": 2}
    found = jobs({"node1": [old], "node2": [new]})
    assert [state.attempt for state in found] == [2]


def test_json_has_every_field_of_the_contract() -> None:
    value = told(worker0="succeeded", worker1="failed", ps0="stopped").json()
    assert list(value) == [
        "job", "attempt", "run", "state", "strategy", "inventory", "started", "finished", "reason", "tasks",
    ]  # fmt: skip
    assert list(value["tasks"][0]) == [
        "role", "index", "host", "address", "port", "unit", "state", "exit_code", "signal", "started", "finished",
        "restarts", "gpus",
    ]  # fmt: skip
    assert (value["started"], value["finished"]) == ("1970-01-01T00:01:40Z", "1970-01-01T00:01:51Z")


def test_failed_tasks_stand_first() -> None:
    order = [str(task) for task in told(worker0="succeeded", worker1="failed", ps0="running").by_attention()]
    assert order == ["worker/1", "ps/0", "worker/0"]
