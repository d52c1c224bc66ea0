"""The action plugins decide on the control machine from what modules gather on hosts. Here, the modules are fakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.linked_collection import link_collection
from tests.unit.provision.fresh_host import HOST
from tests.unit.provision.test_gpu import SMI_FIELDS, gpu_facts
from tfctl.provision.decide.facts import UnchangedGpuFacts
from tfctl.provision.inspection import preferences_of

#: A fake of a module. It returns what the test gives to the host. The clock of the host is off by what the test gives.
MODULE = """
import json, os, time

from ansible.module_utils.basic import AnsibleModule

listed, text = {"type": "list"}, {"type": "str"}
spec = dict(uid={"type": "int"}, directories=listed, pythons=listed, libraries=listed, address=text, peers=listed)
result = json.loads(os.environ["FAKE_RESULT"])
clock = result.get("seen", {}).get("clock", {})
clock.update({name: time.time() + seconds for name, seconds in clock.items()})
AnsibleModule(spec).exit_json(changed=False, **result)
"""
PLAY = """
- hosts: all
  gather_facts: false
  environment: {FAKE_RESULT: "{{ gathered | to_json }}"}
"""
DRIVER = """
  tasks:
    - tfctl.cluster.gpu_state:
        control: {machine_id: m0, boot_id: b0, local: false}
        insist: "{{ insist | default(false) }}"
"""
PREFLIGHT = """
  roles:
    - role: tfctl.cluster.preflight
"""
WORKS: dict[str, Any] = {
    "devices": ["20b5"], "loaded": "535.161.07", "version": "535.161.07",
    "smi": ["GPU-1, NVIDIA A100 80GB PCIe, 8.0, 535.161.07, Disabled, Enabled"],
}  # fmt: skip
#: A clock that is 15 minutes slow.
SLOW = {"begun": -900.0, "ended": -900.0}
pytestmark = pytest.mark.timeout(300)


def run(folder: Path, tasks: str, hosts: dict[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], str]:
    """Run the tasks on hosts with these variables; return what the tasks of each host returned, and all warnings."""
    collections = link_collection(folder, {f"plugins/modules/{name}.py": MODULE for name in ("facts", "gpu_state")})
    (folder / "play.yml").write_text(PLAY + tasks)
    inventory = {name: {**given, "ansible_connection": "local"} for name, given in hosts.items()}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": inventory}}))
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "minimal", "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
    }  # fmt: skip
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml"]
    environment = {**os.environ, **settings}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    found = re.split(r"^(\w+) \| [A-Z!]+ => ", done.stdout, flags=re.MULTILINE)
    decode = json.JSONDecoder().raw_decode
    results: dict[str, dict[str, Any]] = {}
    for name, text in zip(found[1::2], found[2::2], strict=True):
        results.setdefault(name, {}).update(decode(text)[0])
    assert set(results) == set(hosts), done.stdout + done.stderr
    return results, " ".join(done.stderr.split())


def gathered(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return what the modules would gather on a host with this driver."""
    known = gpu_facts({**gpu, "smi": []})
    kept = {each.name: known[each.name] for each in fields(UnchangedGpuFacts)}
    smi = {"query": SMI_FIELDS, "code": 0, "said": "\n".join(gpu["smi"])}
    packages = [["libcuda1", gpu["version"], "NVIDIA", ""]]
    more: dict[str, Any] = {"packages": packages, "holds": {}, "installer": None, "persistenced": False, "dkms": ""}
    return {**kept, **more, "smi": smi if gpu["loaded"] else None}


