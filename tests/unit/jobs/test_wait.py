"""Who may still go on when the job has succeeded."""

from __future__ import annotations

import time

import pytest
from records import POLICY, make_record, make_state

from tfctl.jobs import reasons
from tfctl.jobs.state import JobState
from tfctl.jobs.wait import going
from tfctl.node.judge import LEAVE_S
from tfctl.node.wire import JobStateName, TaskStateName

RECORD = make_record(leaves=["worker"], policy=POLICY._replace(drain=1800))


def ended(ago: float, state: JobStateName = "succeeded", **states: TaskStateName) -> JobState:
    tasks = [make_state(role, state=found) for role, found in states.items()]
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


def test_judge_drains_nothing_when_the_job_has_failed_or_all_tasks_have_ended() -> None:
    assert not going(ended(1, chief="succeeded", worker="succeeded", evaluator="failed", ps="running"))
    assert not going(ended(1, "failed", chief="failed", worker="running", evaluator="running"))
    assert not going(ended(1, "running", chief="running", worker="running", evaluator="running"))


def test_a_line_about_stopped_tasks_is_abbreviated() -> None:
    found = ended(1)
    tasks = [make_state("ps", index, state="running") for index in range(12)]
    said = "stopped ps/0, ps/1, ps/2 and {} others, which had nothing left to do"
    assert reasons.stopped(found, tasks) == said.format(9)
    assert reasons.stopped(found, tasks[:2]) == "stopped ps/0 and ps/1, which had nothing left to do"
