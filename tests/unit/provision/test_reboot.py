"""The role nvidia_driver reboots hosts in batches, checks each host again, and stops when a host does not come back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.linked_collection import link_collection
from tfctl.provision import ansible

#: A fake of gpu_state, as an action. It logs each host that it checks. At the second check "begins" has a job. On
#: "broken", the driver does not load after the reboot.
STATE = """
from pathlib import Path

from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        host, log = self._task.args["control"]["host"], Path(self._task.args["control"]["log"])
        before = log.read_text().split() if log.exists() else []
        with log.open("a") as file:
            file.write(host + "\\n")
        if host == "broken" and self._task.args.get("insist"):
            return {**super().run(tmp, task_vars), "failed": True, "msg": "the driver is not loaded"}
        busy = host == "busy" or (host == "begins" and host in before)
        reason = "" if host == "fine" else "old driver"
        boots = Path("BOOTS")
        boot = "second" if boots.exists() and host in boots.read_text().split() else "first"
        return {**super().run(tmp, task_vars), "reason": reason, "objection": "a job" if busy else "", "boot_id": boot}
"""
#: A fake of the action reboot, which logs each host. Ansible refuses to reboot over a local connection.
REBOOT = """
from pathlib import Path

from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        with Path("BOOTS").open("a") as file:
            file.write(task_vars["inventory_hostname"] + "\\n")
        return {**super().run(tmp, task_vars), "changed": True, "rebooted": True}
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - tfctl.cluster.gpu_state:
        control: "{{ nvidia_driver_control }}"
      register: nvidia_driver_state
    - ansible.builtin.include_role:
        name: tfctl.cluster.nvidia_driver
        tasks_from: reboot
"""


def rebooted(
    folder: Path, names: list[str], batch: int, *, fake: bool = False, **more_variables: str
) -> tuple[str, list[str]]:
    """Run the reboots on these hosts. Return the output and the names of the hosts in the order of their checks.

    Ansible refuses to reboot over a local connection: each reboot fails, and its error shows which host it was. With
    ``fake``, a copy of the role runs the fake instead, which never fails.
    """
    (folder / "play.yml").write_text(PLAY)
    more: dict[str, str | None] = {"plugins/action/gpu_state.py": STATE.replace("BOOTS", f"{folder}/boots")}
    if fake:
        more["plugins/action/fake_reboot.py"] = REBOOT.replace("BOOTS", f"{folder}/boots")
        tasks = (ansible.data_dir() / "roles/nvidia_driver/tasks/batch.yml").read_text()
        renamed = tasks.replace("ansible.builtin.reboot:", "tfctl.cluster.fake_reboot:")
        more["roles/nvidia_driver/tasks/batch.yml"] = renamed
    log = folder / "log"
    (folder / "hosts").write_text("".join(f"{name} ansible_connection=local\n" for name in names))
    extra = {
        "nvidia_driver_reboot": True, "nvidia_driver_reboot_batch": batch, "ansible_python_interpreter": sys.executable,
        "nvidia_driver_control": {"host": "{{ inventory_hostname }}", "log": str(log)},
        # The services of this machine are left alone.
        "nvidia_driver_device_nodes": False, "nvidia_driver_services": [], **more_variables,
    }  # fmt: skip
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(link_collection(folder, more)),
        "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
    }  # fmt: skip
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts", "-e", json.dumps(extra), "play.yml"]
    ended = subprocess.run(
        words, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, timeout=90
    )
    return ended.stdout + ended.stderr, log.read_text().split()


@pytest.mark.extended
def test_reboot_checks_a_host_again_when_its_batch_begins(tmp_path: Path) -> None:
    output, checked = rebooted(tmp_path, ["fine", "busy", "begins", "last"], 1)
    assert re.findall(r"fatal: \[(\w+)\].*would reboot the control node", output) == ["last"], output
    assert sorted(checked[:4]) == ["begins", "busy", "fine", "last"]
    assert checked[4:] == ["begins", "last"], "a host without a reason, or with a job from the beginning, has no batch"


def test_reboot_begins_with_one_host_and_stops_when_it_fails(tmp_path: Path) -> None:
    output, checked = rebooted(tmp_path, ["first", "second", "third"], 2)
    assert re.findall(r"fatal: \[(\w+)\].*would reboot the control node", output) == ["first"], output
    assert checked[3:] == ["first"]
    for name in ("second", "third"):
        said = "needs a reboot: old driver. It was not rebooted, because first failed after its reboot"
        assert re.search(rf"fatal: \[{name}\].*{said}", output), output


@pytest.mark.extended
def test_reboot_stops_after_a_host_whose_driver_does_not_load(tmp_path: Path) -> None:
    output, checked = rebooted(tmp_path, ["works", "broken", "third"], 1, fake=True)
    assert re.search(r"fatal: \[broken\].*the driver is not loaded", output), output
    said = "needs a reboot: old driver. It was not rebooted, because broken failed after its reboot"
    assert re.search(rf"fatal: \[third\].*{said}", output), output
    assert (tmp_path / "boots").read_text().split() == ["works", "broken"]
    assert checked[3:] == ["works"] * 3 + ["broken"] * 3, "before the reboot, after it, and with the services"


@pytest.mark.extended
def test_hosts_are_taken_out_of_service_before_their_reboot_and_returned_when_they_work(tmp_path: Path) -> None:
    """Of a host whose command fails, nothing is rebooted; one that does not work stays out of service."""
    commands = {
        "nvidia_driver_drain": f"echo drain $TFCTL_HOST >>{tmp_path}/boots; test $TFCTL_HOST != refused",
        "nvidia_driver_undrain": f"echo undrain $TFCTL_HOST >>{tmp_path}/boots",
    }
    output, _ = rebooted(tmp_path, ["works", "broken"], 1, fake=True, **commands)
    done = (tmp_path / "boots").read_text().splitlines()
    assert done == ["drain works", "works", "undrain works", "drain broken", "broken"], output
    (tmp_path / "other").mkdir()
    commands = {name: text.replace(str(tmp_path), f"{tmp_path}/other") for name, text in commands.items()}
    output, _ = rebooted(tmp_path / "other", ["refused"], 1, fake=True, **commands)
    assert (tmp_path / "other/boots").read_text() == "drain refused\n", output


def test_reboot_waits_for_a_host_as_long_as_the_page_says() -> None:
    """The default of Ansible is ten minutes, in which a machine with eight GPUs may not have tested its memory."""
    tasks = yaml.safe_load((ansible.data_dir() / "roles/nvidia_driver/tasks/batch.yml").read_text())
    (reboot,) = (task["ansible.builtin.reboot"] for task in tasks if "ansible.builtin.reboot" in task)
    page = " ".join((ansible.data_dir() / "docs/gpu.md").read_text().split())
    assert f"Each host has {reboot['reboot_timeout'] // 60} minutes to boot." in page
    assert reboot["reboot_timeout"] == 1800
