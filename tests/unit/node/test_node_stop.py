"""`stop` ends every task, checks that it has ended and records the stop; it can be repeated. Also `show`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import pytest
from node_tree import RUN, STAY, Session, Tree, free_port, make_plan, make_task, reserve, sh, wait_until

from tfctl.node import names

DEAF = sh("trap '' TERM; echo deaf; while :; do sleep 0.1; done")


class StopArguments(TypedDict):
    """The arguments of `stop`: `None` stands for the highest attempt, and for all tasks."""

    job: str
    attempt: int | None
    tasks: list[tuple[str, int]] | None


STOP: StopArguments = {"job": "digits", "attempt": None, "tasks": None}


@contextmanager
def another_start(tree: Tree) -> Iterator[Callable[[], None]]:
    """Hold the lock, as a start does that copies its code. Yield a function that releases it."""
    path = tree / "run/tfctl/lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.close


def guarded(plan: dict[str, Any], origin: str = RUN) -> dict[str, Any]:
    """Give the job of a plan a guard, which ends at once on these hosts. ``origin``: the run of its first attempt."""
    guard = {"head": "node1", "address": "10.9.0.1", "port": 0, "origin": origin, "lease": 600, "max_attempts": 2}
    return {**plan, "record": {**plan["record"], "guard": guard}, "guard": {"key": 64 * "0"}}


def test_stop_ends_the_tasks_and_is_recorded(tree: Tree) -> None:
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


def test_stop_now_does_not_wait_for_the_grace_period(tree: Tree) -> None:
    task = make_task("worker", 0, DEAF)
    tree.run(make_plan({**task, "unit": task["unit"].replace("500ms", "315360000s")}))
    with tree.session("stop", **STOP) as patient:
        wait_until(lambda: any(call.startswith("stop ") for call in tree.calls()))
        began = time.monotonic()
        assert tree.ask("stop", **STOP, now=True) == {"attempt": 1, "tasks": [["worker", 0]], "left": []}
        assert 2 <= time.monotonic() - began < 15
        assert patient.expect("stopped")["left"] == []
    [task] = tree.states().values()
    assert (task["state"], task["signal"]) == ("stopped", "SIGKILL")
    assert tree.alive() == []


@pytest.mark.parametrize("begun", [False, True])
def test_stop_leaves_the_files_of_a_start_that_began_meanwhile(begun: bool, tree: Tree) -> None:
    """Another start may use the name of a unit as soon as its task has ended."""
    tree.run(make_plan(make_task(command=DEAF)))
    before = len(tree.calls())

    def looks() -> bool:
        calls = [call.split()[0] for call in tree.calls()[before:]]
        return "stop" in calls and "show" in calls[calls.index("stop") :]

    with tree.session("stop", **STOP) as session:
        wait_until(looks)
        session.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: tree.alive() == [])
        with tree.start() as other:
            reserve(other, make_plan(make_task(attempt=2, run="89abcdef"), attempt=2, run="89abcdef"))
            if not begun:
                session.process.send_signal(signal.SIGCONT)
                assert session.expect("stopped")["left"] == []
            other.ask("go", "started")
            other.ask("keep", "kept")
            if begun:
                session.process.send_signal(signal.SIGCONT)
                assert session.expect("stopped")["left"] == []
    assert tree.states()["worker/0"]["state"] == "running"


@contextmanager
def starting_meanwhile(tree: Tree, origin: str) -> Iterator[Session]:
    """Begin a stop of attempt 1, which then ends by itself, and start attempt 2. Yield the session of the stop."""
    tree.run(guarded(make_plan(make_task(command=sh("until test -e ended; do sleep 0.1; done")))))
    with tree.session("stop", **STOP, hold=True) as session:
        session.expect("marked")
        (tree / "var/lib/tfctl/jobs/digits/1/code/ended").touch()
        wait_until(lambda: not [unit for unit in tree.alive() if unit.startswith("tfctl-")])
        with tree.start() as other:
            reserve(other, guarded(make_plan(make_task(attempt=2, run="89abcdef"), attempt=2, run="89abcdef"), origin))
            yield session
            other.ask("go", "started")
            other.ask("keep", "kept")


def test_stop_leaves_the_guard_of_a_start_that_began_meanwhile(tree: Tree) -> None:
    with starting_meanwhile(tree, origin="89abcdef") as session:
        assert session.ask("go", "stopped", {"everywhere": True})["left"] == []
    assert (tree / names.UNITS / names.guard_service("digits")).exists()


def test_stop_says_that_the_guard_is_starting_the_next_attempt(tree: Tree) -> None:
    with starting_meanwhile(tree, origin=RUN) as session:
        error = session.ask("go", "error", {"everywhere": True})
        assert (error["exit"], error["retry"], error["remedy"]) == (5, True, "try again in a moment")
        assert re.match("the guard of .*digits is starting attempt 2 on ", error["message"])
    assert (tree / names.UNITS / names.guard_service("digits")).exists()


def test_stop_ends_the_tasks_while_another_start_copies_its_code(tree: Tree) -> None:
    tree.run(make_plan())
    with another_start(tree) as release, tree.session("stop", **STOP, hold=True) as session:
        session.expect("marked")
        session.tell("go")
        wait_until(lambda: tree.alive() == [])
        release()
        assert session.expect("stopped") == {"attempt": 1, "tasks": [["worker", 0]], "left": []}
    assert not [name for name in tree.files() if name.startswith(("run/systemd", "run/tfctl/env"))]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("verb", "fields", "answer"),
    [
        ("stop", {"run": "0123abcd", "tasks": [["worker", 0]], "give_up": True}, "stopped"),
        ("restart", {"attempt": 1, "tasks": [["worker", 0]]}, "restarted"),
        ("leave", {}, "left"),
    ],
)
def test_requests_wait_with_heartbeats_while_another_start_copies_its_code(
    verb: str, fields: dict[str, Any], answer: str, tree: Tree
) -> None:
    tree.run(make_plan())
    with another_start(tree) as release, tree.session(verb, job="digits", **fields) as session:
        assert session.hear(15.0) == ("beat", {})
        release()
        session.expect(answer)


@pytest.mark.extended
def test_a_restart_whose_client_has_left_before_it_could_begin_does_nothing(tree: Tree) -> None:
    tree.run(make_plan())
    asked: dict[str, Any] = {"job": "digits", "attempt": 1, "tasks": [["worker", 0]]}
    with another_start(tree) as release, tree.session("restart", **asked) as session:
        assert session.hear(15.0) == ("beat", {})
        session.process.stdin.close()
        release()
        assert session.process.wait(10) == 1
    assert not [call for call in tree.calls() if call.startswith("restart")]


def test_stop_of_some_tasks_does_not_mark_the_job(tree: Tree) -> None:
    tree.run(make_plan(make_task("ps", 0), make_task("worker", 0)))
    told = tree.ask("stop", job="digits", attempt=1, tasks=[["ps", 0], ["ps", 7]])
    assert told == {"attempt": 1, "tasks": [["ps", 0]], "left": []}
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert shown["stopped"] is None
    assert [one["state"] for one in shown["tasks"]] == ["stopped", "running"]


def test_a_task_that_a_guard_has_stopped_has_the_reason(tree: Tree) -> None:
    tree.run(make_plan(make_task("ps", 0), make_task("worker", 0)))
    tree.ask("stop", job="digits", attempt=1, tasks=[["ps", 0]], reason="worker/0 has succeeded")
    assert tree.states()["ps/0"]["reason"] == "worker/0 has succeeded"
    tree.ask("stop", **STOP)
    assert tree.states()["ps/0"]["reason"] == "worker/0 has succeeded", "a later stop has not ended it"
    assert "reason" not in tree.states()["worker/0"]


@pytest.mark.parametrize(
    ("guard", "noted", "marked"),
    [
        ("active", {"retry_at": 1.8e9}, True),
        ("active", None, True),  # only the head knows that an attempt is about to begin, or that others still run
        ("active", {"over": True}, False),
        ("failed", None, False),
    ],
    ids=["head", "other-host", "over", "died"],
)
def test_stop_marks_a_job_whose_tasks_here_have_ended_if_its_guard_has_more_to_do(
    guard: str, noted: dict[str, object] | None, marked: bool, tree: Tree
) -> None:
    tree.run(guarded(make_plan(make_task(command=sh("exit 3")))))
    tree.wait_for("worker/0", "failed")
    (tree / f"manager/{names.guard_service('digits')}.state").write_text(f"ActiveState={guard}\n")
    if noted:
        (tree / names.guard_dir("digits", 1) / "report.json").write_text(json.dumps(noted))
    for _ in range(2):
        assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [], "left": []}
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert (shown["stopped"] is not None) == marked
    stops = [event["role"] for event in tree.ask("events", job="digits")["events"] if event["event"] == "stop"]
    assert stops == [None] * marked


def test_stop_keeps_how_a_task_had_ended(tree: Tree) -> None:
    tree.run(make_plan(make_task("chief", 0, sh("exit 0")), make_task("worker", 0, sh("exit 9"))))
    tree.wait_for("chief/0", "succeeded")
    tree.wait_for("worker/0", "failed")
    before = tree.states()
    assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [], "left": []}
    assert tree.states() == before
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert shown["stopped"] is None


def test_stop_keeps_a_lost_task_lost(tree: Tree) -> None:
    tree.run(make_plan(make_task("chief", 0, sh("exit 0")), make_task("worker", 0)))
    tree.wait_for("chief/0", "succeeded")
    (tree / "var/lib/tfctl/jobs/digits/1/chief-0/ends.jsonl").unlink()
    assert tree.states()["chief/0"]["state"] == "lost"
    tree.ask("stop", **STOP)
    assert {task: one["state"] for task, one in tree.states().items()} == {"chief/0": "lost", "worker/0": "stopped"}


def test_stop_with_hold_marks_the_tasks_and_ends_them_after_go(tree: Tree) -> None:
    """A task that fails because another host's task was ended meanwhile counts as stopped."""
    tree.run(make_plan(make_task("worker", 0, sh("until test -e ended; do sleep 0.1; done; exit 3"))))
    with tree.session("stop", **STOP, hold=True) as session:
        assert session.expect("marked") == {"attempt": 1, "hosts": ["node1"]}
        assert tree.alive() == ["tfctl-digits-worker-0.service"]
        (tree / "var/lib/tfctl/jobs/digits/1/code/ended").touch()
        wait_until(lambda: tree.alive() == [])
        assert tree.states()["worker/0"]["state"] == "stopped"
        assert session.ask("go", "stopped")["left"] == []


