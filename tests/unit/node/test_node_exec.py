"""`exec`: a command beside a task, with its environment, and what is left of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_system import fake_system
from node_tree import ACCOUNT, RUN, STAY, Session, Tree, make_plan, make_task, sh, wait_until

from tfctl.node.verbs.exec import _place, _sweep

UNITS = "run/systemd/system"


def execute(session: Session) -> tuple[bytes, bytes, Any]:
    """Return stdout, stderr and the last message of a command that has ended."""
    assert session.process.stdout
    output = {1: b"", 2: b""}
    while True:
        heard: tuple[str, Any] = session.hear() or ("", None)
        kind, value = heard
        if kind == "piece":
            while len(session._rest) < value["size"]:
                session._rest += os.read(session.process.stdout.fileno(), 65536)
            output[value["position"]] += session._rest[: value["size"]]
            session._rest = session._rest[value["size"] :]
        elif kind != "beat":
            return output[1], output[2], (kind, value)


def ask(tree: Tree, *words: str, index: int = 0, **more: Any) -> tuple[bytes, bytes, Any]:
    with tree.session("exec", job="digits", run=RUN, role="worker", index=index, words=words, **more) as session:
        return execute(session)


def left(tree: Tree) -> list[str]:
    """Return what commands have left: units, pipes and processes."""
    found = [path for path in tree.files() if "EXEC" in path]
    pipes = [str(path) for path in (tree / "run/tfctl").glob("exec-*")]
    return [*found, *pipes, *(unit for unit in tree.alive() if "EXEC" in unit)]


@pytest.fixture
def job(tree: Tree) -> Tree:
    tree.run(make_plan(make_task("worker", 0, STAY, env='GREETING="hello\\$"\n'), make_task("worker", 1)))
    return tree


def test_exec_has_the_environment_and_the_directory_of_the_task(job: Tree) -> None:
    out, err, end = ask(job, "sh", "-c", 'echo "$GREETING"; pwd; echo oops >&2; exit 3')
    assert out.decode().splitlines() == ["hello$", str(job / "var/lib/tfctl/jobs/digits/1/code")]
    assert (err, end) == (b"oops\n", ("exited", {"status": 3}))
    assert left(job) == []


@pytest.mark.parametrize("word", ["a b", "", '"quoted"', "$HOME ${HOME}", "100%h", "back\\slash", "line\nfeed\t", "é"])
def test_exec_passes_words_unchanged(job: Tree, word: str) -> None:
    out, _, end = ask(job, "sh", "-c", 'printf %s "$1"', "sh", word)
    assert (out.decode(), end[1]["status"]) == (word, 0)


def test_exec_has_the_environment_of_a_task_that_has_ended(tree: Tree) -> None:
    tree.run(make_plan(make_task("worker", 0, sh("exit 0"), env='GREETING="hello"\n')))
    tree.wait_for("worker/0", "succeeded")
    assert ask(tree, "sh", "-c", "echo $GREETING")[0] == b"hello\n"
    tree.ask("stop", job="digits", attempt=None, tasks=None)
    kind, error = ask(tree, "sh", "-c", "exit 0")[2]
    assert (kind, error["exit"]) == ("error", 7)
    assert "the environment of worker/0 is no longer on" in error["message"]
    # The stack alone does not need the environment.
    assert ask(tree, "sh", "-c", "echo ${GREETING-none}", environment=False)[0] == b"none\n"
    assert left(tree) == []


def test_exec_is_restricted_as_the_task_is(job: Tree) -> None:
    with job.session(
        "exec", job="digits", run=RUN, role="worker", index=0, words=["sh", "-c", "echo up; exec sleep 600"]
    ) as session:
        session.expect("piece")
        [unit] = [path for path in job.files() if "EXEC" in path]
        lines = (job / unit).read_text().splitlines()
        task = (job / UNITS / "tfctl-digits-worker-1.service").read_text().splitlines()
        for key in ("Slice", "WorkingDirectory", "ReadWritePaths", "UnsetEnvironment"):
            assert [line for line in lines if line.startswith(f"{key}=")] == [
                line for line in task if line.startswith(f"{key}=")
            ]
        assert "User=tfctl" in lines
        assert unit.rpartition("/")[2].startswith("tfctl-"), "the drop-in applies to this prefix"
        # It is not taken for a task.
        assert set(job.states()) == {"worker/0", "worker/1"}


def test_exec_is_refused_without_the_drop_in_that_restricts_it(job: Tree) -> None:
    (job / "etc/systemd/system/tfctl-.service.d/10-tfctl.conf").write_text("[Service]\nUser=root\n")
    kind, error = ask(job, "sh", "-c", "exit 0")[2]
    assert (kind, error["exit"]) == ("error", 8)
    assert left(job) == []


@pytest.mark.parametrize("way", ["client leaves", "signal", "silence"])
def test_exec_leaves_nothing_when_its_client_is_gone(job: Tree, way: str) -> None:
    words = ["sh", "-c", "echo up; sleep 600 & exec sleep 600"]
    with job.session(
        "exec", silence=1.0 if way == "silence" else 30.0, job="digits", run=RUN, role="worker", index=0, words=words
    ) as session:
        session.expect("piece")
        if way == "client leaves":
            session.hang_up()
        elif way == "signal":
            session.process.send_signal(signal.SIGTERM)
        assert session.process.wait(20) == 1
    wait_until(lambda: left(job) == [], lambda: str(left(job)))


def test_exec_removes_what_a_killed_one_has_left(job: Tree) -> None:
    with job.session("exec", job="digits", run=RUN, role="worker", index=0, words=STAY) as session:
        session.expect("piece")
        session.process.kill()
    assert left(job) != []
    assert ask(job, "sh", "-c", "exit 0")[2][1]["status"] == 0
    assert left(job) == []


def test_stop_ends_commands_although_another_job_has_a_name_that_begins_alike(tree: Tree) -> None:
    """The job's slice contains them. The unit files of an ended task stay until its job is stopped."""
    place = "/srv/tfctl/digits-ps"
    other = make_task(command=sh("exit 0"), job="digits-ps", output=place)
    tree.run(make_plan(other, job="digits-ps", output=place))
    tree.wait_for("worker/0", "succeeded", "digits-ps")
    tree.run(make_plan())
    assert ask(tree, "sh", "-c", "exit 0")[2] == ("exited", {"status": 0})
    assert "stop tfctl-digits.slice" not in tree.calls(), "it has a task"
    tree.ask("stop", job="digits", attempt=None, tasks=None)
    assert "stop tfctl-digits.slice" in tree.calls()
    before = len(tree.calls())
    assert ask(tree, "sh", "-c", "exit 0", environment=False)[2] == ("exited", {"status": 0})
    assert "stop tfctl-digits.slice" in tree.calls()[before:]
    assert "stop tfctl-digits_ps.slice" not in tree.calls()


