"""The answers of a node to any input: one line with a sentence, without a traceback, and soon."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from node_tree import Tree, line, make_plan, make_task, request

from tfctl.node import names, wire

NODE = Path(names.__file__).parent


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        (b"hello\n", 2),
        (b"\xff\xfe\x00\n", 2),
        (b"[" * 100_000 + b"\n", 2),
        (b"[]\n", 2),
        (b"null\n", 2),
        (b"{}\n", 8),
        (b'{"protocol": 1, "verb": "show"}\n', 8),
        (request("reboot"), 8),
        (request("start", job="../../etc", code=None, ports=[1, 2], resolve=[]), 2),
        (request("start", job="a", code="x", ports=[1, 2], resolve=[]), 2),
        (request("start", job="a", code=None, ports=[2, 1], resolve=[]), 2),
        (request("start", job="a", code=None, ports=[1, 99999], resolve=[]), 2),
        (request("start", job="a", code=None, ports=5, resolve=[]), 2),
        (request("start", job="a", code=None, ports=[1, 1], resolve="x"), 2),
        (request("show", job=["a"], attempt=None), 2),
        (request("show", job="a", attempt="1"), 2),
        (request("stop", job="a", attempt=None, tasks=[["w"]]), 2),
        (request("stop", job="a", attempt=None, tasks=[["../x", 0]]), 2),
        (request("stop", job="a", attempt=True, tasks=None), 2),
    ],
)
def test_unserviceable_requests_are_refused_with_an_error(tree: Tree, said: bytes, exit_code: int) -> None:
    with tree.session() as session:
        session.say(said)
        [(kind, error)] = session.rest()
        assert (kind, error["exit"]) == ("error", exit_code), error
        assert error["message"]
        assert "Traceback" not in session.errors()
        assert session.process.wait(10) == 1


def test_start_refuses_a_plan_with_nonsense_in_it(tree: Tree) -> None:
    """A field of the wrong type is malformed and ends the session; any other nonsense is a refusal."""
    good: list[tuple[str, object]] = [("code", None), ("tasks", [])]
    nonsense: list[object] = [None, 5, "../x\n", [], {}, [{"role": 1}]]
    for value in nonsense:
        for key in make_plan():
            if (key, value) not in good:
                with tree.start() as session:
                    session.tell("plan", {**make_plan(), key: value})
                    kind, answer = session.hear() or ("", {})
                    assert kind in ("refused", "error"), (key, value)
                    assert answer.get("error", answer)["exit"] in (2, 8), (key, value)


@pytest.mark.parametrize("said", [b"nonsense\n", b'{"a": 1, "b": 2}\n', line("go", {}), line("keep", {}), line("x", 1)])
def test_unexpected_message_ends_a_start(tree: Tree, said: bytes) -> None:
    with tree.start() as session:
        session.say(said)
        [(kind, error)] = session.rest()
        assert (kind, error["exit"]) == ("error", 2)


def test_closed_stdin_without_a_request_is_not_an_error(tree: Tree) -> None:
    with tree.session() as session:
        assert session.hang_up() == 1
        assert session.rest() == []
        assert session.errors() == ""


def test_a_plan_cannot_name_another_job(tree: Tree) -> None:
    with tree.start("mine") as session:
        session.tell("plan", make_plan(make_task(job="yours"), job="yours"))
        assert session.expect("refused")["error"]["exit"] == 2


def test_node_part_runs_as_it_is_installed(tmp_path: Path) -> None:
    """Install the node part into a directory as the role does, and run its programs there."""
    version = tmp_path / "lib/0123"
    shutil.copytree(NODE, version / "tfctl_node", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "lib/current").symlink_to("0123")
    program = tmp_path / "tfctl-node"
    text = (NODE / "bin/tfctl-node").read_text().replace("/usr/local/lib/tfctl", str(tmp_path / "lib"))
    program.write_text(text.replace("#!/usr/bin/python3", f"#!{sys.executable}"))
    program.chmod(0o755)
    for _ in range(2):  # the second time with bytecode
        before = os.times()
        done = subprocess.run([program], input=request("none"), capture_output=True, timeout=20)
        after = os.times()
    assert wire.parse(done.stdout)["error"]["exit"] == 8
    assert (done.returncode, done.stderr) == (1, b"")
    ask = (
        f"import sys; sys.path.insert(0, {str(version)!r}); from tfctl_node.system import node_part; print(node_part())"
    )
    assert subprocess.check_output([sys.executable, "-ISc", ask], text=True, timeout=20) == "0123\n"
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 0.2  # 0.03 s, whatever else runs


@pytest.mark.parametrize(
    "module", [*(f"verbs.{verb}" for verb in (*wire.REQUESTS, "deadline")), "guard.__main__", "guard_session"]
)
def test_each_verb_and_the_guard_import_what_they_need(module: str) -> None:
    """Other tests run the node part in forks of a process that has imported all modules."""
    program = f"import sys; sys.path.insert(0, {str(NODE.parents[1])!r}); import tfctl.node.{module}"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=20)


def test_each_verb_of_the_protocol_is_a_module() -> None:
    modules = {path.stem for path in (NODE / "verbs").glob("*.py")}
    assert modules == {*wire.REQUESTS, "deadline", "__init__"}


def test_node_part_parses_with_python_3_9() -> None:
    for path in NODE.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 9))
    assert all(os.access(program, os.X_OK) for program in (NODE / "bin").iterdir())
