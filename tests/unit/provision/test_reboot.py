"""Reboots by the role nvidia_driver: a batch at a time, and a host is looked at again when its turn has come."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.remote import ansible

#: In place of the module: what it says of each host, and a log of who was looked at. "begins" has a job at its second.
STATE = """
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"control": {"type": "dict"}})
host, log = module.params["control"]["host"], Path(module.params["control"]["log"])
before = log.read_text().split() if log.exists() else []
with log.open("a") as file:
    file.write(host + "\\n")
busy = host == "busy" or (host == "begins" and host in before)
reason = "" if host == "fine" else "old driver"
module.exit_json(changed=False, reason=reason, objection="a job" if busy else "", boot_id="b")
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
def test_a_host_is_looked_at_again_when_it_is_its_turn_to_be_rebooted(tmp_path: Path, batch: int) -> None:
    """Ansible refuses to reboot by a local connection, which tells here whom it would have rebooted."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/tfctl_gpu_state.py").write_text(STATE)
    (tmp_path / "play.yml").write_text(PLAY)
    names, log = ["fine", "first", "busy", "begins", "last"], tmp_path / "log"
    (tmp_path / "hosts").write_text("".join(f"{name} ansible_connection=local\n" for name in names))
    extra = {
        "nvidia_driver_reboot": True, "nvidia_driver_reboot_batch": batch, "ansible_python_interpreter": sys.executable,
        "nvidia_driver_control": {"host": "{{ inventory_hostname }}", "log": str(log)},
    }  # fmt: skip
    settings = {
        "ANSIBLE_LIBRARY": str(tmp_path / "library"), "ANSIBLE_ROLES_PATH": str(ansible.data_dir() / "roles"),
        "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
    }  # fmt: skip
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts", "-e", json.dumps(extra), "play.yml"]
    ended = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True, timeout=90
    )
    refused = re.findall(r"fatal: \[(\w+)\].*would reboot the control node", ended.stdout)
    assert sorted(refused) == ["first", "last"], ended.stdout + ended.stderr
    looked = log.read_text().split()
    assert sorted(looked[:5]) == sorted(names)
    assert sorted(looked[5:]) == ["begins", "first", "last"]
    again = [found.start() for found in re.finditer("TASK .*Look at the driver once more", ended.stdout)]
    assert len(again) == (3 if batch == 1 else 2)
    ends = [*again[1:], len(ended.stdout)]
    turns = [{name for name in ("first", "last") if begun < ended.stdout.index(f"fatal: [{name}]") < end}
             for begun, end in zip(again, ends, strict=True)]  # fmt: skip
    assert {"first", "last"} not in turns, "they are of two batches"
