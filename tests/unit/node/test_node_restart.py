"""One task anew in place, and the next attempt of what is kept of the last one."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from node_tree import STAY, Talk, Tree, digest, free_port, make_plan, make_task, sh, tarball, wait_until

CODE = tarball({"train.py": "print('hi')\n"})
ENDED = "run/tfctl/ended/digits"
NEXT_RUN = "89abcdef"
#: A value that looks like lines of tfctl's own.
NASTY = 'WORDS="a\nTFCTL_RUN=\nTFCTL_ATTEMPT=\\"1\\"\n"\n'
OWN = 'TFCTL_ATTEMPT="1"\nTFCTL_RUN="0123abcd"\n'
TOLD = sh('echo "$TFCTL_ATTEMPT $TFCTL_RUN"; echo "$WORDS"; exec sleep 600')


def one(tree: Tree, *task: object) -> Any:
    return tree.ask("restart", job="digits", attempt=1, tasks=[list(task)])


def again(tree: Tree, code: bytes | None = None, attempt: int = 1) -> Talk:
    """A start that has said hello, of the attempt after that one."""
    return tree.talk("start", job="digits", code=digest(code), ports=[2222, 2224], resolve=[], again=attempt)


def value(attempt: int = 2, **record: Any) -> dict[str, Any]:
    """What is sent in place of a plan."""
    plan = make_plan(attempt=attempt, run=NEXT_RUN)
    same = {"job": "digits", "attempt": attempt, "run": NEXT_RUN}
    return {**same, "record": {**plan["record"], "output": plan["output"], **record}}


def runs(talk: Talk, told: dict[str, Any]) -> None:
    talk.ask("again", "reserved", told)
    talk.ask("go", "started")
    talk.ask("keep", "kept")
    assert talk.process.wait(10) == 0


def test_a_task_that_runs_begins_anew_and_nothing_else_does(tree: Tree) -> None:
    tree.run(make_plan(make_task("worker", 0), make_task("worker", 1)))
    before = tree.states()
    assert one(tree, "worker", 1) == {"attempt": 1, "tasks": [["worker", 1]]}
    after = tree.states()
    assert after["worker/0"] == before["worker/0"]
    assert after["worker/1"] == {**before["worker/1"], "restarts": 1}
    tree.ask("stop", job="digits", attempt=1, tasks=None)
    stopped = tree.states()["worker/1"]
    assert (stopped["state"], stopped["signal"], stopped["restarts"]) == ("stopped", "SIGTERM", 1)


def test_a_task_that_has_failed_for_good_has_its_own_restarts_again(tree: Tree) -> None:
    task = make_task(command=sh("test -e again && exec sleep 600; exit 7"))
    tree.run(make_plan(task))
    tree.wait_for("worker/0", "failed")
    (tree / "var/lib/tfctl/jobs/digits/1/code/again").touch()
    one(tree, "worker", 0)
    state = tree.states()["worker/0"]
    assert (state["state"], state["exit_code"], state["restarts"]) == ("running", None, 1)
    calls = [call.split()[0] for call in tree.calls()]
    assert calls.index("reset-failed") < calls.index("restart"), "it would count as one of its own"


def test_between_its_end_and_its_start_a_task_is_starting(tree: Tree) -> None:
    """A watcher that looked then would take it for failed."""
    tree.run(make_plan())
    hold = tree / "manager/hold-restart"
    hold.touch()
    with tree.talk("restart", job="digits", attempt=1, tasks=[["worker", 0]]) as talk:
        wait_until(lambda: tree.alive() == [])
        assert tree.states()["worker/0"]["state"] == "starting"
        hold.unlink()
        talk.expect("restarted")
    assert tree.states()["worker/0"]["state"] == "running"


def test_a_restart_goes_on_when_its_client_dies(tree: Tree) -> None:
    tree.run(make_plan())
    with tree.talk("restart", job="digits", attempt=1, tasks=[["worker", 0]]) as talk:
        wait_until(lambda: any(call.startswith("restart ") for call in tree.calls()))
        talk.hang_up()
    assert "tfctl-digits-worker-0.service" in tree.calls()[-1]


def test_what_cannot_be_restarted_says_why(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task("ps", 0), make_task("worker", 0, sh("exit 1"), ports=[port])))
    tree.wait_for("worker/0", "failed")
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        error = one(tree, "worker", 0)
        assert (error["exit"], f"port {port}" in error["message"]) == (5, True)
    assert one(tree, "worker", 7)["exit"] == 7
    tree.ask("stop", job="digits", attempt=1, tasks=[["ps", 0]])
    error = one(tree, "ps", 0)
    assert (error["exit"], error["remedy"]) == (
        7, "tfctl restart digits begins its next attempt; after a stop or a reboot, tfctl start JOBFILE does",
    )  # fmt: skip
    (tree / "var/lib/tfctl/home").rmdir()
    error = one(tree, "worker", 0)
    assert "worker/0 could not be started" in error["message"]
    assert "a directory that it may write to is missing" in error["message"]


@pytest.mark.parametrize("how", ["all stopped", "stopped in part", "running"])
def test_the_next_attempt_is_told_what_the_last_one_was(tree: Tree, how: str) -> None:
    tasks = [make_task("worker", index, TOLD, env=OWN + NASTY) for index in (0, 1)]
    tree.run(make_plan(*tasks, code=CODE), CODE)
    if how != "running":
        part = [["worker", 0], ["worker", 1]][: 2 if how == "all stopped" else 1]
        tree.ask("stop", job="digits", attempt=1, tasks=part)
        assert (tree / f"{ENDED}/tfctl-digits-worker-0.env").stat().st_mode & 0o777 == 0o600
        assert (tree / ENDED).stat().st_mode & 0o777 == 0o700
    with again(tree, CODE) as talk:
        hello = talk.expect("hello")
        assert (hello["again"], hello["highest"]) == ([["worker", 0], ["worker", 1]], 1)
        tree.ask("stop", job="digits", attempt=1, tasks=None)
        told = value(tasks=[{"role": "worker", "index": index, "host": "node1"} for index in (0, 1)])
        runs(talk, told)
    assert {one["state"] for one in tree.states().values()} == {"running"}
    env = (tree / "run/tfctl/env/tfctl-digits-worker-0.env").read_text()
    assert env == tasks[0]["env"].replace('TFCTL_ATTEMPT="1"\nT', 'TFCTL_ATTEMPT="2"\nT').replace("0123abcd", NEXT_RUN)
    assert (tree / "var/lib/tfctl/jobs/digits/2/code/train.py").exists()
    assert not (tree / ENDED).exists(), "what runs now has its own"


def test_what_was_stopped_is_not_kept(tree: Tree) -> None:
    tree.run(make_plan())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    with again(tree, attempt=9) as talk:
        assert talk.expect("hello")["again"] == []
    tree.ask("stop", job="digits", attempt=1, tasks=None)
    assert not (tree / ENDED).parent.exists()
    with again(tree) as talk:
        assert talk.expect("hello")["again"] == []
    with tree.start() as talk:
        assert talk.ask("again", "error", value())["exit"] == 2


def test_what_one_asks_of_the_next_attempt_is_checked(tree: Tree) -> None:
    tree.run(make_plan())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    for wrong in ({**value(), "run": "../../etc"}, {**value(), "job": "other"}, value(output="/etc"), {}):
        with again(tree) as talk:
            talk.expect("hello")
            talk.tell("again", wrong)
            kind, error = talk.hear() or ("", {})
            assert (kind in ("refused", "error"), error["exit"] in (2, 8)) == (True, True), wrong
    assert tree.alive() == []


def test_of_many_jobs_the_last_are_kept(tree: Tree) -> None:
    old = [tree / f"run/tfctl/ended/old-{number}" for number in range(50)]
    for folder in old:
        folder.mkdir(parents=True)
    tree.run(make_plan(make_task(command=STAY)))
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    assert sum(folder.exists() for folder in old) == 49
    assert (tree / ENDED).is_dir()
