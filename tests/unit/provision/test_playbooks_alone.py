"""The playbooks run by ansible-playbook alone, in a Python environment without tfctl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from tfctl.model import stacks
from tfctl.provision import ansible, control
from tfctl.provision.node_part import version

ROOT = ansible.data_dir()
LOCAL = "ansible_connection=local ansible_user=root ansible_python_interpreter={{ansible_playbook_python}}"
#: Prints what group_vars/all.yml beside the playbooks gives to a host.
SHOW = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ [tfctl_cache, tfctl_built, tfctl_tools, hostvars['here'].tfctl_dial] }}"
"""


def ansible_playbook(folder: Path, playbook: Path, settings: str, *words: str) -> dict[str, Any]:
    """Run a playbook on this machine, as the host "here" with these settings, and return the result of its first task.

    Python has only the packages of PYTHONPATH. It does not find tfctl, which the editable install adds by a .pth file.
    """
    (folder / "hosts.ini").write_text(f"here {LOCAL} {settings}\n")
    environment = {
        **os.environ,
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
    }
    command = [sys.executable, "-S", "-P", "-m", "ansible", "playbook", "-i", "hosts.ini", str(playbook), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    assert "=> {" in done.stdout, done.stdout + done.stderr
    found, _ = json.JSONDecoder().raw_decode(done.stdout.partition("=> ")[2])
    return dict(found)


def test_tfctl_is_not_found_in_the_environment_of_these_tests(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    command = [sys.executable, "-S", "-P", "-c", "import ansible, tfctl"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert "No module named 'tfctl'" in done.stderr


def test_provision_decides_without_the_tfctl_command(tmp_path: Path) -> None:
    """The settings are text, as an INI inventory gives them."""
    settings = "tfctl_stack=tf9 tfctl_uid=5000 tfctl_output_roots='/srv/tfctl, /srv' tfctl_driver=580 tfctl_horovod=yes"
    found = ansible_playbook(tmp_path, ROOT / "playbooks/provision.yml", settings, "--check")
    faults = {fault["message"]: fault for fault in found["faults"]}
    assert faults["tfctl_uid 5000 is not a system user's number"]["kind"] == "inventory"
    assert ", ".join(stacks.load()) in faults["tfctl_stack: no stack is called 'tf9'"]["remedy"]
    assert {"/srv/tfctl", "/srv"} < set(found["seen"]["disks"])


def test_provision_refuses_a_python_tree_that_is_none(tmp_path: Path) -> None:
    playbook = ROOT / "playbooks/provision.yml"
    found = ansible_playbook(tmp_path, playbook, f"tfctl_stack=none tfctl_python_trees={tmp_path}", "--check")
    (fault,) = found["faults"]
    assert fault["message"] == f"{tmp_path} is not a CPython tree" and fault["kind"] == "inventory"


def test_explain_runs_without_the_tfctl_command(tmp_path: Path) -> None:
    found = ansible_playbook(tmp_path, ROOT / "playbooks/explain.yml", "")
    assert set(found["explained"]["stacks"]) == set(stacks.load())
    assert "no stack is named" not in json.dumps(found)


def test_playbooks_get_the_values_of_the_control_machine(tmp_path: Path) -> None:
    playbooks = tmp_path / "playbooks"
    playbooks.mkdir()
    for name in ("group_vars", "lookup_plugins"):
        (playbooks / name).symlink_to(ROOT / "playbooks" / name)
    (playbooks / "show.yml").write_text(SHOW)
    found = ansible_playbook(tmp_path, playbooks / "show.yml", "tfctl_address=192.0.2.7")
    cache = tmp_path / "cache/tfctl"
    assert found["msg"] == [f"{cache}/wheels", f"{cache}/built", str(stacks.TOOLS), version(), "192.0.2.7"]


@pytest.mark.parametrize("cache", ["", "/var/cache/me"])
def test_cache_is_the_directory_of_the_platform(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert control.cache() == platformdirs.user_cache_path("tfctl")
