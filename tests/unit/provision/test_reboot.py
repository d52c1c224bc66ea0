"""The role nvidia_driver reboots hosts in batches, and checks each host again when its batch begins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.provision import ansible

#: A fake of tfctl_gpu_state, as an action. It logs each host that it checks. At the second check "begins" has a job.
STATE = """
from pathlib import Path

from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        host, log = self._task.args["control"]["host"], Path(self._task.args["control"]["log"])
        before = log.read_text().split() if log.exists() else []
        with log.open("a") as file:
            file.write(host + "\\n")
        busy = host == "busy" or (host == "begins" and host in before)
        reason = "" if host == "fine" else "old driver"
        return {**super().run(tmp, task_vars), "reason": reason, "objection": "a job" if busy else "", "boot_id": "b"}
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - tfctl_gpu_state:
        control: "{{ nvidia_driver_control }}"
      register: nvidia_driver_state
    - ansible.builtin.include_role:
        name: nvidia_driver
        tasks_from: reboot
"""


@pytest.mark.parametrize("batch", [1, 2])
def test_reboot_checks_a_host_again_when_its_batch_begins(tmp_path: Path, batch: int) -> None:
    """Ansible refuses to reboot over a local connection; its error shows which hosts it would have rebooted."""
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins/tfctl_gpu_state.py").write_text(STATE)
    (tmp_path / "play.yml").write_text(PLAY)
    names, log = ["fine", "first", "busy", "begins", "last"], tmp_path / "log"
    (tmp_path / "hosts").write_text("".join(f"{name} ansible_connection=local\n" for name in names))
    extra = {
        "nvidia_driver_reboot": True, "nvidia_driver_reboot_batch": batch, "ansible_python_interpreter": sys.executable,
        "nvidia_driver_control": {"host": "{{ inventory_hostname }}", "log": str(log)},
    }  # fmt: skip
    settings = {
        "ANSIBLE_ROLES_PATH": str(ansible.data_dir() / "roles"),
        "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
    }  # fmt: skip
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts", "-e", json.dumps(extra), "play.yml"]
    ended = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True, timeout=90
    )
    refused = re.findall(r"fatal: \[(\w+)\].*would reboot the control node", ended.stdout)
    assert sorted(refused) == ["first", "last"], ended.stdout + ended.stderr
    checked = log.read_text().split()
    assert sorted(checked[:5]) == sorted(names)
    assert sorted(checked[5:]) == ["begins", "first", "last"]
    again = [found.start() for found in re.finditer("TASK .*Inspect the driver again", ended.stdout)]
    assert len(again) == (3 if batch == 1 else 2)
    ends = [*again[1:], len(ended.stdout)]
    turns = [{name for name in ("first", "last") if begun < ended.stdout.index(f"fatal: [{name}]") < end}
             for begun, end in zip(again, ends, strict=True)]  # fmt: skip
    assert {"first", "last"} not in turns, "the two hosts belong to different batches"