@pytest.mark.parametrize(("position", "named"), [(0, True), (2, True), (3, False)])
def test_stop_with_hold_sends_the_names_of_all_hosts_from_the_first_ones_only(
    tree: Tree, position: int, named: bool
) -> None:
    """Sent by each of 1,000 hosts, they would be 10 MB."""
    names_of_hosts = [f"host{number}" for number in range(5)]
    here = make_task("worker", position)
    plan = make_plan(*[here if one == position else make_task("worker", one) for one in range(5)])
    for task, host in zip(plan["record"]["tasks"], names_of_hosts, strict=True):
        task["host"] = host
    tree.run({**plan, "tasks": [here]})
    with tree.session("stop", **STOP, hold=True) as session:
        assert session.expect("marked") == {"attempt": 1, "hosts": names_of_hosts if named else []}


def test_stop_with_hold_is_completed_when_its_client_dies_before_go(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    with tree.session("stop", **STOP, hold=True) as session:
        session.expect("marked")
        session.hang_up()
    assert tree.alive() == []
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_stop_leaves_another_run_of_the_job_alone(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    assert tree.ask("stop", **STOP, run="89abcdef") == {"attempt": 0, "tasks": [], "left": []}
    assert tree.states()["worker/0"]["state"] == "running"
    assert tree.ask("stop", **STOP, run="0123abcd")["tasks"] == [["worker", 0]]


def test_stop_of_a_run_that_is_not_here_deletes_no_files_of_the_job(tree: Tree) -> None:
    kept = tree / names.ended_dir("digits") / "worker-0.env"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert tree.ask("stop", **STOP, run="89abcdef") == {"attempt": 0, "tasks": [], "left": []}
    assert kept.exists()


def test_stop_can_be_repeated_after_it_was_killed(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=DEAF)))
    with tree.session("stop", **STOP) as session:
        wait_until(lambda: any(call.startswith("stop ") for call in tree.calls()))
        session.process.send_signal(signal.SIGKILL)
        session.process.wait(10)
    assert tree.ask("stop", **STOP) == {"attempt": 1, "tasks": [["worker", 0]], "left": []}
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_stop_is_completed_when_its_client_dies(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=DEAF)))
    with tree.session("stop", **STOP) as session:
        wait_until(lambda: any(call.startswith("stop ") for call in tree.calls()))
        session.hang_up()
    assert tree.alive() == []
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_stop_cancels_a_pending_restart(tree: Tree) -> None:
    task = make_task(command=sh("exit 1"), service="Restart=on-failure\nRestartSec=60s\n")
    tree.run(make_plan(task))
    tree.wait_for("worker/0", "starting")
    tree.ask("stop", **STOP)
    assert tree.states()["worker/0"]["state"] == "stopped"
    assert tree.states()["worker/0"]["exit_code"] == 1


