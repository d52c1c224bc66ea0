"""What a node answers to anything: one line, a sentence, no traceback. And how soon."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node_tree import Tree, make_plan, make_task

from tfctl.node import wire

NODE = Path(wire.__file__).parent


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        (b"hello\n", 2),
        (b"\xff\xfe\x00\n", 2),
        (b"[" * 100_000 + b"\n", 2),
        (b"[]\n", 2),
        (b"null\n", 2),
        (b"{}\n", 8),
        (b'{"protocol": 2, "verb": "show"}\n', 8),
        (wire.request("reboot"), 8),
        (wire.request("start", job="../../etc", code=None, ports=[1, 2], resolve=[]), 2),
        (wire.request("start", job="a", code="x", ports=[1, 2], resolve=[]), 2),
        (wire.request("start", job="a", code=None, ports=[2, 1], resolve=[]), 2),
        (wire.request("start", job="a", code=None, ports=[1, 99999], resolve=[]), 2),
        (wire.request("start", job="a", code=None, ports=5, resolve=[]), 2),
        (wire.request("start", job="a", code=None, ports=[1, 1], resolve="x"), 2),
        (wire.request("show", job=["a"], attempt=None), 2),
        (wire.request("show", job="a", attempt="1"), 2),
        (wire.request("stop", job="a", attempt=None, tasks=[["w"]]), 2),
        (wire.request("stop", job="a", attempt=None, tasks=[["../x", 0]]), 2),
        (wire.request("stop", job="a", attempt=True, tasks=None), 2),
    ],
)
def test_a_request_that_cannot_be_served(tree: Tree, said: bytes, exit_code: int) -> None:
    with tree.talk() as talk:
        talk.say(said)
        [(kind, error)] = talk.rest()
        assert (kind, error["exit"]) == ("error", exit_code), error
        assert error["message"]
        assert "Traceback" not in talk.errors()
        assert talk.process.wait(10) == 1


def test_plans_with_nonsense_in_them(tree: Tree) -> None:
    good: list[tuple[str, object]] = [("code", None), ("tasks", []), ("record", {})]
    with tree.start() as talk:
        for value in (None, 5, "../x\n", [], {}, [{"role": 1}]):
            for key in make_plan():
                if (key, value) not in good:
                    talk.tell("plan", {**make_plan(), key: value})
                    assert talk.expect("refused")["exit"] in (2, 8), (key, value)


@pytest.mark.parametrize(
    "said", [b"nonsense\n", b'{"a": 1, "b": 2}\n', wire.line("go", {}), wire.line("keep", {}), wire.line("x", 1)]
)
def test_what_does_not_come_next_ends_a_start(tree: Tree, said: bytes) -> None:
    with tree.start() as talk:
        talk.say(said)
        [(kind, error)] = talk.rest()
        assert (kind, error["exit"]) == ("error", 2)


def test_nobody_there_is_no_error(tree: Tree) -> None:
    with tree.talk() as talk:
        assert talk.hang_up() == 1
        assert talk.rest() == []
        assert talk.errors() == ""


def test_a_plan_cannot_name_another_job(tree: Tree) -> None:
    with tree.start("mine") as talk:
        talk.tell("plan", make_plan(make_task(job="yours"), job="yours"))
        assert talk.expect("refused")["exit"] == 2


def test_it_runs_as_it_is_installed(tmp_path: Path) -> None:
    """The layout of the role, in a directory of its own: what the programs import, and that nothing is missing."""
    version = tmp_path / "lib/0123"
    shutil.copytree(NODE, version / "tfctl_node", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "lib/current").symlink_to("0123")
    program = tmp_path / "tfctl-node"
    text = (NODE / "bin/tfctl-node").read_text().replace("/usr/local/lib/tfctl", str(tmp_path / "lib"))
    program.write_text(text.replace("#!/usr/bin/python3", f"#!{sys.executable}"))
    program.chmod(0o755)
    for _ in range(2):  # the second time with bytecode
        before = os.times()
        done = subprocess.run([program], input=wire.request("none"), capture_output=True, timeout=20)
        after = os.times()
    assert wire.parse(done.stdout)[1]["exit"] == 8
    assert done.stderr == b""
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 0.2  # 0.03 s, whatever else runs


def test_python_3_9_can_read_it() -> None:
    for path in NODE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
    assert os.access(NODE / "bin/end", os.X_OK)
