"""The roles are consistent: defaults match argument_specs, pages and tags match the roles, and playbooks parse."""

from __future__ import annotations

import ast
import dis
import functools
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.tfctl.cluster.plugins.module_utils import install

import tfctl
from tests.lab import expected_state
from tfctl.node.receipts import Manages
from tfctl.provision import ansible
from tfctl.provision.due import LIBRARIES, MOMENTARY, role_of
from tfctl.provision.parts import PARTS

ROLES = sorted(path for path in (ansible.data_dir() / "roles").iterdir())
LAB = Path(expected_state.__file__).parent
#: Roles that other roles include. The playbook has no tag for them.
SHARED = {"nvidia_library", "nvidia_packages", "packages", "wheels"}
ANSIBLE = [sys.executable, "-m", "ansible"]


@functools.cache
def read(path: Path) -> Any:
    return yaml.load(path.read_text(), yaml.CSafeLoader)


def resolved(value: object) -> object:
    """Return VALUE for `{{ tfctl_x | default(VALUE) }}`, which is what applies when the inventory sets nothing."""
    found = re.fullmatch(r"\{\{ tfctl_\w+ \| default\((.*?)\) \}\}", str(value))
    return yaml.safe_load(found[1]) if found else value


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


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings of a Python file, apart from docstrings and the documentation of modules."""
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        if not is_documentation(node) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            left += ast.iter_child_nodes(node)


def is_documentation(node: ast.AST) -> bool:
    """Return whether a statement is what ansible-doc prints of a module or plugin."""
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("DOCUMENTATION", "RETURN", "EXAMPLES")


def messages_of(tasks: Any) -> Iterator[str]:
    """Yield the messages of tasks: values of msg, fail_msg and success_msg."""
    if isinstance(tasks, dict):
        yield from (str(tasks[key]) for key in ("msg", "fail_msg", "success_msg") if key in tasks)
    for part in tasks.values() if isinstance(tasks, dict) else tasks if isinstance(tasks, list) else ():
        yield from messages_of(part)


@functools.cache
def messages() -> dict[str, Path]:
    """Return the texts of code and of tasks that may be messages, each with its file.

    Files without any name that begins like a variable are left out.
    """
    named = re.compile(rf"\b(tfctl|{'|'.join(role.name for role in ROLES)})_[a-z]")
    code = [*ansible.data_dir().glob("plugins/*/*.py"), *Path(tfctl.__file__).parent.rglob("*.py")]
    found = {text: path for path in code if named.search(path.read_text()) for text in texts_of(path) if " " in text}
    for path in ansible.data_dir().glob("roles/*/tasks/*.yml"):
        for message in messages_of(read(path)):
            found[re.sub(r"\{\{.*?\}\}", "", message, flags=re.DOTALL)] = path
    assert len(found) > 1000
    return found


def test_no_message_names_a_variable_of_a_role() -> None:
    """Users of tfctl set variables of the inventory, tfctl_*."""
    specs = [read(role / "meta/argument_specs.yml")["argument_specs"]["main"] for role in ROLES]
    options = {name for spec in specs for name in spec["options"]}
    wrong = [f"{path}: {text}" for text, path in messages().items() if options & {*re.findall(r"\w+", text)}]
    assert wrong == []


def test_each_variable_of_the_inventory_that_a_message_names_is_documented() -> None:
    pages = [
        ansible.data_dir() / "README.md",
        *ansible.data_dir().glob("docs/*.md"),
        *(each / "README.md" for each in ROLES),
    ]
    documented = {name for page in pages for name in re.findall(r"\btfctl_\w+", page.read_text())}
    # Names of plugins, modules and packages also begin with it.
    own = {path.stem for path in ansible.data_dir().glob("tfctl_*")}
    named = {(name, path) for text, path in messages().items() for name in re.findall(r"\btfctl_[a-z]\w*", text)}
    assert sorted(f"{path}: {name}" for name, path in named if name not in documented | own) == []


#: Modules that wait while another run works on the host. They return after install.TURN_S and are called again.
WAITING = {
    f"tfctl.cluster.{name}"
    for name in ("environment", "requirements", "horovod", "build", "python_tree", "transaction")
}


def tasks_of(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the tasks, and instead of a block its tasks."""
    for task in tasks:
        yield from tasks_of([*task["block"], *task.get("always", [])]) if "block" in task else [task]


def test_tasks_that_wait_for_another_run_retry_for_the_whole_patience() -> None:
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in tasks_of(read(path))]
    waiting = [task for task in tasks if WAITING & {*task} and not task.get("check_mode")]
    assert {*WAITING} == {name for task in waiting for name in WAITING & {*task}}
    for task in waiting:
        assert task["until"] == f"{task['register']}.faults[0].patience_s is not defined"
        assert task["retries"] * install.TURN_S == install.PATIENCE_S


