"""The modules run with the Python that the inventory names for the host, and are documented as Ansible's are."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PLUGINS = Path(__file__).parents[3] / "plugins"
DOCUMENTED_MODULES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py"))
#: An action runs in place of each of the others.
MODULES = [name for name in DOCUMENTED_MODULES if not (PLUGINS / f"action/{name}.py").exists()]
DOCUMENTED = ("DOCUMENTATION", "EXAMPLES", "RETURN")


def module(name: str) -> str:
    return (PLUGINS / f"modules/{name}.py").read_text("utf-8")


def test_every_module_lets_ansible_choose_the_interpreter() -> None:
    """With any other first line than this one, Ansible ignores the interpreter of the inventory."""
    lines = {name: module(name).splitlines()[0] for name in MODULES}
    assert {name: line for name, line in lines.items() if line != "#!/usr/bin/python"} == {}


@pytest.mark.parametrize("name", DOCUMENTED_MODULES)
def test_documentation_of_a_module_is_complete(name: str) -> None:
    values = [node for node in ast.parse(module(name)).body if isinstance(node, ast.Assign)]
    texts = {ast.unparse(node.targets[0]): node.value for node in values}
    parts = {part: yaml.safe_load(ast.literal_eval(texts[part])) for part in DOCUMENTED}
    options = parts["DOCUMENTATION"]["options"]
    assert parts["DOCUMENTATION"]["module"] == name
    assert all(value["description"] and value["returned"] for value in parts["RETURN"].values())
    for task in parts["EXAMPLES"]:
        if arguments := task.get(f"tfctl.cluster.{name}"):
            assert arguments.keys() <= options.keys()
            assert {option for option, value in options.items() if value.get("required")} <= arguments.keys()


@pytest.mark.extended
def test_every_module_runs_with_the_python_that_the_inventory_names(tmp_path: Path) -> None:
    """Called without arguments, each module either fails or does nothing; the interpreter counts how often it ran."""
    count = tmp_path / "count"
    python = tmp_path / "python-of-my-own"
    python.write_text(f'#!/bin/sh\necho run >>{count}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    tasks = [{"name": name, f"tfctl.cluster.{name}": {}, "check_mode": True, "ignore_errors": True} for name in MODULES]
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here ansible_connection=local ansible_python_interpreter={python}\n")
    command = [sys.executable, "-m", "ansible", "playbook", "--inventory", str(inventory), str(playbook)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name in MODULES if f"TASK [{name}]" not in done.stdout] == []
    assert count.read_text().splitlines() == ["run"] * len(MODULES)