@pytest.mark.parametrize("gone", ["run/systemd/system/tfctl-digits-worker-0.service", "var/lib/tfctl/jobs/digits"])
def test_stop_ends_live_tasks_whose_files_were_removed(tree: Tree, gone: str) -> None:
    tree.run(make_plan(make_task()))
    shutil.rmtree(tree / gone) if (tree / gone).is_dir() else (tree / gone).unlink()
    assert tree.ask("stop", **STOP)["tasks"] == [["worker", 0]]
    assert tree.alive() == []
    assert not [name for name in tree.files() if name.startswith(("run/systemd", "run/tfctl/env"))]


def test_stop_of_one_attempt_leaves_the_others(tree: Tree) -> None:
    """A start that undoes its own attempt on a silent host must not stop the attempt of another start."""
    tree.run(make_plan(make_task()))
    assert tree.ask("stop", job="digits", attempt=2, tasks=None)["tasks"] == []
    assert tree.alive() == ["tfctl-digits-worker-0.service"]


def test_stop_ends_the_tasks_when_nothing_can_be_recorded(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    marks = tree / "var/lib/tfctl/jobs/digits/1/stopped"
    marks.rmdir()
    marks.symlink_to("/dev/full")
    told = tree.ask("stop", **STOP)
    assert told["tasks"] == [["worker", 0]]
    assert told["left"][0].startswith("cannot record on ")
    assert tree.alive() == []


def test_stop_of_an_unknown_job_stops_nothing(tree: Tree) -> None:
    assert tree.ask("stop", **STOP) == {"attempt": 0, "tasks": [], "left": []}
    assert tree.ask("show", job="digits", attempt=None, follow=False)["jobs"] == []


@pytest.mark.parametrize(
    ("user", "remedy"), [("ops", "end that start first, by Ctrl-C"), (names.GUARD_USER, "try again in a moment")]
)
def test_stop_is_refused_while_the_job_is_being_started(
    user: str, remedy: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", user)
    with tree.start() as session:
        reserve(session, make_plan())
        error = tree.ask("stop", **STOP)
        assert (error["exit"], error["retry"], error["remedy"]) == (5, True, remedy)
        session.ask("go", "started")


def test_stop_names_a_port_that_is_still_held(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port])))
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        [left] = tree.ask("stop", **STOP)["left"]
        assert left.startswith(f"port {port} of ")
        assert f"held by pid {os.getpid()} (" in left