def test_tasks_that_install_packages_wait_for_another_package_manager() -> None:
    """On a new machine, unattended upgrades hold its lock for minutes."""
    installers = ("ansible.builtin.apt", "ansible.builtin.dnf", "ansible.builtin.package")
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in tasks_of(read(path))]
    installing = [task for task in tasks if {*installers} & {*task}]
    assert len(installing) > 3
    given = [task[kind].get("lock_timeout") for task in installing for kind in installers if kind in task]
    assert given == [600] * len(given)


def test_tasks_change_the_owner_and_mode_of_single_files_with_the_module_file() -> None:
    """Commands are for whole trees, for which the module is slow."""
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in tasks_of(read(path))]
    commands = [task["ansible.builtin.command"] for task in tasks if "ansible.builtin.command" in task]
    words = [command["argv"] for command in commands if isinstance(command, dict) and "argv" in command]
    changes = [each for each in words if each[0] in ("chown", "chgrp", "chmod")]
    assert len(changes) > 1 and [each for each in changes if "R" not in each[1]] == []


def test_tasks_reload_systemd_whether_or_not_this_run_has_changed_a_unit() -> None:
    """An earlier run may have been interrupted between its unit and the reload."""
    tasks = [task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in tasks_of(read(path))]
    units = [task["ansible.builtin.systemd_service"] for task in tasks if "ansible.builtin.systemd_service" in task]
    reloads = [unit["daemon_reload"] for unit in units if "daemon_reload" in unit]
    assert reloads == [True] * len(reloads) and len(reloads) > 4


@pytest.mark.extended
def test_each_of_these_roles_runs_alone_in_the_play_of_a_user(tmp_path: Path) -> None:
    """Nothing is changed. Most get no variables, except that nothing of the distribution is to be installed.

    Each role has a host of its name, which is this machine.
    """
    roles = ("tensorflow", "horovod", "openmpi", "requirements", "preflight")
    here: dict[str, object] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "openmpi_method": "source",
    }
    # No package is needed, and preflight only explains what this machine would get, whatever it lacks.
    packages = {
        "lock": str(tmp_path / "lock"),
        "text": "# empty\n",
        "path": str(tmp_path / "requirements/0123456789ab"),
    }
    here |= {"requirements_list": [packages], "preflight_explain": True}
    plays = [{"hosts": role, "gather_facts": False, "roles": [f"tfctl.cluster.{role}"], "vars": here} for role in roles]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    words = [*ANSIBLE, "playbook", "--check", "-i", ",".join(roles), str(tmp_path / "play.yml")]
    variables = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100)
    for role in roles:
        changes = "0" if role == "preflight" else "[1-9]"
        assert re.search(rf"{role} .*ok=[1-9].*changed={changes}.*failed=0", done.stdout), done.stdout + done.stderr
    assert not (tmp_path / ".cache").exists()


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


def test_each_expected_state_is_violated_in_a_lab_test() -> None:
    """A function that accepts every host would prove nothing. `Site.assert_repaired` violates its ``spec``."""
    roles = {role.name for role in ROLES} - {"preflight"} - SHARED
    violated: set[str] = set()
    for path in sorted(LAB.glob("test_*.py")):
        tree = ast.parse(path.read_text())
        named = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for given in violations(tree):
            violated |= {*states_in(given)}
            # A method of the test may call the function.
            called = [node.attr for node in ast.walk(given) if isinstance(node, ast.Attribute)]
            violated |= {name for each in called if each in named for name in states_in(named[each])}
    assert roles - violated == set()


