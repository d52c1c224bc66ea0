"""The roles are consistent: defaults match argument_specs, pages and tags match the roles, and playbooks parse."""

from __future__ import annotations

import dis
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils import tfctl_venv

from tests.lab import expected_state
from tfctl.model.ports import port_range
from tfctl.provision import ansible
from tfctl.provision.parts import PARTS

ROLES = sorted(path for path in (ansible.data_dir() / "roles").iterdir())
GPU_PARTS = ansible.data_dir() / "playbooks/tasks/gpu.yml"
LAB = Path(expected_state.__file__).parent
#: Roles that other roles include. The playbook has no tag for them.
SHARED = {"nvidia_library", "nvidia_packages"}
ANSIBLE = [sys.executable, "-m", "ansible"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def resolved(value: object) -> object:
    """Return VALUE for `{{ tfctl_x | default(VALUE) }}`, which is what applies when the inventory sets nothing."""
    found = re.fullmatch(r"\{\{ tfctl_\w+ \| default\((.*?)\)( \| tfctl_port_range)? \}\}", str(value))
    if not found:
        return value
    default = yaml.safe_load(found[1])
    return list(port_range(default)) if found[2] else default


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_defaults_match_its_argument_specs(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read(role / "defaults/main.yml") or {}
    optional = {name: option["default"] for name, option in options.items() if not option.get("required")}
    assert {name: resolved(value) for name, value in defaults.items()} == optional
    assert all(name.startswith(f"{role.name}_") for name in options)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_defaults_each_have_a_comment(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+:", line):
            assert lines[number - 1].startswith("#"), line


#: Modules that wait while another run works on the host. They return after tfctl_venv.TURN_S and are called again.
WAITING = {
    "tfctl_environment", "tfctl_horovod", "tfctl_horovod_build", "tfctl_openmpi", "tfctl_openmpi_build",
    "tfctl_python_tree",
}  # fmt: skip


def test_tasks_that_wait_for_another_run_retry_for_the_whole_patience() -> None:
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in read(path)]
    waiting = [task for task in tasks if WAITING & {*task} and not task.get("check_mode")]
    assert len(waiting) == len(WAITING)
    for task in waiting:
        assert task["until"] == f"{task['register']}.faults[0].patience_s is not defined"
        assert task["retries"] * tfctl_venv.TURN_S == tfctl_venv.PATIENCE_S


def test_role_pages_match_the_argument_specs() -> None:
    words = [sys.executable, "scripts/role-pages", "--check"]
    done = subprocess.run(words, cwd=ansible.data_dir(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, ""), "run scripts/role-pages"


def test_each_role_has_an_expected_state_that_lab_tests_use() -> None:
    """The role preflight installs nothing, so it has no expected state. Other roles' tests cover the shared ones."""
    roles = {role.name for role in ROLES} - {"preflight"} - SHARED
    for role in roles:
        host, *_ = inspect.signature(getattr(expected_state, role)).parameters.values()
        assert host.annotation == "Host", role
    modules = [importlib.import_module(f"tests.lab.{path.stem}") for path in sorted(LAB.glob("test_*.py"))]
    used = {name for module in modules for name in attributes_used("expected_state", module)}
    assert roles - used == set()


def attributes_used(name: str, module: ModuleType) -> Iterator[str]:
    """Yield what the functions and methods of a module load from one of its global names."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    methods = [value for each in own if inspect.isclass(each) for value in vars(each).values()]
    code = [value.__code__ for value in (*own, *methods) if inspect.isfunction(value)]
    for each in code:
        code += [constant for constant in each.co_consts if inspect.iscode(constant)]
        for instruction, following in pairwise(dis.get_instructions(each)):
            if (instruction.opname, instruction.argval) == ("LOAD_GLOBAL", name):
                yield following.argval


def test_tags_of_the_playbook_are_the_roles() -> None:
    assert set(PARTS) == {role.name for role in ROLES} - SHARED
    (play,) = read(ansible.data_dir() / "playbooks/provision.yml")
    tags = [tag for task in play["tasks"] for tag in task["tags"] if tag != "always"]
    assert tuple(dict.fromkeys(tags)) == PARTS


def test_tag_of_a_gpu_role_includes_the_nvidia_repository() -> None:
    parts = {each["ansible.builtin.import_role"]["name"]: each["tags"] for each in read(GPU_PARTS)}
    assert all(name in tags for name, tags in parts.items())
    assert {*parts, "nvidia_driver"} == set(parts["nvidia_repo"])
    toolchain, gpu = read(GPU_PARTS.with_name("native.yml"))
    assert (toolchain["tags"], set(gpu["tags"])) == (["toolchain"], set(parts["nvidia_repo"]))


def inclusions() -> Iterator[tuple[str, set[str]]]:
    """Yield (role, variables) for each place where a playbook or a role includes a role with variables."""
    data = ansible.data_dir()
    for path in [*data.glob("playbooks/**/*.yml"), *data.glob("roles/*/tasks/*.yml")]:
        for task in read(path):
            for each in [task, *task.get("tasks", [])]:
                for kind in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
                    if kind in each:
                        yield each[kind]["name"], {*each.get("vars", {})}


def test_roles_are_included_with_variables_that_they_declare() -> None:
    found = list(inclusions())
    assert {"nvidia_driver", "nvidia_library", "nvidia_packages"} <= {role for role, _ in found}
    for role, variables in found:
        specs = read(ansible.data_dir() / f"roles/{role}/meta/argument_specs.yml")["argument_specs"]
        options = specs["main"]["options"]
        assert variables - {*options} == set(), role
        assert {name for name, option in options.items() if option.get("required")} <= variables, role


@pytest.mark.parametrize(
    "playbook", sorted((ansible.data_dir() / "playbooks").glob("*.yml")), ids=lambda path: path.name
)
def test_playbook_passes_the_syntax_check(playbook: Path) -> None:
    words = [*ANSIBLE, "playbook", "--syntax-check", "-i", "localhost,", str(playbook)]
    done = subprocess.run(words, cwd=ansible.data_dir(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
