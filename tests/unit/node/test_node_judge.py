"""What a verdict means for the tasks that still run (tfctl.node.judge)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from records import make_record

from tfctl.node import judge, wire
from tfctl.wording import abbreviated

TASKS = (("chief", 0, "node1"), ("ps", 0, "node1"), ("worker", 0, "node2"), ("evaluator", 0, "node2"))
RECORD = make_record(TASKS, deciders=[("chief", 0)], leaves=["worker"])


def statuses(**states: wire.TaskStateName) -> list[wire.TaskStatus]:
    """Return the tasks' statuses. A task without a state has succeeded."""
    return [
        wire.TaskStatus(role, index, states.get(role, "succeeded"), None, None, 101.0, None, 0)
        for role, index, _ in TASKS
    ]


def test_judge_names_the_task_that_comes_first_in_the_record_when_all_have_failed_at_the_same_time() -> None:
    names = [("worker", index) for index in range(30, 0, -1)]
    record = make_record([(*name, "node1") for name in names], deciders=names)
    failed = [wire.TaskStatus(*name, "failed", 1, None, 101.0, 102.0, 0) for name in names]
    assert judge.judge(record, failed, None).culprit == ("worker", 30)
    lost = [status._replace(state="lost", finished=None) for status in failed]
    assert judge.judge(record, lost, None).culprit == ("worker", 30)
    assert judge.judge(record, [*lost[:-1], failed[-1]], None).culprit == ("worker", 1)


@pytest.mark.parametrize(
    ("exit_code", "signal", "restarts", "sentence"),
    [
        (3, None, 2, "failed with exit code 3 at its deadline after 2 restarts"),
        (None, "SIGKILL", 0, "failed with SIGKILL at its deadline"),
        (None, None, 1, "failed at its deadline after 1 restart"),
    ],
)
def test_the_failure_of_a_task_at_its_deadline_says_so(
    exit_code: int | None, signal: str | None, restarts: int, sentence: str
) -> None:
    status = wire.TaskStatus("worker", 0, "failed", exit_code, signal, 101.0, 102.0, restarts, overdue=True)
    assert judge.failure(status, "node1") == f"worker/0 on node1 {sentence}"


@pytest.mark.parametrize(("limit", "sentence"), [("16G", "out of memory (limit 16G)"), (None, "out of memory")])
def test_the_failure_of_a_task_that_ran_out_of_memory_says_so(limit: str | None, sentence: str) -> None:
    status = wire.TaskStatus("worker", 1, "failed", None, "SIGKILL", 101.0, 102.0, 3, oom=True)
    record = make_record([("worker", 1, "n2")], deciders=[("worker", 1)])
    record = record._replace(tasks=(record.tasks[0]._replace(memory=limit),))
    assert (
        judge.judge(record, [status], None).reason == f"worker/1 on n2 failed with SIGKILL after 3 restarts: {sentence}"
    )


def test_cleanup_stops_no_parameter_server_while_a_worker_shuts_down() -> None:
    tasks = statuses(ps="running", worker="running", evaluator="running")
    draining = judge.draining(RECORD, tasks, since=1.0)
    assert set(draining) == {("worker", 0), ("evaluator", 0)}
    assert judge.to_clean(RECORD, tasks, draining) == []


def test_cleanup_stops_the_parameter_servers_while_only_the_evaluator_drains() -> None:
    tasks = statuses(ps="running", evaluator="running")
    draining = judge.draining(RECORD, tasks, since=1.0)
    assert judge.to_clean(RECORD, tasks, draining) == [("ps", 0)]


def test_cleanup_stops_a_worker_that_does_not_end_in_time_and_its_servers() -> None:
    tasks = statuses(ps="running", worker="running", evaluator="running")
    draining = judge.draining(RECORD, tasks, since=judge.LEAVE_S + 1)
    assert judge.to_clean(RECORD, tasks, draining) == [("ps", 0), ("worker", 0)]


def task(index: int, state: wire.TaskStateName = "running", **more: Any) -> wire.TaskStatus:
    return wire.TaskStatus("worker", index, state, None, None, 101.0, None, 0)._replace(**more)


def failing(index: int, code: int = 1, **more: Any) -> wire.TaskStatus:
    """A task that has failed at once twice and is to be started a third time."""
    return task(index, "starting", restarts=1, last_exit_code=code, fails_at_once=True)._replace(**more)


GIVEN_UP = task(0, "failed", exit_code=1, restarts=1, given_up=True)


@pytest.mark.parametrize(
    ("tasks", "names"),
    [
        ([failing(0), task(1), task(2, "starting")], [("worker", 0)]),
        ([failing(0), failing(1, state="running"), task(2)], [("worker", 0), ("worker", 1)]),
        ([GIVEN_UP, failing(1), task(2)], [("worker", 1)]),
        ([GIVEN_UP, task(1)], []),
        ([task(0), task(1)], []),
    ],
)
def test_tasks_are_given_up_that_fail_at_once_by_themselves(
    tasks: list[wire.TaskStatus], names: list[wire.TaskName]
) -> None:
    assert judge.to_give_up(tasks) == names


@pytest.mark.parametrize(
    "peer",
    [
        task(1, restarts=1, last_signal="SIGKILL"),
        task(1, "starting", last_signal="SIGABRT"),
        task(1, restarts=1, last_exit_code=1),
        task(1, "starting", last_exit_code=1),  # its first run has ended
        failing(1, code=3),
        task(1, "failed", exit_code=1),
        task(1, "succeeded", exit_code=0),
        task(1, "stopped"),
        task(1, "lost"),
        task(1, "unknown"),
    ],
)
def test_a_task_is_not_given_up_when_another_one_may_be_the_cause(peer: wire.TaskStatus) -> None:
    assert judge.to_give_up([failing(0), peer]) == []


def test_the_failure_of_a_task_that_was_given_up_says_so() -> None:
    assert judge.failure(GIVEN_UP, "n1") == (
        "worker/0 on n1 failed with exit code 1 twice within 10 s of its start; it is not started again"
    )


@pytest.mark.parametrize(
    ("silent", "said"),
    [(1, "node1"), (2, "node1 and node2"), (3, "node1, node2 and node3"), (5, "node1, node2, node3, node4 and node5"),
     (100, "node1, node2, node3 and 97 others")],
)  # fmt: skip
def test_judge_abbreviates_the_hosts_that_do_not_answer(silent: int, said: str) -> None:
    record = make_record([("worker", index, f"node{index + 1}") for index in range(silent)])
    tasks = judge.statuses(record, {})
    assert judge.judge(record, tasks, None).reason == f"no answer from {said}" == f"no answer from {_as_wording(tasks)}"


def _as_wording(tasks: Sequence[wire.TaskStatus]) -> str:
    return abbreviated([f"node{task.index + 1}" for task in tasks])
