"""Who may still go on when the job has succeeded."""

from __future__ import annotations

import queue
import threading
import time

import pytest
from records import POLICY, make_record

from tfctl.jobs.state import JobState, TaskState
from tfctl.jobs.wait import Answer, going, news
from tfctl.node.judge import LEAVE_S
from tfctl.node.wire import TaskStateName

RECORD = make_record(leaves=["worker"], policy=POLICY._replace(drain=1800))


def ended(ago: float, state: str = "succeeded", **states: TaskStateName) -> JobState:
    tasks = [
        TaskState(role, 0, "node1", "10.0.0.1", 2222, f"tfctl-j-{role}-0.service", found)
        for role, found in states.items()
    ]
    return JobState("j", 1, state, "", time.time() - ago, RECORD, tuple(tasks))


@pytest.mark.parametrize(
    ("ago", "roles"), [(1, ["worker", "evaluator"]), (60, ["evaluator"]), (1700, ["evaluator"]), (1900, [])]
)
def test_an_evaluator_may_drain_and_a_worker_may_leave_after_success(ago: float, roles: list[str]) -> None:
    found = going(ended(ago, chief="succeeded", ps="running", worker="running", evaluator="running"))
    assert [task.role for task in found] == roles
    assert all(0 < left <= 1800 - ago for task, left in found.items() if task.role == "evaluator")


def test_an_end_that_was_observed_does_not_depend_on_the_hosts_clocks() -> None:
    found = ended(7200, worker="running", evaluator="running")
    assert going(found) == {}
    assert {task.role: left for task, left in going(found, 4.0).items()} == {"worker": LEAVE_S - 4, "evaluator": 1796.0}


def test_no_task_goes_on_when_the_job_has_failed_or_all_have_ended() -> None:
    assert not going(ended(1, chief="succeeded", worker="succeeded", evaluator="failed", ps="running"))
    assert not going(ended(1, "failed", chief="failed", worker="running", evaluator="running"))
    assert not going(ended(1, "running", chief="running", worker="running", evaluator="running"))


def test_what_many_hosts_say_at_once_is_taken_together() -> None:
    incoming: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    for number in range(1000):
        incoming.put((f"node{number}", ()))
    assert len(news(incoming, time.monotonic(), None)) == 1000


def test_what_hosts_say_before_the_next_look_at_the_job_is_due_is_taken_together() -> None:
    incoming: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    incoming.put(("node1", ()))
    threading.Timer(0.1, incoming.put, args=(("node2", ()),)).start()
    due = time.monotonic() + 1.0
    assert [name for name, _ in news(incoming, due, None)] == ["node1", "node2"]
    assert time.monotonic() >= due


def test_silence_does_not_last_longer_than_the_limit() -> None:
    began = time.monotonic()
    assert news(queue.SimpleQueue(), began, began + 0.05) == []
    assert time.monotonic() < began + 0.9
