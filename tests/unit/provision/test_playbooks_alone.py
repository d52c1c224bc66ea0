"""The playbooks run by ansible-playbook alone, in a Python environment without tfctl."""

from __future__ import annotations

import ast
import json
import os
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from tests.linked_collection import link_collection
from tests.unit.provision.playbooks_alone import ansible_playbook, packages_without_tfctl
from tfctl.model import stacks
from tfctl.provision import ansible, control

ROOT = ansible.data_dir()
Run = Callable[..., dict[str, Any]]
#: Prints what group_vars/all.yml beside the playbooks gives to a host.
SHOW = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ [tfctl_cache, tfctl_built, tfctl_tools, hostvars['here'].tfctl_dial] }}"
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages_without_tfctl(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def run(packages: Path, tmp_path: Path) -> Run:
    """Run a playbook with the ansible.cfg of the checkout."""
    return partial(ansible_playbook, packages, tmp_path, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))


def test_contract_about_imports_names_every_module_that_plugins_import() -> None:
    """It forbids what an Ansible without tfctl's packages does not have."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (sources,) = (each["source_modules"] for each in contracts if each["name"].startswith("what Ansible's plugins"))
    plugins = [
        path for kind in ("action", "callback", "filter", "lookup") for path in ROOT.glob(f"plugins/{kind}/*.py")
    ]
    nodes = (node for plugin in plugins for node in ast.walk(ast.parse(plugin.read_text())))
    statements = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfctl")
    ]
    imported = {f"{node.module}.{each.name}." for node in statements for each in node.names}
    assert len(imported) > 10
    assert [name for name in sorted(imported) if not name.startswith(tuple(f"{source}." for source in sources))] == []


def test_provision_decides_without_the_tfctl_command(run: Run) -> None:
    """The settings are text, as an INI inventory gives them."""
    settings = "tfctl_stack=tf9 tfctl_uid=5000 tfctl_output_roots='/srv/tfctl, /srv' tfctl_driver=580 tfctl_horovod=yes"
    found = run(ROOT / "playbooks/provision.yml", settings, "--check")
    faults = {fault["message"]: fault for fault in found["faults"]}
    assert faults["tfctl_uid 5000 is not the ID of a system user"]["kind"] == "inventory"
    assert ", ".join(stacks.load()) in faults["tfctl_stack: no stack is called 'tf9'"]["remedy"]


@pytest.mark.extended
def test_provision_refuses_a_directory_that_is_no_python_tree(run: Run, tmp_path: Path) -> None:
    playbook = ROOT / "playbooks/provision.yml"
    found = run(playbook, f"tfctl_stack=none tfctl_python_trees={tmp_path}", "--check")
    (fault,) = found["faults"]
    assert fault["message"] == f"{tmp_path} is not a CPython tree" and fault["kind"] == "inventory"


@pytest.mark.extended
def test_explain_runs_without_the_tfctl_command(run: Run) -> None:
    found = run(ROOT / "playbooks/explain.yml", "")
    assert set(found["explained"]["stacks"]) == set(stacks.load())
    assert "no stack is named" not in json.dumps(found)


def test_playbooks_get_the_values_of_the_control_machine(run: Run, tmp_path: Path) -> None:
    collections = link_collection(tmp_path, {"playbooks/show.yml": SHOW})
    found = run("tfctl.cluster.show", "tfctl_address=192.0.2.7", ANSIBLE_COLLECTIONS_PATH=str(collections))
    cache = tmp_path / "cache/tfctl"
    assert found["msg"] == [f"{cache}/wheels", f"{cache}/built", str(stacks.TOOLS), "192.0.2.7"]


#: Prints whether the host needs sudo. The task runs on the control machine.
SUDO = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ tfctl_become }}"
"""


def test_a_local_host_needs_sudo_unless_root_runs_ansible(run: Run, tmp_path: Path) -> None:
    """Whatever ansible_user says, which is about ssh."""
    collections = link_collection(tmp_path, {"playbooks/show.yml": SUDO})
    for user in ("", "ansible_user=root", "ansible_user=ops"):
        found = run("tfctl.cluster.show", user, ANSIBLE_COLLECTIONS_PATH=str(collections))
        assert found["msg"] is (os.geteuid() != 0), user


@pytest.mark.parametrize(("user", "sudo"), [("", True), ("ansible_user=ops", True), ("ansible_user=root", False)])
def test_another_host_needs_sudo_unless_root_logs_in(user: str, sudo: bool, run: Run, tmp_path: Path) -> None:
    collections = link_collection(tmp_path, {"playbooks/show.yml": SUDO})
    found = run("tfctl.cluster.show", f"ansible_connection=ssh {user}", ANSIBLE_COLLECTIONS_PATH=str(collections))
    assert found["msg"] is sudo


@pytest.mark.parametrize("cache", ["", "/var/cache/me"])
def test_cache_is_the_directory_of_the_platform(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert control.cache() == platformdirs.user_cache_path("tfctl")