def test_show_counts_restarts(tree: Tree) -> None:
    task = make_task(command=sh("exit 1"), service="Restart=on-failure\nRestartSec=10ms\n")
    task["unit"] = task["unit"].replace("StartLimitBurst=4", "StartLimitBurst=3")
    tree.run(make_plan(task))
    done = tree.wait_for("worker/0", "failed")
    assert (done["restarts"], done["exit_code"]) == (2, 1)


@pytest.mark.parametrize(("code", "state", "restarts"), [(0, "succeeded", 0), (3, "failed", 3)])
def test_a_task_whose_end_cannot_be_written_is_restarted_only_if_it_failed(
    tree: Tree, code: int, state: str, restarts: int
) -> None:
    """As on a full disk. systemd then takes the run for failed, because ExecStopPost fails."""
    ends = "../worker-0/ends.jsonl"
    command = sh(f"rm -f {ends}; mkdir -p {ends}; exit {code}")
    service = "Restart=on-failure\nRestartSec=10ms\nRestartPreventExitStatus=0\n"
    plan = make_plan(make_task(command=command, service=service))
    plan["record"]["policy"]["max_restarts"] = 3
    tree.run(plan)
    done = tree.wait_for("worker/0", state)
    assert (done["exit_code"], done["restarts"]) == (code, restarts)


