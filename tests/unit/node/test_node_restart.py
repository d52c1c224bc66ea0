"""A restart of one task in place, and the next attempt from the restart files of the last one."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from node_tree import DROP_IN, STAY, Session, Tree, digest, free_port, make_plan, make_task, sh, tarball, wait_until

from tfctl.node import names

CODE = tarball({"train.py": "print('hi')\n"})
ENDED = "run/tfctl/ended/digits"
NEXT_RUN = "89abcdef"
#: A value that looks like lines of tfctl's own.
NASTY = 'WORDS="a\nTFCTL_RUN=\nTFCTL_ATTEMPT=\\"1\\"\n"\n'
OWN = 'TFCTL_ATTEMPT="1"\nTFCTL_RUN="0123abcd"\n'
TOLD = sh('echo "$TFCTL_ATTEMPT $TFCTL_RUN"; echo "$WORDS"; exec sleep 600')


def one(tree: Tree, *task: object) -> Any:
    return tree.ask("restart", job="digits", attempt=1, tasks=[list(task)])


def again(tree: Tree, code: bytes | None = None, attempt: int = 1) -> Session:
    """Open a session to start the attempt after this one, and wait for its hello."""
    return tree.session("start", job="digits", code=digest(code), ports=[2222, 2224], resolve=[], restart_of=attempt)


def rerun(*tasks: tuple[str, int], attempt: int = 2, **record: Any) -> dict[str, Any]:
    """Return the message that replaces a plan."""
    made = [make_task(*task) for task in tasks or [("worker", 0)]]
    return {"record": {**make_plan(*made, attempt=attempt, run=NEXT_RUN)["record"], **record}}


def runs(session: Session, told: dict[str, Any]) -> None:
    session.ask("rerun", "reserved", told)
    session.ask("go", "started")
    session.ask("keep", "kept")
    assert session.process.wait(10) == 0


def test_restart_restarts_only_the_named_task(tree: Tree) -> None:
    tree.run(make_plan(make_task("worker", 0), make_task("worker", 1)))
    before = tree.states()
    assert one(tree, "worker", 1) == {"attempt": 1, "tasks": [["worker", 1]]}
    after = tree.states()
    assert after["worker/0"] == before["worker/0"]
    assert after["worker/1"] == {**before["worker/1"], "restarts": 1, "last_signal": "SIGTERM"}
    tree.ask("stop", job="digits", attempt=1, tasks=None)
    stopped = tree.states()["worker/1"]
    assert (stopped["state"], stopped["signal"], stopped["restarts"]) == ("stopped", "SIGTERM", 1)


def test_restart_leaves_a_task_of_another_run_alone(tree: Tree) -> None:
    """The job was started again after the client had looked at it. A host that is new to it counts from 1."""
    tree.run(make_plan())
    error = tree.ask("restart", job="digits", attempt=1, tasks=[["worker", 0]], run="ffffffff")
    assert (error["exit"], error["message"]) == (5, "digits has been started again in the meantime")
    assert (tree.states()["worker/0"]["state"], tree.states()["worker/0"]["restarts"]) == ("running", 0)


@pytest.mark.parametrize("what", ["the drop-in is gone", "the drop-in is another", "the unit has another user"])
def test_restart_is_refused_when_what_restricts_the_task_has_changed(what: str, tree: Tree) -> None:
    tree.run(make_plan())
    before = tree.wait_for("worker/0", "running")
    drop_in, unit = tree / names.DROP_IN, tree / names.unit_file("digits", "worker", 0)
    if what == "the drop-in is gone":
        drop_in.unlink()
    else:
        changed = unit if "unit" in what else drop_in
        changed.write_text(changed.read_text().replace("User=tfctl", "User=root"))
    error = one(tree, "worker", 0)
    assert error["exit"] == 8
    assert ("10-tfctl.conf" in error["message"], "tfctl restart digits" in error["remedy"]) == (True, "unit" in what)
    assert not [call for call in tree.calls() if call.startswith(("restart ", "reset-failed tfctl-digits-worker"))]
    assert tree.states()["worker/0"] == before


def test_a_task_stays_restricted_by_its_unit_when_systemd_starts_it_again_without_the_drop_in(tree: Tree) -> None:
    """fake_systemctl reads the files again whenever a unit is started, as systemd does after a daemon-reload."""
    tree.run(make_plan())
    unit = (tree / names.unit_file("digits", "worker", 0)).read_text().splitlines()
    lines = [line for line in DROP_IN.read_text().splitlines() if line and not line.startswith(("#", "["))]
    assert len(lines) > 30 and [line for line in unit if line in lines] == lines


def test_restart_of_a_failed_task_resets_its_restart_count(tree: Tree) -> None:
    task = make_task(command=sh("test -e again && exec sleep 600; exit 7"))
    tree.run(make_plan(task))
    tree.wait_for("worker/0", "failed")
    (tree / "var/lib/tfctl/jobs/digits/1/code/again").touch()
    one(tree, "worker", 0)
    state = tree.states()["worker/0"]
    assert (state["state"], state["exit_code"], state["restarts"]) == ("running", None, 1)
    calls = [call.split()[0] for call in tree.calls()]
    assert calls.index("reset-failed") < calls.index("restart"), "systemd would count the restart as an automatic one"


def test_restarting_task_is_starting_until_it_runs_again(tree: Tree) -> None:
    """Otherwise a client that asks at that moment would consider it failed."""
    tree.run(make_plan())
    hold = tree / "manager/hold-restart"
    hold.touch()
    with tree.session("restart", job="digits", attempt=1, tasks=[["worker", 0]]) as session:
        wait_until(lambda: tree.alive() == [])
        assert tree.states()["worker/0"]["state"] == "starting"
        hold.unlink()
        session.expect("restarted")
    assert tree.states()["worker/0"]["state"] == "running"


def test_restart_is_completed_when_its_client_dies(tree: Tree) -> None:
    tree.run(make_plan())
    with tree.session("restart", job="digits", attempt=1, tasks=[["worker", 0]]) as session:
        wait_until(lambda: any(call.startswith("restart ") for call in tree.calls()))
        session.hang_up()
    assert "tfctl-digits-worker-0.service" in tree.calls()[-1]


def test_restart_says_why_a_task_cannot_be_restarted(tree: Tree) -> None:
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
def test_next_attempt_starts_from_the_restart_files_of_the_last_one(tree: Tree, how: str) -> None:
    tasks = [make_task("worker", index, TOLD, env=OWN + NASTY) for index in (0, 1)]
    tree.run(make_plan(*tasks, code=CODE), CODE)
    if how != "running":
        part = [["worker", 0], ["worker", 1]][: 2 if how == "all stopped" else 1]
        tree.ask("stop", job="digits", attempt=1, tasks=part)
        assert (tree / f"{ENDED}/tfctl-digits-worker-0.env").stat().st_mode & 0o777 == 0o600
        assert (tree / ENDED).stat().st_mode & 0o777 == 0o700
    with again(tree, CODE) as session:
        hello = session.expect("hello")
        assert (hello["restartable"], hello["highest"]) == ([["worker", 0], ["worker", 1]], 1)
        tree.ask("stop", job="digits", attempt=1, tasks=None)
        runs(session, rerun(("worker", 0), ("worker", 1), code=digest(CODE)))
    assert {one["state"] for one in tree.states().values()} == {"running"}
    env = (tree / "run/tfctl/env/tfctl-digits-worker-0.env").read_text()
    assert env == tasks[0]["env"].replace('TFCTL_ATTEMPT="1"\nT', 'TFCTL_ATTEMPT="2"\nT').replace("0123abcd", NEXT_RUN)
    assert (tree / "var/lib/tfctl/jobs/digits/2/code/train.py").exists()
    assert not (tree / ENDED).exists(), "the running attempt has its own files"


def test_next_attempt_starts_although_an_upgrade_has_changed_the_drop_in(tree: Tree) -> None:
    """The guard of a job goes on with the version that has started the job."""
    tree.run(make_plan())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    newer = DROP_IN.read_text() + "# one line more\n"
    (tree / names.DROP_IN).write_text(newer)
    with again(tree) as session:
        session.expect("hello")
        refusal = session.ask("rerun", "refused", rerun())["error"]
        assert refusal["message"].endswith("is not the one of this version")
    installed = tree / names.LIB / "0123abcd"
    (installed / "tfctl_node").mkdir(parents=True)
    (installed / "tfctl_node/10-tfctl.conf").write_text(newer)
    (tree / names.LIB / "current").symlink_to("0123abcd")
    with again(tree) as session:
        session.expect("hello")
        runs(session, rerun())
    assert tree.states()["worker/0"]["state"] == "running"


def test_restart_files_are_deleted_when_the_job_is_stopped(tree: Tree) -> None:
    tree.run(make_plan())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    with again(tree, attempt=9) as session:
        assert session.expect("hello")["restartable"] == []
    tree.ask("stop", job="digits", attempt=1, tasks=None)
    assert not (tree / ENDED).parent.exists()
    with again(tree) as session:
        assert session.expect("hello")["restartable"] == []
    with tree.start() as session:
        assert session.ask("rerun", "error", rerun())["exit"] == 2


def test_request_for_the_next_attempt_is_checked(tree: Tree) -> None:
    tree.run(make_plan())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    for wrong in (rerun(run="../../etc"), rerun(job="other"), rerun(output="/etc"), rerun(tasks=None), {}):
        with again(tree) as session:
            session.expect("hello")
            session.tell("rerun", wrong)
            kind, error = session.hear() or ("", {})
            assert kind in ("refused", "error"), wrong
            assert error.get("error", error)["exit"] in (2, 8), wrong
    assert tree.alive() == []


def test_next_attempt_is_refused_when_the_request_names_other_code_than_the_record(tree: Tree) -> None:
    """A guard sends both, and the code of another job may be on the host too."""
    other = tarball({"train.py": "print('other')\n"})
    tree.run(make_plan(make_task("worker", 0, job="other"), job="other", code=other), other)
    tree.run(make_plan(code=CODE), CODE)
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    for code in (other, None):
        with again(tree, code) as session:
            session.expect("hello")
            error = session.ask("rerun", "error", rerun(code=digest(CODE)))
            assert (error["exit"], "names other code" in error["message"]) == (2, True), error


def test_restart_files_of_the_latest_ended_jobs_are_kept(tree: Tree) -> None:
    old = [tree / f"run/tfctl/ended/old-{number}" for number in range(50)]
    for folder in old:
        folder.mkdir(parents=True)
    tree.run(make_plan(make_task(command=STAY)))
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    assert sum(folder.exists() for folder in old) == 49
    assert (tree / ENDED).is_dir()
