"""`stop`: everything ends, is proved to have ended, and stays told; again and again. And `show` beside it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time

import pytest
from node_tree import STAY, Tree, free_port, make_plan, make_task, reserve, sh, wait_until

DEAF = sh("trap '' TERM; echo deaf; while :; do sleep 0.1; done")
STOP = {"job": "digits", "attempt": None, "tasks": None}


def test_a_job_is_stopped_and_stays_told(tree: Tree) -> None:
    tree.run(make_plan(make_task("ps", 0), make_task("worker", 0), make_task("worker", 1, DEAF)))
    before = tree.states()
    assert {one["state"] for one in before.values()} == {"running"}
    told = tree.ask("stop", **STOP)
    assert told == {"attempt": 1, "tasks": [["ps", 0], ["worker", 0], ["worker", 1]], "left": []}
    after = tree.states()
    assert {one["state"] for one in after.values()} == {"stopped"}
    assert after["worker/0"]["signal"] == "SIGTERM"
    assert after["worker/1"]["signal"] == "SIGKILL"
    for task, one in after.items():
        assert before[task]["started"] == one["started"] < one["finished"]
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert abs(shown["stopped"] - time.time()) < 30
    assert tree.alive() == []
    assert not [name for name in tree.files() if name.startswith(("run/systemd", "run/tfctl/env"))]
    assert len([call for call in tree.calls() if call.startswith("stop tfctl-digits-")]) == 1
    assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [], "left": []}
    assert tree.states() == after


@pytest.mark.parametrize("begun", [False, True])
def test_a_start_that_comes_in_between_keeps_what_is_its(begun: bool, tree: Tree) -> None:
    """From the end of a task until its unit is forgotten its name is free, and another start may take it."""
    tree.run(make_plan(make_task(command=DEAF)))
    before = len(tree.calls())

    def looks() -> bool:
        calls = [call.split()[0] for call in tree.calls()[before:]]
        return "stop" in calls and "show" in calls[calls.index("stop") :]

    with tree.talk("stop", **STOP) as talk:
        wait_until(looks)
        talk.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: tree.alive() == [])
        with tree.start() as other:
            reserve(other, make_plan(make_task(attempt=2, run="89abcdef"), attempt=2, run="89abcdef"))
            if not begun:
                talk.process.send_signal(signal.SIGCONT)
                assert talk.expect("stopped")["left"] == []
            other.ask("go", "started")
            other.ask("keep", "kept")
            if begun:
                talk.process.send_signal(signal.SIGCONT)
                assert talk.expect("stopped")["left"] == []
    assert tree.states()["worker/0"]["state"] == "running"


def test_a_part_is_stopped_without_stopping_the_job(tree: Tree) -> None:
    tree.run(make_plan(make_task("ps", 0), make_task("worker", 0)))
    told = tree.ask("stop", job="digits", attempt=1, tasks=[["ps", 0], ["ps", 7]])
    assert told == {"attempt": 1, "tasks": [["ps", 0]], "left": []}
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert shown["stopped"] is None
    assert [one["state"] for one in shown["tasks"]] == ["stopped", "running"]


def test_how_a_task_ended_by_itself_stays_true(tree: Tree) -> None:
    tree.run(make_plan(make_task("chief", 0, sh("exit 0")), make_task("worker", 0, sh("exit 9"))))
    tree.wait_for("chief/0", "succeeded")
    tree.wait_for("worker/0", "failed")
    before = tree.states()
    assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [], "left": []}
    assert tree.states() == before
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert shown["stopped"] is None


def test_a_stop_that_is_killed_can_be_repeated(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=DEAF)))
    with tree.talk("stop", **STOP) as talk:
        wait_until(lambda: any(call.startswith("stop ") for call in tree.calls()))
        talk.process.send_signal(signal.SIGKILL)
        talk.process.wait(10)
    assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [["worker", 0]], "left": []}
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_a_stop_goes_on_when_its_client_dies(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=DEAF)))
    with tree.talk("stop", **STOP) as talk:
        wait_until(lambda: any(call.startswith("stop ") for call in tree.calls()))
        talk.hang_up()
    assert tree.alive() == []
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_a_restart_that_waits_is_stopped_too(tree: Tree) -> None:
    task = make_task(command=sh("exit 1"), service="Restart=on-failure\nRestartSec=60s\n")
    tree.run(make_plan(task))
    tree.wait_for("worker/0", "starting")
    tree.ask("stop", **STOP)
    assert tree.states()["worker/0"]["state"] == "stopped"
    assert tree.states()["worker/0"]["exit_code"] == 1


@pytest.mark.parametrize("gone", ["run/systemd/system/tfctl-digits-worker-0.service", "var/lib/tfctl/jobs/digits"])
def test_what_lives_is_stopped_whatever_was_removed_of_it(tree: Tree, gone: str) -> None:
    tree.run(make_plan(make_task()))
    shutil.rmtree(tree / gone) if (tree / gone).is_dir() else (tree / gone).unlink()
    assert tree.ask("stop", **STOP)["tasks"] == [["worker", 0]]
    assert tree.alive() == []
    assert not [name for name in tree.files() if name.startswith(("run/systemd", "run/tfctl/env"))]


def test_one_attempt_alone_is_stopped_where_that_is_asked(tree: Tree) -> None:
    """As a start asks for its own, of which a host has said nothing: another's may run by now."""
    tree.run(make_plan(make_task()))
    assert tree.ask("stop", job="digits", attempt=2, tasks=None)["tasks"] == []
    assert tree.alive() == ["tfctl-digits-worker-0.service"]


