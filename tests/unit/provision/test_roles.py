"""What a role says about its variables is true: argument_specs and defaults say the same, and the playbook parses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import tfctl_venv

from tfctl.remote import ansible, provision

ROLES = sorted(path for path in (ansible.data_dir() / "roles").iterdir())
GPU_PARTS = ansible.data_dir() / "playbooks/tasks/gpu.yml"
ANSIBLE = [sys.executable, "-m", "ansible"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def resolved(value: object) -> object:
    """`{{ tfctl_x | default(VALUE) }}` is VALUE where the inventory says nothing."""
    found = re.fullmatch(r"\{\{ tfctl_\w+ \| default\((.*)\) \}\}", value) if isinstance(value, str) else None
    return yaml.safe_load(found[1]) if found else value


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_what_the_specs_say(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults/main.yml") or {}
    optional = {name: option["default"] for name, option in options.items() if not option.get("required")}
    assert {name: resolved(value) for name, value in defaults.items()} == optional
    assert all(name.startswith(f"{role.name}_") for name in options)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_stands_below_a_comment(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+:", line):
            assert lines[number - 1].startswith("#"), line


#: Modules that wait for another run on the host; they say so after tfctl_venv.TURN_S, and are to be called again.
WAITING = {
    "tfctl_environment", "tfctl_horovod", "tfctl_horovod_build", "tfctl_openmpi", "tfctl_openmpi_build",
    "tfctl_python_tree",
}  # fmt: skip


def test_who_waits_for_another_run_does_so_in_turns() -> None:
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in read(path)]
    waiting = [task for task in tasks if WAITING & {*task} and not task.get("check_mode")]
    assert len(waiting) == len(WAITING)
    for task in waiting:
        assert task["until"] == f"{task['register']}.faults[0].patience_s is not defined"
        assert task["retries"] * tfctl_venv.TURN_S == tfctl_venv.PATIENCE_S


def test_the_pages_of_the_roles_say_what_the_roles_say() -> None:
    words = [sys.executable, "scripts/role-pages", "--check"]
    done = subprocess.run(words, cwd=ansible.data_dir(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), "run scripts/role-pages"


def test_what_each_role_makes_is_looked_at_on_a_lab() -> None:
    """By a function of its name; preflight makes nothing."""
    text = (ansible.data_dir() / "tests/lab/made.py").read_text()
    named = re.findall(r"^def (\w+)\(|^((?:\w+ = )+)library$", text, re.MULTILINE)
    words = {word for found in named for part in found for word in part.split(" = ") if word}
    assert {role.name for role in ROLES} - words == {"preflight"}


def test_the_parts_are_the_roles_and_the_tags() -> None:
    assert set(provision.TAGS) == {role.name for role in ROLES}
    (play,) = read(ansible.data_dir() / "playbooks/provision.yml")
    tags = [tag for task in play["tasks"] for tag in task["tags"] if tag != "always"]
    assert tuple(dict.fromkeys(tags)) == provision.TAGS


def test_a_part_of_the_gpus_brings_its_packages_sources_too() -> None:
    parts = {each["ansible.builtin.import_role"]["name"]: each["tags"] for each in read(GPU_PARTS)}
    assert all(name in tags for name, tags in parts.items())
    assert {*parts, "nvidia_driver"} == set(parts["nvidia_repo"])
    toolchain, gpu = read(GPU_PARTS.with_name("native.yml"))
    assert (toolchain["tags"], set(gpu["tags"])) == (["toolchain"], set(parts["nvidia_repo"]))


@pytest.mark.parametrize(
    "playbook", sorted((ansible.data_dir() / "playbooks").glob("*.yml")), ids=lambda path: path.name
)
def test_the_playbooks_parse(playbook: Path) -> None:
    words = [*ANSIBLE, "playbook", "--syntax-check", "-i", "localhost,", str(playbook)]
    done = subprocess.run(words, cwd=ansible.data_dir(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
