"""What hosts say, and the state that follows for the job."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from records import make_record, make_state

from tfctl.cli.tables import JOBS, job_json, job_text
from tfctl.errors import NotFound
from tfctl.jobs.state import JobState, jobs, not_in_inventory, select, select_one
from tfctl.node import wire

_TASKS = (("worker", 0, "node1"), ("worker", 1, "node2"), ("ps", 0, "node2"))
#: Two workers that decide, and one ps.
RECORD = make_record(_TASKS, deciders=[("worker", 0), ("worker", 1)], attempt=2)
UNHEARD = "node2 has not heard from the guard on node1 for 600 s (policy: lease)"


def reported(
    stopped: float | None = None, record: wire.Record = RECORD, silent: str = "", **states: wire.TaskStateName
) -> JobState:
    """Return the job of hosts that report these states, by ``worker0`` and so on. ``silent``: a host without answer."""
    answers: dict[str, list[wire.JobStatus] | None] = {}
    for host in ("node1", "node2"):
        tasks = tuple(
            _status(role, index, states[f"{role}{index}"])
            for role, index, where in _TASKS
            if where == host and f"{role}{index}" in states
        )
        shown = wire.JobStatus("digits", record.attempt, "r", record, stopped, tasks)
        answers[host] = None if host == silent else [shown]
    return jobs(answers)[0]


def _status(role: str, index: int, state: wire.TaskStateName) -> wire.TaskStatus:
    return wire.TaskStatus(
        role, index, state, exit_code={"failed": 7, "succeeded": 0}.get(state), signal=None, started=101.0,
        finished=110.0 + index if state in ("failed", "succeeded") else None, restarts=0,
    )  # fmt: skip


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
        ({"worker0": "running", "silent": "node2"}, "unknown"),
        ({"worker0": "failed", "silent": "node2"}, "failed"),
        ({"worker0": "running", "worker1": "running"}, "running"),
    ],
)
def test_the_state_of_a_job_follows_from_its_tasks(states: dict[str, Any], state: str) -> None:
    assert reported(**states).state == state


@pytest.mark.parametrize(
    ("vital", "states", "state"),
    [
        ([[("ps", 0)]], {"worker0": "running", "worker1": "running", "ps0": "failed"}, "failed"),
        ([[("ps", 0)]], {"worker0": "running", "worker1": "running", "ps0": "lost"}, "failed"),
        ([[("ps", 0)]], {"worker0": "succeeded", "worker1": "running", "ps0": "failed"}, "succeeded"),
        ([[("worker", 1), ("ps", 0)]], {"worker0": "running", "worker1": "failed", "ps0": "running"}, "running"),
        ([[("worker", 1), ("ps", 0)]], {"worker0": "running", "worker1": "failed", "ps0": "failed"}, "failed"),
    ],
)
def test_a_job_fails_when_every_task_of_a_vital_group_is_gone(
    vital: list[list[tuple[str, int]]], states: dict[str, Any], state: str
) -> None:
    record = make_record(_TASKS, deciders=[("worker", 0)], vital=vital)
    assert reported(record=record, **states).state == state


@pytest.mark.parametrize("gone", ["failed", "lost"])
def test_judge_fails_a_job_when_a_parameter_server_is_lost_before_success(gone: str) -> None:
    """A reboot after the end of the job loses the parameter servers that still run."""
    record = make_record(_TASKS, deciders=[("worker", 0)], vital=[[("ps", 0)]])
    before: dict[str, Any] = {"worker0": "running", "worker1": "running", "ps0": gone}
    after: dict[str, Any] = {**before, "worker0": "succeeded"}
    assert (reported(record=record, **before).state, reported(record=record, **after).state) == ("failed", "succeeded")


@pytest.mark.parametrize(
    ("states", "state", "finished"),
    [
        ({"worker0": "failed", "worker1": "succeeded", "ps0": "stopped"}, "failed", 110.0),
        ({"worker0": "failed", "worker1": "stopped", "ps0": "stopped"}, "failed", 110.0),
        ({"worker0": "succeeded", "worker1": "succeeded", "ps0": "stopped"}, "succeeded", 111.0),
        ({"worker0": "succeeded", "worker1": "stopped", "ps0": "stopped"}, "stopped", 120.0),
        ({"worker0": "stopped", "worker1": "stopped", "ps0": "failed"}, "stopped", 120.0),
        ({"worker0": "stopped", "silent": "node2"}, "stopped", 120.0),
        ({"worker0": "lost", "worker1": "stopped", "ps0": "stopped"}, "failed", None),
        ({"worker0": "stopped"}, "stopped", 120.0),
    ],
)
def test_a_stop_mark_counts_only_for_a_job_that_had_not_ended(
    states: dict[str, Any], state: str, finished: float | None
) -> None:
    found = reported(stopped=120.0, **states)
    assert (found.state, found.finished, found.ended) == (state, finished, True)


def test_the_reason_names_the_failed_task_with_its_host_and_ending() -> None:
    failed = reported(worker0="succeeded", worker1="failed", ps0="running")
    assert failed.reason == "worker/1 on node2 failed with exit code 7"
    assert reported(worker0="lost", worker1="running", ps0="running").reason.startswith("worker/0 on node1 is lost: ")
    assert reported(worker0="running", silent="node2").reason == "no answer from node2"


def test_a_task_that_its_host_does_not_know_is_lost() -> None:
    states = {str(task): task.state for task in reported(worker0="running").tasks}
    assert states == {"worker/0": "running", "worker/1": "lost", "ps/0": "lost"}


def test_a_task_is_pending_on_a_host_that_a_start_has_not_reached() -> None:
    """Another client looks at the job while it is being started."""
    task = _status("worker", 0, "pending")
    begun = wire.JobStatus("digits", 2, RECORD.run, RECORD, None, (task,), kept=False)
    before = wire.JobStatus("digits", 1, "89abcdef", RECORD._replace(attempt=1, run="89abcdef", started=50.0), None, ())
    for other in ([before], []):
        [found] = jobs({"node1": [begun], "node2": other})
        assert ({task.state for task in found.tasks}, found.state) == ({"pending"}, "starting")


def test_jobs_takes_the_highest_attempt_when_hosts_report_two() -> None:
    old = wire.JobStatus("digits", 1, "r", RECORD, None, ())
    found = jobs({"node1": [old], "node2": [old._replace(attempt=2)]})
    assert [state.attempt for state in found] == [2]


def test_a_run_that_was_started_later_on_another_host_is_the_job_whatever_its_attempt() -> None:
    old = make_record([("worker", 0, "node1")], started=100.0)
    new = make_record([("worker", 0, "node3")], started=200.0)._replace(run="89abcdef")
    answers = {
        "node1": [wire.JobStatus("digits", 1, old.run, old, None, (_status("worker", 0, "running"),))],
        "node3": [wire.JobStatus("digits", 1, new.run, new, None, (_status("worker", 0, "failed"),))],
    }
    [found] = jobs(answers)
    assert (found.record.run, found.state, found.hosts) == ("89abcdef", "failed", ("node3",))
    assert [(str(task), task.host) for task in found.others] == [("worker/0", "node1")]
    assert found.alive and found.remaining == found.others


def test_list_and_status_show_the_live_tasks_of_a_job_that_has_ended() -> None:
    found = reported(stopped=120.0, worker0="stopped", worker1="running", ps0="stopped")
    assert "stopped, 1 task alive" in JOBS.render([found]).text
    assert (
        "  still alive: worker/1 on node2; tfctl stop digits stops every task under this name\n" in job_text(found).text
    )
    assert (job_json(found)["state"], job_json(found)["alive"]) == ("stopped", 1)
    assert job_json(reported(worker0="running", worker1="running", ps0="running"))["alive"] == 0


def test_json_has_every_field_of_the_contract() -> None:
    value = job_json(reported(worker0="succeeded", worker1="failed", ps0="stopped"))
    assert list(value) == [
        "job", "attempt", "run", "state", "alive", "progress", "strategy", "inventory", "started", "finished", "reason",
        "culprit", "why", "tasks",
    ]  # fmt: skip
    assert list(value["tasks"][0]) == [
        "role", "index", "host", "address", "port", "unit", "state", "exit_code", "signal", "oom", "restarts",
        "started", "finished", "reason", "last_line_age", "gpus",
    ]  # fmt: skip
    assert (value["started"], value["finished"]) == ("1970-01-01T00:01:40Z", "1970-01-01T00:01:51Z")


@pytest.mark.parametrize(
    ("own", "guarded", "state"),
    [
        (None, False, "failed"),
        (None, True, "stopped"),
        (wire.GuardReport(silent=("node2",)), False, "stopped"),
        (wire.GuardReport(silent=()), False, "failed"),
        (wire.GuardReport(succeeded=1.0), False, "stopped"),
    ],
)
def test_what_another_guard_has_noted_counts_unless_the_head_has_gone_on_without_its_host(
    own: wire.GuardReport | None, guarded: bool, state: str
) -> None:
    guard = wire.RecordedGuard("node1", "10.0.0.1", 2300, RECORD.run, 600, 1)
    record = RECORD._replace(guard=guard)
    ends = {"node1": [_status("worker", 0, "stopped")], "node2": [_status("worker", 1, "stopped")]}
    left = wire.GuardReport(reason=UNHEARD)
    noted = {"node1": own, "node2": left}
    answers = {
        host: [wire.JobStatus("digits", 2, "r", record, 120.0, tuple(tasks), True, noted[host], guarded)]
        for host, tasks in ends.items()
    }
    assert jobs(answers)[0].state == state


@pytest.mark.parametrize(
    ("first", "second", "state", "reason"),
    [
        ("running", "stopped", "running", UNHEARD),
        ("starting", "stopped", "starting", UNHEARD),
        ("running", "running", "running", ""),  # somebody has started it again
        ("succeeded", "stopped", "succeeded", ""),
        ("failed", "stopped", "failed", "worker/0 on node1 failed with exit code 7"),
    ],
)
def test_a_job_that_goes_on_has_as_reason_why_the_guard_of_a_host_has_stopped_its_tasks(
    first: wire.TaskStateName, second: wire.TaskStateName, state: str, reason: str
) -> None:
    record = RECORD._replace(
        guard=wire.RecordedGuard("node1", "10.0.0.1", 2300, RECORD.run, 600, 1), deciders=(("worker", 0),),
        tasks=RECORD.tasks[:2], vital=(),
    )  # fmt: skip
    tasks = {"node1": _status("worker", 0, first), "node2": _status("worker", 1, second)}
    notes = {"node1": wire.GuardReport(), "node2": wire.GuardReport(reason=UNHEARD, finished=120.0)}
    answers = {
        host: [wire.JobStatus("digits", 2, "r", record, None, (task,), True, notes[host], host == "node1")]
        for host, task in tasks.items()
    }
    [found] = jobs(answers)
    assert (found.state, found.reason) == (state, reason)


def test_status_shows_why_a_guard_has_stopped_a_task() -> None:
    without = reported(worker0="succeeded", worker1="succeeded", ps0="stopped")
    assert "REASON" not in job_text(without).text
    ps = without.tasks[2]
    told = replace(ps, status=ps.status._replace(reason="worker/0 has succeeded"))
    found = replace(without, tasks=(*without.tasks[:2], told))
    assert re.search(r"ps/0 .*stopped .*worker/0 has succeeded", job_text(found).text)
    assert [task["reason"] for task in job_json(found)["tasks"]] == ["", "", "worker/0 has succeeded"]


def test_failed_tasks_come_first() -> None:
    order = [str(task) for task in reported(worker0="succeeded", worker1="failed", ps0="running").by_attention()]
    assert order == ["worker/1", "ps/0", "worker/0"]


def test_a_role_and_an_index_select_tasks() -> None:
    state = reported(worker0="running", worker1="running", ps0="running")
    assert [task.name for task in select(state, "worker", None)] == [("worker", 0), ("worker", 1)]
    assert [task.name for task in select(state, "worker", 1)] == [("worker", 1)]
    assert select_one(state, "ps", None).name == ("ps", 0)
    with pytest.raises(NotFound) as missing:
        select(state, "ps", 1)
    assert (missing.value.message, missing.value.remedy) == ("digits has no ps 1", "it has worker 0 to 1, ps 0")
    with pytest.raises(NotFound, match="digits has 2 tasks of role worker"):
        select_one(state, "worker", None)


@pytest.mark.parametrize("name", wire.TaskStatus._fields[2:])
def test_a_task_has_changed_unless_only_what_says_nothing_about_its_state_differs(name: str) -> None:
    reported: dict[str, Any] = {name: "other"}
    task, other = make_state(), make_state(**reported)
    sent_once = name in ("last_line_age", "timings", "sample")
    assert (task == other, hash(task) == hash(other)) == (sent_once, sent_once)
    assert getattr(other.status, name) == "other"


def test_a_task_of_another_record_is_another_task() -> None:
    assert make_state() != make_state(memory="16G")
    assert make_state() == make_state()
    assert make_state() != "worker/0"


def test_error_about_hosts_that_the_inventory_lacks_names_them_and_has_a_remedy() -> None:
    error = not_in_inventory(reported(worker0="running"), "node1", "node2")
    assert error.message == "node1, node2, where digits has tasks, are not in this inventory"
    assert (error.exit, error.remedy, error.hosts) == (7, "name another with -i", ("node1", "node2"))