@pytest.mark.extended
def test_decision_and_notices_come_from_the_facts_and_the_text_of_an_inventory(tmp_path: Path) -> None:
    disks = {**HOST["disks"], "/data": HOST["disks"]["/srv/tfctl"]}
    seen = {**HOST, "disks": disks, "gpu": gathered({**WORKS, "newest": "6.1.0-99-amd64"})}
    settings = {
        "tfctl_stack": "tf2.15", "tfctl_uid": "880", "tfctl_output_roots": "/srv/tfctl, /data",
        "tfctl_horovod": "yes", "tfctl_driver": 535, "tfctl_allow_unverified": True,
    }  # fmt: skip
    hosts = {"fit": {**settings, "gathered": {"seen": seen}}, "unfit": {**settings, "gathered": {"seen": {}}}}
    results, warnings = run(tmp_path, PREFLIGHT, hosts)
    decision = results["fit"]["decision"]
    assert (decision["output_roots"], decision["operators"]) == (["/srv/tfctl", "/data"], ["ops"])
    assert decision["stack"]["python"]["from"] == "this host" and decision["stack"]["edition"] == "gpu"
    assert (decision["gpu"], decision["horovod"]["version"]) == (None, "0.28.1")
    assert "kernel 6.1.0-99-amd64 is installed, 6.1.0-18-amd64 runs" in warnings
    assert {**results["fit"]["seen"], "clock": seen["clock"]} == seen
    assert not results["fit"].get("faults")
    assert "facts: system: missing" in results["unfit"]["msg"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], ()),
        (["True"], ("all",)),
        (["yes"], ("all",)),
        (["no"], ()),
        (["all"], ("all",)),
        (["8793F200", " cuda-12.5.1"], ("8793F200", "cuda-12.5.1")),
    ],
)
def test_boolean_in_place_of_the_unverified_names_means_all_or_none(given: list[str], names: tuple[str, ...]) -> None:
    preferences = preferences_of({"allow_unverified": given, "driver": None})
    assert (preferences.allow_unverified, preferences.driver) == (names, "auto")


@pytest.mark.extended
def test_faults_between_hosts_are_reported_together_with_faults_of_each_host(tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "clone": {"identity": {"hostname": "clone", "machine_id": "1", "boot_id": "3"}, "sudo": False},
        "named": {"identity": {"hostname": "named", "machine_id": "4", "boot_id": "4"}, "addresses": ["127.0.1.1"]},
        "wrong": {"identity": {"hostname": "wrong", "machine_id": "5", "boot_id": "5"}, "clock": SLOW},
        "synced": {"identity": {"hostname": "synced", "machine_id": "6", "boot_id": "6"}, "clock": SLOW},
    }
    given = {"tfctl_stack": "none", "ansible_host": "10.0.0.1"}
    hosts = {name: {**given, "gathered": {"seen": {**HOST, **seen}}} for name, seen in {"node1": {}, **changes}.items()}
    hosts["synced"]["tfctl_time_sync"] = "yes"
    hosts["named"]["tfctl_address"] = "named"
    results, _ = run(tmp_path, PREFLIGHT, hosts)
    found = {name: [fault["message"] for fault in each.get("faults", [])] for name, each in results.items()}
    (slow,) = found.pop("wrong")
    assert re.fullmatch(r"the clock is at least \d+ s behind those of the control machine, node1, clone and .*", slow)
    assert found == {
        "node1": ["the machine ID 1 is also that of clone"],
        "clone": ["sudo is not installed", "the machine ID 1 is also that of node1"],
        "named": ["named is 127.0.1.1 on the host itself, which other hosts cannot reach"],
        "synced": [],
    }


@pytest.mark.extended
def test_gpu_state_reports_reboots_and_fails_where_a_driver_has_to_work(tmp_path: Path) -> None:
    old = {**WORKS, "loaded": "535.104.05"}
    hosts: dict[str, dict[str, Any]] = {
        "works": {"gathered": state(WORKS)},
        "old": {"gathered": state(old)},
        "busy": {"gathered": state(old, units=["tfctl-a-worker-0.service"])},
        "insisting": {"gathered": state(old), "insist": True},
        "unloaded": {"gathered": state({**WORKS, "loaded": ""}), "insist": True},
    }
    results, _ = run(tmp_path, DRIVER, hosts)
    reason = "driver 535.161.07 is installed, 535.104.05 is loaded"
    judged = {name: (each["reason"], each["objection"]) for name, each in results.items() if "reason" in each}
    assert judged == {"works": ("", ""), "old": (reason, ""), "busy": (reason, "tfctl-a-worker-0.service run")}
    assert (results["works"]["in_use"], results["busy"]["in_use"]) == ("", "tfctl-a-worker-0.service run")
    assert results["works"]["boot_id"] == "b1" and "state" not in results["works"]
    (fault,) = results["insisting"]["faults"]
    assert (fault["message"], fault["kind"]) == (f"needs a reboot: {reason}", "failed")
    assert fault["remedy"].startswith("tfctl provision INVENTORY --reboot")
    assert results["unloaded"]["msg"] == "the driver is installed, but not loaded"


def state(gpu: dict[str, Any], units: list[str] | None = None) -> dict[str, Any]:
    return {"state": {"gpu": gathered(gpu), "units": units or [], "machine_id": "m1", "boot_id": "b1"}}
