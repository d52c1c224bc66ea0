"""Jobs that are over are kept as summaries, so that history costs little; a start does not look at them at all."""

from __future__ import annotations

import json
import time

import pytest
from node_tree import STAY, Tree, answers, make_plan, make_task, sh
from records import make_record

from tfctl.node import jobstore, names, summaries, wire


def _status(state: wire.TaskStateName, **more: object) -> wire.TaskStatus:
    blank = wire.TaskStatus("worker", 0, state, None, None, 1.0, 9.0, 0)
    return blank._replace(**more)  # type: ignore[arg-type]


def _shown(record: wire.Record, *tasks: wire.TaskStatus, stopped: float | None = None) -> wire.JobStatus:
    return wire.JobStatus(record.job, record.attempt, record.run, record, stopped, tasks, kept=True)


def test_a_summary_counts_the_deciders_that_have_succeeded() -> None:
    record = make_record(
        [("worker", 0, "a"), ("worker", 1, "b"), ("ps", 0, "a")], deciders=[("worker", 0), ("worker", 1)]
    )
    found = summaries.of(_shown(record, _status("succeeded"), _status("stopped", role="ps", finished=12.0)))
    assert found is not None
    assert (found.succeeded, found.deciders, found.finished, found.failed) == (1, 2, 9.0, None)
    assert (found.tasks, found.hosts) == (3, 2)


def test_a_summary_has_the_time_of_the_first_failure() -> None:
    record = make_record([("worker", 0, "a"), ("worker", 1, "a")], deciders=[("worker", 0), ("worker", 1)])
    late, early = _status("failed", exit_code=7), _status("failed", index=1, exit_code=3, finished=5.0)
    found = summaries.of(_shown(record, late, early))
    assert found is not None
    assert (found.failed, found.finished, found.succeeded) == (True, 5.0, 0)


def test_a_summary_names_the_head_if_its_guard_has_started_the_attempt() -> None:
    guard = wire.RecordedGuard("b", "10.0.0.2", 2300, "0123abcd", 600, 3, number=2)
    for number, head in (1, None), (2, "b"):
        record = make_record()._replace(guard=guard._replace(number=number))
        found = summaries.of(_shown(record, _status("succeeded")))
        assert found is not None and found.head == head


@pytest.mark.parametrize("state", ["running", "starting", "pending"])
def test_there_is_no_summary_while_a_task_is_alive(state: wire.TaskStateName) -> None:
    assert summaries.of(_shown(make_record(), _status(state))) is None


def test_there_is_no_summary_where_all_hosts_are_needed_to_judge() -> None:
    record = make_record([("worker", 0, "a"), ("ps", 0, "a"), ("ps", 1, "b")], vital=[[("ps", 0), ("ps", 1)]])
    assert summaries.of(_shown(record, _status("succeeded"), _status("failed", role="ps"))) is None
    noted = wire.GuardReport(reason="the lease has expired", finished=1.0)
    assert summaries.of(_shown(make_record(), _status("stopped"))._replace(guard=noted)) is None
    assert summaries.of(_shown(make_record(), _status("stopped"))._replace(guarded=True)) is None


def test_a_summary_says_that_a_vital_group_has_failed_which_is_entirely_on_its_host() -> None:
    tasks = [("worker", 0, "a"), ("worker", 1, "b"), ("ps", 0, "b"), ("ps", 1, "b")]
    record = make_record(tasks, vital=[[("worker", 1)], [("ps", 0), ("ps", 1)]])
    failed = _status("failed", index=1, exit_code=3, finished=5.0)
    servers = [_status("failed", role="ps", exit_code=4, finished=4.0), _status("stopped", role="ps", index=1)]
    found = summaries.of(_shown(record, failed, *servers))
    assert found is not None
    assert (found.failed, found.finished, found.succeeded) == (True, 5.0, 0)
    # One task of a group is not enough.
    found = summaries.of(_shown(record, _status("stopped", index=1), *servers, stopped=7.0))
    assert found is not None
    assert (found.failed, found.stopped) == (None, 7.0)


def test_summary_is_encoded_as_a_list_without_trailing_absent_values() -> None:
    found = wire.Summary("a", 1, "0123abcd", 1.5, "custom", 2, 1, 1, 1, finished=9.5)
    assert wire.encode(found) == ["a", 1, "0123abcd", 1.5, "custom", 2, 1, 1, 1, 9.5]
    assert wire.decode(wire.Summary, wire.encode(found)) == found
    with pytest.raises(wire.Malformed, match="a list of 9 values"):
        wire.decode(wire.Summary, ["a", 1])