def test_exec_has_its_pipes_although_another_one_sweeps_at_that_moment(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command first removes what killed ones have left: directories that no process has locked."""
    made: list[Path] = []
    mkdir = Path.mkdir

    def swept(path: Path, *words: Any, **more: Any) -> None:
        mkdir(path, *words, **more)
        if path.name.startswith("exec-"):
            made.append(path)
            if len(made) == 1:
                path.rmdir()

    monkeypatch.setattr(Path, "mkdir", swept)
    system = fake_system(str(tree.path), ACCOUNT, 30.0)
    with _place(system, "digits", "0123abcd"):
        _sweep(system)
        assert sorted(path.name for path in made[-1].iterdir()) == ["1", "2"]
    assert left(tree) == []


def test_exec_of_another_run_is_refused(job: Tree) -> None:
    with job.session("exec", job="digits", run="ffffffff", role="worker", index=0, words=["true"]) as session:
        assert session.expect("error")["exit"] == 7
    for fields in ({"role": "ps"}, {"index": 7}):
        request: dict[str, Any] = {
            "job": "digits",
            "run": RUN,
            "role": "worker",
            "index": 0,
            "words": ["true"],
            **fields,
        }
        with job.session("exec", **request) as session:
            assert session.expect("error")["exit"] == 7


@pytest.mark.parametrize("words", [[], [""], ["a\0b"], ["x" * 200_000]])
def test_exec_refuses_what_is_not_a_command(job: Tree, words: list[str]) -> None:
    with job.session("exec", job="digits", run=RUN, role="worker", index=0, words=words) as session:
        assert session.expect("error")["exit"] == 2


def test_a_signal_that_ends_a_command_is_reported(job: Tree) -> None:
    assert ask(job, "sh", "-c", "kill -KILL $$")[2] == ("exited", {"status": None, "signal": "SIGKILL"})
