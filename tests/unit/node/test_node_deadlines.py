"""The deadline of a task: it counts from the task's start, over all restarts, and the task has failed then."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from fork_server import fork_server
from node_tree import HERE, RUN, STAY, Tree, make_plan, make_task, reserve, sh, wait_until

STOP = {"job": "digits", "attempt": None, "tasks": None}
TIMER = "tfctldeadline-digits-worker-0.timer"
MARKS = "var/lib/tfctl/jobs/digits/1/stopped"
AGAIN = "Restart=on-failure\nRestartSec=300ms\nRestartForceExitStatus=SIGTERM\nRestartPreventExitStatus=0\n"
DEAF = sh("trap '' TERM; echo begun; while :; do sleep 0.05; done")


def run(tree: Tree, command: list[str], deadline: int = 1) -> None:
    """Start a task that systemd restarts again and again."""
    task = make_task(command=command, service=AGAIN, deadline=deadline)
    task["unit"] = task["unit"].replace("StartLimitBurst=4", "StartLimitBurst=1000")
    tree.run(make_plan(task))


def at_deadline(tree: Tree, job: str = "digits", run: str = RUN, index: int = 0) -> subprocess.CompletedProcess[str]:
    """Run what systemd runs at the deadline of a worker."""
    return node(tree, "deadline", job, run, "worker", str(index))


def node(tree: Tree, *words: str) -> subprocess.CompletedProcess[str]:
    command = fork_server().command(str(HERE / "fake_node.py"), str(tree.path), "nobody", "30", *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def deadline_files(tree: Tree) -> list[str]:
    return [Path(file).name for file in tree.files() if "tfctldeadline" in file]


def test_a_task_that_fails_again_and_again_has_failed_at_its_deadline(tree: Tree) -> None:
    began = time.monotonic()
    run(tree, sh("exit 3"))
    wait_until(lambda: tree.states()["worker/0"]["state"] == "failed")
    assert time.monotonic() - began >= 1
    done = tree.states()["worker/0"]
    assert (done["exit_code"], done["overdue"]) == (3, True)
    assert done["restarts"] >= 1
    assert tree.alive() == [TIMER]


@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        (STAY, None, "SIGTERM"),
        (sh("trap 'exit 0' TERM; while :; do sleep 0.05; done"), 0, None),
        (sh("trap 'exit 7' TERM; while :; do sleep 0.05; done"), 7, None),
        (DEAF, None, "SIGKILL"),
    ],
)
def test_a_task_fails_at_its_deadline_whatever_it_does_on_sigterm(
    command: list[str], code: int | None, signal: str | None, tree: Tree
) -> None:
    run(tree, command)
    done = tree.wait_for("worker/0", "failed")
    assert (done["exit_code"], done["signal"], done["overdue"], done["restarts"]) == (code, signal, True, 0)


def test_a_deadline_does_not_change_how_a_task_has_ended(tree: Tree) -> None:
    run(tree, sh("exit 0"), deadline=60)
    before = tree.wait_for("worker/0", "succeeded")
    assert at_deadline(tree).returncode == 0
    assert tree.states()["worker/0"] == before


def test_a_deadline_of_another_run_ends_nothing(tree: Tree) -> None:
    run(tree, STAY, deadline=60)
    for done in (at_deadline(tree, run="ffffffff"), at_deadline(tree, index=1), at_deadline(tree, "other")):
        assert done.returncode == 0
    assert tree.states()["worker/0"]["state"] == "running"
    assert list((tree / MARKS).iterdir()) == []


def test_a_deadline_that_cannot_be_noted_still_ends_the_task(tree: Tree) -> None:
    run(tree, STAY, deadline=60)
    shutil.rmtree(tree / MARKS)
    done = at_deadline(tree)
    assert (done.returncode, "No such file" in done.stderr) == (1, True)
    wait_until(lambda: tree.alive() == [TIMER])


def test_a_task_that_is_being_stopped_at_its_deadline_is_stopped(tree: Tree) -> None:
    run(tree, STAY, deadline=60)
    with tree.session("stop", job="digits", attempt=None, tasks=None, hold=True) as session:
        session.expect("marked")
        assert at_deadline(tree).returncode == 0
        assert tree.states()["worker/0"]["state"] == "running"
        session.ask("go", "stopped")
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_a_stop_after_the_deadline_does_not_change_that_the_task_failed(tree: Tree) -> None:
    run(tree, DEAF)
    wait_until(lambda: (tree / MARKS / "worker-0.deadline").exists())
    tree.ask("stop", **STOP)
    assert tree.states()["worker/0"]["state"] == "failed"


def test_a_restart_by_a_user_begins_the_deadline_again(tree: Tree) -> None:
    run(tree, STAY, deadline=60)
    at_deadline(tree)
    tree.wait_for("worker/0", "failed")
    tree.ask("restart", job="digits", attempt=1, tasks=[["worker", 0]])
    assert f"restart tfctl-digits-worker-0.service {TIMER}" in tree.calls()
    running = tree.states()["worker/0"]
    assert (running["state"], "overdue" in running) == ("running", False)
    at_deadline(tree)
    assert tree.wait_for("worker/0", "failed")["overdue"] is True


def test_only_the_named_task_of_a_stop_loses_its_deadline(tree: Tree) -> None:
    tree.run(make_plan(*(make_task("worker", index, deadline=60) for index in range(2))))
    tree.ask("stop", **{**STOP, "tasks": [["worker", 1]]})
    assert deadline_files(tree) == ["tfctldeadline-digits-worker-0.service", TIMER]
    tree.ask("stop", **STOP)
    assert deadline_files(tree) == []
    assert tree.alive() == []


def test_the_next_attempt_has_a_deadline_of_its_own(tree: Tree) -> None:
    run(tree, sh("exit 0"), deadline=60)
    tree.wait_for("worker/0", "succeeded")
    tree.run(make_plan(make_task(attempt=2, run="89abcdef", deadline=1), attempt=2, run="89abcdef"))
    assert tree.wait_for("worker/0", "failed")["overdue"] is True
    tree.run(make_plan(make_task(attempt=3, run="89abcde0"), attempt=3, run="89abcde0"))
    assert deadline_files(tree) == []


def test_a_start_that_is_undone_leaves_no_deadline(tree: Tree) -> None:
    before = tree.files()
    with tree.start() as session:
        reserve(session, make_plan(make_task(deadline=60)))
        session.ask("go", "started")
        assert tree.alive() == ["tfctl-digits-worker-0.service", TIMER]
        session.hang_up()
    assert [file for file in tree.files() if file not in before] == ["run/tfctl/lock"]
    assert tree.alive() == []


@pytest.mark.parametrize("words", [("deadline",), ("deadline", "digits", RUN, "worker"), ("show",)])
def test_other_arguments_of_the_node_part_are_rejected(words: tuple[str, ...], tree: Tree) -> None:
    done = node(tree, *words)
    assert done.returncode == 1
    assert done.stderr == "usage: tfctl-node [deadline JOB RUN ROLE INDEX]\n"