def violations(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what calls give to `is_violated`, and to others as ``spec``."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) == "expected_state.is_violated":
            yield call.args[0]
        yield from (each.value for each in call.keywords if each.arg == "spec")


def states_in(node: ast.AST) -> Iterator[str]:
    """Yield X for each expected_state.X in the code."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "expected_state":
            yield each.attr


#: Variables that may contain a URL with a password.
SECRET = re.compile(r"\w+_index_url|proxy_https?")


def test_variables_that_may_contain_a_password_are_not_logged() -> None:
    options = {name: option for role in ROLES for name, option in options_of(role.name).items()}
    secret = {name: option for name, option in options.items() if SECRET.fullmatch(name)}
    assert {"proxy_http", "proxy_https", "preflight_index_url", "wheels_index_url"} <= {*secret}
    assert [name for name, option in secret.items() if option.get("no_log") is not True] == []


def test_no_task_has_a_proxy_in_its_environment() -> None:
    """Ansible writes these variables on the command line of sudo, and the URL of a proxy may contain a password."""
    data = ansible.data_dir()
    files = [
        path for pattern in ("playbooks/*.yml", "playbooks/*/*.yml", "roles/*/*/*.yml") for path in data.glob(pattern)
    ]
    assert len(files) > 100
    assert [path for path in files if re.search(r"\bhttps?_proxy\b['\"]?:", path.read_text())] == []


def test_no_role_sends_files_to_a_directory_of_all_users() -> None:
    """Another user could put a file of the same name there, and change it after its hash was compared."""
    files = [*ansible.data_dir().glob("roles/*/*/*.yml")]
    assert len(files) > 100
    assert [path for path in files if "/var/tmp" in path.read_text()] == []
    modes = []
    for task in (task for role in ROLES for path in (role / "tasks").glob("*.yml") for task in tasks_of(read(path))):
        given = task.get("ansible.builtin.file", {})
        if isinstance(given, dict) and ("sent }}" in str(given) or "/tfctl-sent" in str(given)):
            modes.append((given["owner"], given["mode"]))
    assert modes == [("root", "0700")] * 3


@pytest.mark.parametrize(
    ("role", "entry"), [("shared_storage", "verify"), ("wheels", "download")], ids=lambda name: str(name)
)
def test_tasks_that_others_include_alone_have_argument_specs(role: str, entry: str) -> None:
    specs = read(ansible.data_dir() / f"roles/{role}/meta/argument_specs.yml")["argument_specs"]
    options, those_of_the_role = specs[entry]["options"], specs["main"]["options"]
    assert {name: those_of_the_role[name] for name in options} == options
    tasks = (ansible.data_dir() / f"roles/{role}/tasks/{entry}.yml").read_text()
    assert {*re.findall(rf"\b{role}_\w+", tasks)} & {*those_of_the_role} <= {*options}


def test_roles_name_the_releases_that_tfctl_provisions() -> None:
    systems = read(ansible.data_dir() / "tfctl/model/stacks/systems.yaml")
    names = {"bullseye": "debian-11", "bookworm": "debian-12", "trixie": "debian-13"}
    names |= {"jammy": "ubuntu-22.04", "noble": "ubuntu-24.04", "9": "el-9"}
    for role in ROLES:
        platforms = read(role / "meta/main.yml")["galaxy_info"]["platforms"]
        claimed = [names.get(version, version) for each in platforms for version in each["versions"]]
        assert sorted(claimed) == sorted(systems), role.name


def test_roles_read_variables_of_the_inventory_in_their_defaults_only() -> None:
    """A default shows which variable of a play replaces it. The address of another host is read from its variables."""
    files = [path for role in ROLES for part in ("tasks", "vars", "handlers") for path in (role / part).glob("*.yml")]
    named = {
        (path, name)
        for path in files
        for name in re.findall(r"(?<!groups\.)\b(tfctl_\w+) \| default", path.read_text())
    }
    assert len(files) > 50
    assert [f"{path}: {name}" for path, name in named if name != "tfctl_address"] == []


#: Lines of Python below plugins/, without blank lines, comments, docstrings and the documentation of plugins. See
#: docs/decisions.md, "how much Python the playbooks contain".
CEILING = 2700


def test_plugins_contain_no_more_python_than_was_decided() -> None:
    found = [lines_of_code(path) for path in ansible.data_dir().glob("plugins/*/*.py") if not path.is_symlink()]
    assert 0 < sum(found) <= CEILING


def lines_of_code(path: Path) -> int:
    """Return the number of lines that contain code."""
    text = path.read_text()
    told: set[int] = set()
    for node in (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.stmt)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or is_documentation(node):
            told.update(range(node.lineno, (node.end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = [token for token in tokens if token.type not in NO_CODE]
    return len({line for token in code for line in range(token.start[0], token.end[0] + 1)} - told)


NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

MANAGES = ansible.data_dir() / "playbooks/vars/manages.yml"


def test_parts_with_a_receipt_manage_what_receipts_know() -> None:
    found = read(MANAGES)["provision_manages"]
    assert [*found] == [*read(ansible.data_dir() / "playbooks/vars/roles.yml")["provision_roles"]]
    assert {kind for manages in found.values() for kind in manages} <= {*Manages.__annotations__}


@pytest.mark.extended
def test_reset_of_the_driver_rebuilds_the_initramfs_in_which_nouveau_was_blocked(tmp_path: Path) -> None:
    role = ansible.data_dir() / "roles/nvidia_driver"
    tasks = [{"ansible.builtin.debug": {"msg": "{{ provision_manages.nvidia_driver.refresh | to_json }}"}}]
    given = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
    given["vars_files"] = [str(role / "defaults/main.yml"), str(MANAGES)]
    (tmp_path / "play.yml").write_text(json.dumps([given]))
    for command, expected in {"update-initramfs -u -k all": ["update-initramfs -u -k all"], "": []}.items():
        extra = json.dumps({"nvidia_driver_initramfs_command": command.split(), "ansible_connection": "local"})
        words = [*ANSIBLE, "playbook", "-i", "localhost,", "-e", extra, str(tmp_path / "play.yml")]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert f'"msg": {json.dumps(json.dumps(expected))}' in done.stdout, done.stdout + done.stderr


def test_reset_of_the_driver_forgets_the_module_stream_that_was_enabled_for_it() -> None:
    manages = read(MANAGES)["provision_manages"]["nvidia_driver"]
    assert "/etc/dnf/modules.d/nvidia-driver.module" in manages["paths"]


def test_tags_are_the_roles_and_the_entry_points_of_the_library_role() -> None:
    assert {*PARTS} == {role.name for role in ROLES} - SHARED | {*LIBRARIES}
    plays = read(ansible.data_dir() / "playbooks/provision.yml")
    tags = {tag for play in plays for task in play["tasks"] for tag in task["tags"]} - {"always"}
    chosen = [*read(ansible.data_dir() / "playbooks/vars/roles.yml")["provision_roles"]]
    assert tags == {"preflight", "shared_storage", "dataset", "ssh_mesh"} and {*PARTS} == tags | {*chosen}
    assert chosen[:-1] == [part for part in PARTS if part in chosen and part != "nvidia_driver"]


def test_a_host_without_the_driver_that_it_needs_has_everything_else() -> None:
    """The role fails on a host that needs a reboot and must not be rebooted."""
    assert [*read(ansible.data_dir() / "playbooks/vars/roles.yml")["provision_roles"]][-1] == "nvidia_driver"


def test_selinux_labels_are_restored_between_the_role_and_its_receipt() -> None:
    """The receipt contains the times of files, which a label changes."""
    tasks = read(ansible.data_dir() / "playbooks/tasks/role.yml")[1]["block"]
    kinds = [next(name for name in task if name.startswith(("tfctl.cluster.", "ansible.builtin."))) for task in tasks]
    assert kinds == ["ansible.builtin.include_role", "ansible.builtin.include_tasks", "tfctl.cluster.receipt"]
    (relabel,) = read(ansible.data_dir() / "playbooks/tasks" / tasks[1]["ansible.builtin.include_tasks"])
    assert relabel["ansible.builtin.command"]["argv"].startswith("{{ ['restorecon', ")


def inclusions() -> Iterator[tuple[str, set[str]]]:
    """Yield (role, variables) for each place where a playbook or a role includes a role with variables."""
    data = ansible.data_dir()
    for path in [*data.glob("playbooks/*.yml"), *data.glob("playbooks/tasks/*.yml"), *data.glob("roles/*/tasks/*.yml")]:
        for task in read(path):
            for each in [task, *task.get("tasks", []), *task.get("block", [])]:
                for kind in ("ansible.builtin.import_role", "ansible.builtin.include_role"):
                    if kind in each:
                        yield each[kind]["name"].removeprefix("tfctl.cluster."), {*each.get("vars", {})}


def options_of(part: str) -> dict[str, Any]:
    role, entry = role_of(part)
    path = ansible.data_dir() / f"roles/{role}/meta/argument_specs.yml"
    return dict(read(path)["argument_specs"][entry]["options"])


def test_roles_are_included_with_variables_that_they_declare() -> None:
    found = [(role, variables) for role, variables in inclusions() if "{{" not in role]
    assert {"nvidia_packages", "packages", "toolchain"} <= {role for role, _ in found}
    for role, variables in found:
        options = options_of(role)
        assert variables - {*options} == set(), role
        assert {name for name, option in options.items() if option.get("required")} <= variables, role


def test_playbook_sets_only_variables_that_the_roles_declare() -> None:
    given = read(ansible.data_dir() / "playbooks/vars/roles.yml")
    roles = given["provision_roles"]
    # Roles of the playbook include the role wheels.
    declared = {name for role in (*roles, "wheels") for name in options_of(role)}
    assert {name for name in given if not name.startswith("provision_")} - declared == set()
    assert {*given["provision_live"]} <= {*roles}
    assert {name for name in options_of("nvidia_driver") if name in given} >= MOMENTARY


@pytest.mark.extended  # ansible-lint, which runs with every change, makes the same check
def test_playbooks_pass_the_syntax_check() -> None:
    playbooks = sorted(map(str, (ansible.data_dir() / "playbooks").glob("*.yml")))
    words = [*ANSIBLE, "playbook", "--syntax-check", "-i", "localhost,", *playbooks]
    # Some groups are made during the run.
    settings = {**os.environ, "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore"}
    done = subprocess.run(words, cwd=ansible.data_dir(), env=settings, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in playbooks if f"playbook: {name}" not in done.stdout] == []