def test_a_disk_on_which_nothing_can_be_noted_keeps_no_task_from_its_end(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    marks = tree / "var/lib/tfctl/jobs/digits/1/stopped"
    marks.rmdir()
    marks.symlink_to("/dev/full")
    told = tree.ask("stop", **STOP)
    assert told["tasks"] == [["worker", 0]]
    assert told["left"][0].startswith("that digits was stopped cannot be noted on ")
    assert tree.alive() == []


def test_a_job_that_is_not_known(tree: Tree) -> None:
    assert tree.ask("stop", **STOP) == {"attempt": 0, "tasks": [], "left": []}
    assert tree.ask("show", job="digits", attempt=None, follow=False)["jobs"] == []


def test_a_job_that_is_being_started(tree: Tree) -> None:
    with tree.start() as talk:
        reserve(talk, make_plan())
        error = tree.ask("stop", **STOP)
        assert (error["exit"], error["retry"]) == (5, True)
        talk.ask("go", "started")


def test_a_port_that_something_still_holds_is_named(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port])))
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        [left] = tree.ask("stop", **STOP)["left"]
        assert left.startswith(f"port {port} of ")
        assert f"held by pid {os.getpid()} (" in left


def test_restarts_are_counted(tree: Tree) -> None:
    task = make_task(command=sh("exit 1"), service="Restart=on-failure\nRestartSec=10ms\n")
    task["unit"] = task["unit"].replace("StartLimitBurst=4", "StartLimitBurst=3")
    tree.run(make_plan(task))
    done = tree.wait_for("worker/0", "failed")
    assert (done["restarts"], done["exit_code"]) == (2, 1)


def test_show_follows_until_its_client_goes(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    with tree.talk("show", job="digits", attempt=None, follow=True) as talk:
        [job] = talk.expect("show")["jobs"]
        assert job["tasks"][0]["state"] == "running"
        tree.ask("stop", **STOP)
        while job["tasks"][0]["state"] != "stopped":
            [job] = talk.expect("show")["jobs"]
        assert talk.hang_up() == 0


def test_show_of_every_job(tree: Tree) -> None:
    tree.run(make_plan(make_task(job="a"), job="a"))
    tree.run(make_plan(make_task(job="b", command=sh("exit 0")), job="b"))
    shown = tree.ask("show", job=None, attempt=None, follow=False)
    assert [(one["job"], one["attempt"], one["run"]) for one in shown["jobs"]] == [
        ("a", 1, "0123abcd"),
        ("b", 1, "0123abcd"),
    ]
    assert shown["host"] == os.uname().nodename


def test_a_link_in_the_place_of_end_lines_is_not_followed(tree: Tree) -> None:
    lie = tree / "lie.jsonl"
    lie.write_text('{"result":"success","code":"exited","status":"0","invocation":"a","time":1.0}\n')
    tree.run(make_plan(make_task(command=STAY)))
    ends = tree / "var/lib/tfctl/jobs/digits/1/worker-0/ends.jsonl"
    ends.symlink_to(lie)
    assert tree.states()["worker/0"]["restarts"] == 0
    ends.unlink()
    os.mkfifo(ends)
    assert tree.states()["worker/0"]["restarts"] == 0
