"""The role nvidia_driver returns to the previous driver, unless there is none or something uses the GPUs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.linked_collection import link_collection
from tests.unit.provision.role_play import check, play

#: A fake of gpu_state, as an action: a job runs on the host "busy".
STATE = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        busy = task_vars["inventory_hostname"] == "busy"
        return {**super().run(tmp, task_vars), "in_use": "tfctl-a-worker-0.service run" if busy else ""}
"""
#: A fake of the role nvidia_packages that prints what it is to install. On the host "offline", apt fails.
PACKAGES = """
- ansible.builtin.debug:
    msg: "{{ inventory_hostname }} {{ nvidia_packages_component }}: {{ nvidia_packages_names | join(' ') }}"
  when: nvidia_packages_rollback
- ansible.builtin.fail:
    msg: Failed to fetch
  when: inventory_hostname == 'offline'
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: tfctl.cluster.nvidia_driver
        tasks_from: rollback
"""


def roll_back(folder: Path, **variables: str) -> str:
    """Run the play in check mode with the fakes; return the output of ansible-playbook."""
    fakes = {"plugins/action/gpu_state.py": STATE, "roles/nvidia_packages/tasks/main.yml": PACKAGES}
    collections = link_collection(folder, {"roles/nvidia_packages": None, **fakes})
    (folder / "play.yml").write_text(PLAY)
    settings = {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }  # fmt: skip
    # In check mode, the pins of this machine stay.
    words = [sys.executable, "-m", "ansible", "playbook", "--check", "-i", "hosts", "-e", json.dumps(variables)]
    done = subprocess.run([*words, "play.yml"], cwd=folder, env=settings, capture_output=True, text=True, timeout=90)
    return done.stdout + done.stderr


@pytest.mark.extended
def test_rollback_checks_its_variables(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("free ansible_connection=local\n")
    output = roll_back(tmp_path, nvidia_driver_packager="yum")
    assert "value of nvidia_driver_packager must be one of: auto, apt-get, dnf, got: yum" in output, output


@pytest.mark.extended
def test_rollback_installs_the_versions_before_the_last_change(tmp_path: Path) -> None:
    before = {"nvidia_driver": {"libcuda1": "535.2-1", "nvidia-smi": "535.2-1"}, "cuda": {"libcudart12": "1"}}
    (tmp_path / "before.json").write_text(json.dumps(before))
    (tmp_path / "other.json").write_text(json.dumps({"cuda": {"libcudart12": "1"}}))
    records = {"free": "before", "busy": "before", "new": "none", "other": "other"}
    lines = [f"{host} ansible_connection=local record={tmp_path}/{name}.json\n" for host, name in records.items()]
    (tmp_path / "hosts").write_text("".join(lines))
    output = roll_back(tmp_path, nvidia_driver_previous_record="{{ record }}")
    assert "free nvidia_driver: libcuda1=535.2-1 nvidia-smi=535.2-1" in output, output
    refused = re.findall(
        r"^fatal: \[(\w+)\]: FAILED! .*(not changed while tfctl-a-worker-0|no earlier driver)", output, re.M
    )
    missing = "no earlier driver"
    assert sorted(refused) == [("busy", "not changed while tfctl-a-worker-0"), ("new", missing), ("other", missing)]
    assert "busy nvidia_driver" not in output


@pytest.mark.extended
def test_rollback_removes_its_pins_also_if_the_packages_cannot_be_downloaded(tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text(json.dumps({"nvidia_driver": {"libcuda1": "535.2-1"}}))
    (tmp_path / "hosts").write_text("offline ansible_connection=local\n")
    output = roll_back(tmp_path, nvidia_driver_previous_record=f"{tmp_path}/before.json")
    assert "Failed to fetch" in output and "failed=1" in output, output
    removal = output.partition("TASK [tfctl.cluster.nvidia_driver : Remove the pins of these versions]")[2]
    assert re.match(r" \*+\n(?:ok|changed): \[offline\]", removal), output


@pytest.mark.extended
def test_rollback_enables_the_module_stream_of_the_previous_branch(tmp_path: Path) -> None:
    """Without it, dnf finds none of the packages."""
    records = {
        "nvidia-driver:570-open": {"libnvidia-ml": "3:570.133.20-1.el9", "nvidia-open": "3:570.133.20-1.el9"},
        "nvidia-driver:535-dkms": {"cuda-drivers": "535.183.06-1", "nvidia-fabric-manager": "0:535.183.06-1"},
        "": {"libcuda1": "535.2-1", "nvidia-open-580": "580.65.06-1"},
    }
    tasks = [
        check(f"nvidia_driver_previous_stream == '{stream}'", nvidia_driver_previous=found)
        for stream, found in records.items()
    ]
    play(tmp_path, "nvidia_driver", tasks)
