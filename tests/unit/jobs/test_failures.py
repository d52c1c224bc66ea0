"""Which failures and restarts are reported while a job is followed."""

from __future__ import annotations

from typing import Any

from records import POLICY, make_record, make_state

from tfctl.jobs.failures import FailureReporter
from tfctl.jobs.state import JobState, TaskState

RECORD = make_record(policy=POLICY._replace(max_restarts=3))


def worker(**reported: Any) -> TaskState:
    return make_state("worker", 0, "node2", **reported)


WORKER = worker()
FAILED = worker(state="failed", exit_code=3, restarts=3)


def job(*tasks: TaskState) -> JobState:
    return JobState("j", 1, "running", "", None, RECORD, tasks)


def said(*states: TaskState) -> list[str]:
    found: list[str] = []
    noting = FailureReporter(found.append)
    for state in states:
        noting.note(job(state))
    return found


def test_a_restart_is_reported_once_with_how_the_task_ended() -> None:
    again = worker(restarts=1, last_exit_code=3)
    assert said(WORKER, again, again) == ["~~ worker/0 on node2 failed with exit code 3; restart 1 of 3"]
    killed = worker(restarts=2, last_signal="SIGKILL")
    assert said(again, killed)[1:] == ["~~ worker/0 on node2 failed with SIGKILL; restart 2 of 3"]
    by_user = worker(restarts=4, last_signal="SIGTERM")
    assert said(by_user) == ["~~ worker/0 on node2 ended with SIGTERM; restart 4"]


def test_a_task_that_ran_out_of_memory_is_reported_with_its_limit() -> None:
    limited = worker(memory="16G")
    again = worker(memory="16G", restarts=1, last_signal="SIGKILL", last_oom=True)
    gone = worker(memory="16G", state="failed", restarts=3, signal="SIGKILL", oom=True)
    assert said(limited, again, gone) == [
        "~~ worker/0 on node2 failed with SIGKILL: out of memory (limit 16G); restart 1 of 3",
        "~~ worker/0 on node2 failed with SIGKILL after 3 restarts: out of memory (limit 16G)",
    ]


def test_a_failure_for_good_and_a_loss_are_reported_once() -> None:
    assert said(WORKER, FAILED, FAILED) == ["~~ worker/0 on node2 failed with exit code 3 after 3 restarts"]
    [lost] = said(WORKER, worker(state="lost"))
    assert lost.startswith("~~ worker/0 on node2 is lost: ")


def test_a_silent_host_neither_hides_nor_repeats_a_restart() -> None:
    again = worker(restarts=1, last_exit_code=3)
    unknown = worker(state="unknown")
    assert len(said(WORKER, again, unknown, again)) == 1
    assert len(said(WORKER, unknown, again)) == 1


def test_success_and_stop_of_a_task_are_not_reported_as_failures() -> None:
    assert said(WORKER, worker(state="succeeded", exit_code=0)) == []
    assert said(WORKER, worker(state="stopped", signal="SIGTERM")) == []


def test_only_new_failures_of_the_selected_tasks_are_reported() -> None:
    found: list[str] = []
    FailureReporter(found.append, before=job(FAILED)).note(job(FAILED))
    FailureReporter(found.append, tasks=[("ps", 0)]).note(job(FAILED))
    assert found == []


def test_failures_are_reported_again_in_the_next_attempt() -> None:
    found: list[str] = []
    reporter = FailureReporter(found.append)
    reporter.note(job(FAILED))
    reporter.begin(2)
    reporter.note(job(FAILED))
    assert found == [found[0], "~~ attempt 2 has begun", found[0]]
