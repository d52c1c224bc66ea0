"""`logs`: one line that says which units, then what the journal has of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from node_tree import Talk, Tree, make_plan, make_task, sh, wait_until

from tfctl.node import logs
from tfctl.node.talk import Refused
from tfctl.node.world import World

ASK: dict[str, Any] = {
    "job": "digits", "attempt": None, "tasks": None, "cursor": None, "follow": False, "tail": None, "since": None,
    "until": None,
}  # fmt: skip


def lines(talk: Talk) -> list[dict[str, Any]]:
    assert talk.process.stdout
    rest = talk._rest + talk.process.stdout.read()
    talk._rest = b""
    return [json.loads(line) for line in rest.splitlines()]


def printed(tree: Tree, **more: Any) -> list[str]:
    with tree.talk("logs", **{**ASK, **more}) as talk:
        talk.expect("logs")
        return [one["MESSAGE"] for one in lines(talk)]


@pytest.fixture
def job(tree: Tree) -> Tree:
    tree.run(
        make_plan(make_task("ps", 0, sh("echo p1; exec sleep 600")), make_task("worker", 0, sh("echo w1; echo w2")))
    )
    tree.wait_for("worker/0", "succeeded")
    wait_until(lambda: "p1" in printed(tree))
    return tree


def test_all_of_it_and_it_ends_without_watching_stdin(job: Tree) -> None:
    with job.talk("logs", **ASK) as talk:
        assert talk.process.stdin
        talk.process.stdin.close()
        header = talk.expect("logs")
        assert (header["attempt"], header["run"]) == (1, "0123abcd")
        assert header["units"] == {
            "tfctl-digits-ps-0.service": ["ps", 0],
            "tfctl-digits-worker-0.service": ["worker", 0],
        }
        assert sorted(one["MESSAGE"] for one in lines(talk)) == ["p1", "w1", "w2"]
        assert talk.process.wait(10) == 0


def test_parts_of_it(job: Tree) -> None:
    assert printed(job, tasks=[["worker", 0]]) == ["w1", "w2"]
    assert printed(job, tasks=[["worker", 0]], tail=1) == ["w2"]
    assert printed(job, until=1.0) == []
    assert printed(job, tasks=[["worker", 9]]) == []


def test_from_a_cursor_that_one_comes_first(job: Tree) -> None:
    with job.talk("logs", **{**ASK, "tasks": [["worker", 0]]}) as talk:
        talk.expect("logs")
        cursors = [one["__CURSOR"] for one in lines(talk)]
    assert printed(job, tasks=[["worker", 0]], cursor=cursors[1]) == ["w2"]


def test_following_ends_with_the_client(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("while :; do echo on; sleep 0.1; done"))))
    with tree.talk("logs", **{**ASK, "follow": True}) as talk:
        talk.expect("logs")
        assert talk.process.stdout
        assert json.loads(talk.process.stdout.readline())["MESSAGE"] == "on"
        talk.hang_up()
        assert {one["MESSAGE"] for one in lines(talk)} <= {"on"}  # its pipe has ended: no journalctl lives on


def test_a_job_that_is_not_known(tree: Tree) -> None:
    with tree.talk("logs", **ASK) as talk:
        error = talk.expect("error")
        assert (error["exit"], "knows no attempt of job digits" in error["message"]) == (7, True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        ({"follow": True}, ["-f", "--no-tail"]),
        ({"follow": True, "tail": 5}, ["-f", "--lines=5"]),
        ({"cursor": "s=1;i=2", "follow": True, "tail": 5, "since": 3}, ["-f", "--cursor=s=1;i=2", "--no-tail"]),
        ({"since": 1.5, "until": 2}, ["--since=@1.500000", "--until=@2.000000"]),
    ],
)
def test_the_words_for_journalctl(asked: dict[str, Any], words: list[str]) -> None:
    found = logs.command(World(), "0123abcd", ["a.service", "b.service"], asked)
    assert found[:7] == ["/bin/journalctl", "-q", "--no-pager", "--all", "-o", "json", found[6]]
    assert found[7:] == [*words, "TFCTL_RUN=0123abcd", "_SYSTEMD_UNIT=a.service", "_SYSTEMD_UNIT=b.service"]


@pytest.mark.parametrize(
    "asked", [{"cursor": "a\nb"}, {"cursor": 5}, {"tail": -1}, {"tail": "5"}, {"since": "now"}, {"until": float("nan")}]
)
def test_what_journalctl_is_never_told(asked: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        logs.command(World(), "0123abcd", ["a.service"], asked)