@pytest.mark.parametrize("name", ["HUP", "INT", "TERM", "PIPE"])
def test_a_task_that_a_signal_from_outside_ends_is_restarted(tree: Tree, name: str) -> None:
    """For example by an administrator or earlyoom. By default, systemd counts these signals as success."""
    force = "RestartForceExitStatus=42 SIGHUP SIGINT SIGTERM SIGPIPE\n"
    service = f"Restart=on-failure\nRestartSec=10ms\n{force}"
    task = make_task(command=sh(f"test -e again && exec sleep 600; echo > again; kill -{name} $$"), service=service)
    tree.run(make_plan(task))
    wait_until(lambda: tree.states()["worker/0"]["restarts"] == 1 and bool(tree.alive()))
    assert tree.wait_for("worker/0", "running")["restarts"] == 1
    assert tree.ask("stop", **STOP)["tasks"] == [["worker", 0]]
    assert tree.states()["worker/0"]["state"] == "stopped"


def test_show_with_follow_ends_when_its_client_disconnects(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    with tree.session("show", job="digits", attempt=None, follow=True) as session:
        [job] = session.expect("show")["jobs"]
        assert job["tasks"][0]["state"] == "running"
        tree.ask("stop", **STOP)
        while job["tasks"][0]["state"] != "stopped":
            [job] = session.expect("show")["jobs"]
        assert session.hang_up() == 0


def test_show_without_a_job_lists_every_job(tree: Tree) -> None:
    tree.run(make_plan(make_task(job="a"), job="a"))
    tree.run(make_plan(make_task(job="b", command=sh("exit 0")), job="b"))
    shown = tree.ask("show", job=None, attempt=None, follow=False)
    assert [(one["job"], one["attempt"], one["run"]) for one in shown["jobs"]] == [
        ("a", 1, "0123abcd"),
        ("b", 1, "0123abcd"),
    ]


def test_show_reports_no_restarts_when_a_directory_replaces_the_end_lines(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    ends = tree / "var/lib/tfctl/jobs/digits/1/worker-0/ends.jsonl"
    ends.unlink()
    ends.mkdir()
    shown = tree.states()["worker/0"]
    assert (shown["state"], shown["restarts"]) == ("running", 0)


def test_a_link_in_the_place_of_end_lines_is_not_followed(tree: Tree) -> None:
    lie = tree / "lie.jsonl"
    lie.write_text('{"result":"success","code":"exited","status":"0","invocation":"a","time":1.0}\n')
    tree.run(make_plan(make_task(command=STAY)))
    ends = tree / "var/lib/tfctl/jobs/digits/1/worker-0/ends.jsonl"
    ends.unlink()
    ends.symlink_to(lie)
    assert tree.states()["worker/0"]["restarts"] == 0
    ends.unlink()
    os.mkfifo(ends)
    assert tree.states()["worker/0"]["restarts"] == 0