def test_a_job_is_shown_as_a_summary_once_it_is_over_and_until_it_runs_again(tree: Tree) -> None:
    tree.run(make_plan(make_task("worker", 0, sh("exit 3"))))
    tree.wait_for("worker/0", "failed")
    tree.run(make_plan(make_task(job="other", run="11111111", command=STAY), job="other", run="11111111"))
    found = []
    for _ in range(2):
        shown = tree.ask("show", summaries=True)
        assert [one["job"] for one in shown["jobs"]] == ["other"]
        found = [wire.decode(wire.Summary, one) for one in shown["past"]]
        assert [(one.job, one.run, one.failed) for one in found] == [("digits", "0123abcd", True)]
    tree.ask("restart", job="digits", attempt=1, tasks=[["worker", 0]])
    tree.wait_for("worker/0", "failed")
    [again] = [wire.decode(wire.Summary, one) for one in tree.ask("show", summaries=True)["past"]]
    assert (again.finished or 0.0) > (found[0].finished or 0.0)
    assert [one["job"] for one in tree.ask("show", jobs=["digits"])["jobs"]] == ["digits"]


def test_a_start_asks_systemd_about_no_unit_of_an_ended_job(tree: Tree) -> None:
    tree.run(make_plan(make_task("worker", 0, sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    before = len(tree.calls())
    with tree.start("other"):
        pass
    assert not [call for call in tree.calls()[before:] if "tfctl-digits" in call]


@pytest.mark.extended
def test_a_thousand_past_jobs_of_a_hundred_tasks_take_little_traffic_and_cpu_time(tree: Tree) -> None:
    """The limit on the CPU time is generous, because the tests share the caches of their processors."""
    for number in range(1000):
        folder = tree / names.attempt_dir(f"train-{number:04}", 1)
        folder.mkdir(parents=True)
        done = wire.Summary(
            f"train-{number:04}", 1, "0123abcd", 1.7e9 + number + 0.123, "multi_worker_mirrored", 100, 4, 100, 25,
            1.7e9 + 60.523,
        )  # fmt: skip
        (folder / "job.json").write_text("{}")
        (folder / "summary.json").write_text(json.dumps([1, 0, wire.encode(done)]))
    began = time.process_time()
    [shown] = answers(tree, wire.ShowRequest(summaries=True))
    used = time.process_time() - began
    assert isinstance(shown, wire.Shown)
    assert len(shown.past) == 1000
    assert used < 0.25
    assert len(wire.line(shown)) < 100_000


def test_a_record_without_a_summary_gets_one_that_holds_until_a_user_acts(tree: Tree) -> None:
    record = make_record([("worker", 0, "a"), ("worker", 1, "a")], deciders=[("worker", 0), ("worker", 1)])
    folder = tree / names.attempt_dir("digits", 1)
    for name, status in (("worker-0", "0"), ("worker-1", "3")):
        (folder / name).mkdir(parents=True)
        end = {"result": "exit-code", "code": "exited", "status": status, "invocation": "ab", "time": 120.25}
        (folder / name / "ends.jsonl").write_text(json.dumps({**end, "result": "success"} if status == "0" else end))
    (folder / "job.json").write_text(json.dumps(wire.encode(record)))
    for _ in range(2):
        [shown] = answers(tree, wire.ShowRequest(summaries=True))
        assert isinstance(shown, wire.Shown)
        assert [(one.succeeded, one.failed, one.finished) for one in shown.past] == [(1, True, 120.25)]
        assert (folder / "summary.json").is_file()
    jobstore.append_action(folder / "notes.jsonl", wire.UserAction(130.0, "restart", "ops", (("worker", 1),)))
    (folder / "worker-1/ends.jsonl").write_text("")
    [shown] = answers(tree, wire.ShowRequest(summaries=True))
    assert isinstance(shown, wire.Shown)
    assert shown.past[0].finished is None, "the task is lost now"
    [shown] = answers(tree, wire.ShowRequest(jobs=("digits", "never")))
    assert isinstance(shown, wire.Shown)
    assert [(status.job, len(status.tasks)) for status in shown.jobs] == [("digits", 2)]
