"""The conversation of `start`: all or nothing, whoever dies and when."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from node_tree import RUN, Tree, free_port, make_plan, make_task, refused, reserve, sh, tarball, wait_until

from tfctl.node.reserve import Reservation, take
from tfctl.node.world import World

CODE = tarball({"train.py": "print('hi')\n", "bin/run.sh": "#!/bin/sh\necho ran\n"})


def test_a_job_runs_from_hello_to_its_end(tree: Tree) -> None:
    plan = make_plan(make_task(command=["bin/run.sh"], env='SECRET="a b"\n'), code=CODE)
    with tree.talk("start", job="digits", code=plan["code"], ports=[2222, 2223], resolve=["localhost"]) as talk:
        hello = talk.expect("hello")
        assert hello["highest"] == 0
        assert hello["code"] is False
        assert hello["stacks"] == ["tf2.15"]
        assert hello["names"] == {"localhost": None}
        reserve(talk, plan, CODE)
        assert tree.states()["worker/0"]["state"] == "pending"
        talk.ask("go", "started")
        talk.ask("keep", "kept")
        assert talk.process.wait(10) == 0
    done = tree.wait_for("worker/0", "succeeded")
    assert (done["exit_code"], done["signal"], done["restarts"]) == (0, None, 0)
    assert done["started"] <= done["finished"] <= time.time()
    attempt = tree / "var/lib/tfctl/jobs/digits/1"
    assert (attempt / "code/train.py").read_text() == "print('hi')\n"
    assert (tree / "run/tfctl/env/tfctl-digits-worker-0.env").stat().st_mode & 0o777 == 0o600
    assert (tree / "srv/tfctl/digits").stat().st_mode & 0o7777 == 0o2770
    assert [call for call in tree.calls() if call.startswith("start")] == ["start tfctl-digits-worker-0.service"]


@pytest.mark.parametrize("phase", ["hello", "reserved", "started"])
@pytest.mark.parametrize("way", ["eof", "silence", "SIGTERM"])
def test_without_keep_nothing_is_left(tree: Tree, phase: str, way: str) -> None:
    before = tree.files()
    with tree.talk(
        "start", job="digits", code=make_plan(code=CODE)["code"], ports=[2222, 2222], resolve=[],
        silence=2 if way == "silence" else 30,
    ) as talk:  # fmt: skip
        with talk.beating():
            talk.expect("hello")
            if phase != "hello":
                stubborn = make_task(command=sh("trap '' TERM; while :; do sleep 1; done"))
                reserve(talk, make_plan(stubborn, code=CODE), CODE)
            if phase == "started":
                talk.ask("go", "started")
                assert tree.alive() == ["tfctl-digits-worker-0.service"]
        if way == "SIGTERM":
            talk.process.terminate()
        if way != "eof":
            assert talk.process.wait(20) == 1
        else:
            assert talk.hang_up() == 1
    assert tree.alive() == []
    assert [name for name in tree.files() if name != "run/tfctl/lock"] == before
    assert not (tree / "var/lib/tfctl/jobs/digits").exists()
    assert not (tree / "srv/tfctl/digits").exists()


def test_a_client_that_dies_while_units_start_is_noticed(tree: Tree) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/hold-start").touch()
    with tree.start() as talk:
        reserve(talk, make_plan())
        talk.tell("go")
        wait_until(lambda: tree.alive() != [])
        assert talk.hang_up() == 1
    assert tree.alive() == []
    assert not (tree / "var/lib/tfctl/jobs/digits").exists()


def test_a_node_that_starts_units_beats(tree: Tree) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/hold-start").touch()
    with tree.start() as talk:
        reserve(talk, make_plan())
        talk.tell("go")
        assert talk.hear() == ("beat", {})
        (tree / "manager/hold-start").unlink()
        talk.expect("started")


def test_beats_break_the_silence(tree: Tree) -> None:
    with tree.talk("start", job="digits", code=None, ports=[2222, 2222], resolve=[], silence=3) as talk:
        talk.expect("hello")
        with talk.beating():
            time.sleep(4)
        reserve(talk, make_plan())


@pytest.mark.parametrize(("version", "kind"), [("252", "exec"), ("247", "simple")])
def test_what_cannot_be_executed_is_undone_with_its_cause(tree: Tree, version: str, kind: str) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/version").write_text(version)
    with tree.start() as talk:
        again = make_task(service="Restart=on-failure\nRestartSec=60s\n")
        reserve(talk, make_plan(again, make_task("ps", 0)))
        assert f"\nType={kind}\n" in (tree / "run/systemd/system/tfctl-digits-ps-0.service").read_text()
        (tree / "var/lib/tfctl/home").rmdir()
        error = talk.ask("go", "undone")
        assert error["exit"] == 6
        assert "worker/0 could not be started" in error["message"]
        assert "a directory that it may write to is missing" in error["message"]
        assert "systemd cannot execute it: status 226" in error["message"]
        assert tree.alive() == []
        (tree / "var/lib/tfctl/home").mkdir()
        reserve(talk, make_plan())
        talk.ask("go", "started")


def test_a_program_that_ended_at_once_counts_as_started(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 3"))))
    assert tree.wait_for("worker/0", "failed")["exit_code"] == 3


def test_undo_lets_another_plan_follow(tree: Tree) -> None:
    with tree.start() as talk:
        reserve(talk, make_plan())
        talk.ask("undo", "undone")
        assert not (tree / "var/lib/tfctl/jobs/digits").exists()
        reserve(talk, make_plan())
        talk.ask("go", "started")
        talk.ask("undo", "undone")
        assert tree.alive() == []


def test_the_next_attempt_leaves_the_one_before(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 4")), make_task("ps", 0, sh("exit 0"))))
    first = tree.wait_for("worker/0", "failed")
    with tree.start() as talk:
        reserve(talk, make_plan(make_task(attempt=2, run="22222222"), attempt=2, run="22222222"))
        assert talk.hang_up() == 1
    assert tree.states(attempt=1)["worker/0"] == first
    with tree.start() as talk:
        assert talk.process.poll() is None
        reserve(talk, make_plan(make_task(attempt=2, run="22222222"), attempt=2, run="22222222"))
        talk.ask("go", "started")
        talk.ask("keep", "kept")
    assert tree.states()["worker/0"]["state"] == "running"
    assert tree.states(attempt=1)["worker/0"] == first
    assert not (tree / "run/systemd/system/tfctl-digits-ps-0.service").exists()


def test_of_two_starts_one_is_refused_and_may_try_again(tree: Tree) -> None:
    with tree.start() as first, tree.start() as second:
        reserve(first, make_plan())
        error = refused(second, make_plan())
        assert (error["exit"], error["retry"]) == (5, True)
        first.ask("undo", "undone")
        reserve(second, make_plan())


def test_two_starts_at_once_never_both_get_it(tree: Tree) -> None:
    port = free_port()
    with tree.start("a") as first, tree.start("b") as second:
        for talk, job in ((first, "a"), (second, "b")):
            talk.tell("plan", make_plan(make_task(job=job, ports=[port]), job=job))
        answers = [talk.hear() for talk in (first, second)]
        assert sorted(answer[0] for answer in answers if answer) == ["refused", "reserved"]
        [error] = [answer[1] for answer in answers if answer and answer[0] == "refused"]
        assert error.get("retry") is True, error
        assert f"port {port}" in error["message"]


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_what_a_killed_start_leaves_is_undone_by_the_next(tree: Tree, phase: str) -> None:
    port = free_port()
    with tree.start("old") as talk:
        reserve(talk, make_plan(make_task(job="old", ports=[port]), job="old"))
        if phase == "started":
            talk.ask("go", "started")
        talk.process.send_signal(signal.SIGKILL)
        talk.process.wait(10)
    assert (tree / "run/tfctl/reserved/old").exists()
    with tree.start("new") as talk:
        reserve(talk, make_plan(make_task(job="new", ports=[port]), job="new"))
    assert tree.alive() == []
    assert not [name for name in tree.files() if "old" in name]


def test_what_does_not_even_die_when_a_start_is_undone_can_be_found(tree: Tree) -> None:
    """It has its ports still, and `stop` ends it when the file system that it hangs in is back."""
    port = free_port()
    with tree.start() as talk:
        reserve(talk, make_plan(make_task(ports=[port])))
        talk.ask("go", "started")
        (tree / "manager/undying").touch()
        talk.hang_up()
    (tree / "manager/undying").unlink()
    with tree.talk("start", job="other", code=None, ports=[port, port], resolve=[]) as talk:
        assert talk.expect("hello")["ports"] == {str(port): "job digits, task worker/0"}
    assert tree.ask("stop", job="digits", attempt=None, tasks=None)["tasks"] == [["worker", 0]]
    assert tree.alive() == []


def test_a_reservation_that_cannot_be_written_leaves_nothing(tree: Tree) -> None:
    place = tree / "run/tfctl/reserved"
    (place / "digits/in the way").mkdir(parents=True)
    made = Reservation("digits", 1, RUN, (), (), ())
    with pytest.raises(OSError, match="directory"):
        take(World(str(tree.path)), made)
    assert [path.name for path in place.iterdir()] == ["digits"]


def test_code_that_two_starts_share_stays_when_one_is_undone(tree: Tree) -> None:
    with tree.start("a", CODE) as first:
        reserve(first, make_plan(make_task(job="a"), job="a", code=CODE), CODE)
        with tree.start("b", CODE) as second:
            first.ask("undo", "undone")
            reserve(
                second,
                make_plan(make_task(command=["bin/run.sh"], job="b"), job="b", code=CODE),
            )
            second.ask("go", "started")


def test_the_output_is_seen_to_be_shared_or_not(tree: Tree) -> None:
    with tree.start() as talk:
        reserve(talk, make_plan())
        assert talk.ask("share", "share", {"find": "nonce-001"}) == {"ok": False}
        assert talk.ask("share", "share", {"write": "nonce-001"}) == {"ok": True}
        assert talk.ask("share", "share", {"find": "nonce-001"}) == {"ok": True}
        assert names_in(tree / "srv/tfctl/digits") == [".tfctl-nonce-001"]
        assert talk.ask("share", "share", {"remove": "nonce-001"}) == {"ok": True}
        assert names_in(tree / "srv/tfctl/digits") == []


@pytest.mark.parametrize("there", [True, False])
def test_the_mark_goes_with_a_client_that_is_gone(tree: Tree, there: bool) -> None:
    """Also where the output was there before, and so stays."""
    if there:
        tree.run(make_plan(make_task(command=sh("exit 0"))))
        tree.wait_for("worker/0", "succeeded")
    later = {"attempt": 2, "run": "22222222"}
    with tree.start() as talk:
        reserve(talk, make_plan(make_task(**later), **later))
        talk.ask("share", "share", {"write": "nonce-001"})
        assert talk.hang_up() == 1
    assert (names_in(tree / "srv/tfctl/digits") == []) if there else not (tree / "srv/tfctl/digits").exists()


def test_hello_says_who_holds_ports(tree: Tree) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with tree.talk("start", job="digits", code=None, ports=[port, port], resolve=[]) as talk:
            assert talk.expect("hello")["ports"] == {
                str(port): f"pid {os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
            }
    tree.run(make_plan(make_task(ports=[port])))
    with tree.talk("start", job="other", code=None, ports=[port, port], resolve=[]) as talk:
        assert talk.expect("hello")["ports"] == {str(port): "job digits, task worker/0"}


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
