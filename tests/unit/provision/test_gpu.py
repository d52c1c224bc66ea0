"""What provisioning plans for hosts with GPUs: gpu_hosts.yaml has recorded hosts, each with the expected plan."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import tfctl_gpu_driver, tfctl_gpu_facts, tfctl_gpu_libraries
from ansible.module_utils.tfctl_gpu_cards import identify
from ansible.module_utils.tfctl_judge import judge

from tests.unit.provision.test_judge import GOOD, wanted
from tfctl.model import stacks

HOSTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "gpu_hosts.yaml").read_text())
PARTS = ("driver", "cuda", "cudnn", "nccl", "source")
BARE: dict[str, Any] = {
    "devices": [], "switches": 0, "loaded": "", "processes": [], "version": "", "origins": [], "held": [], "own": False,
    "drifted": [], "fabric_manager": "", "nouveau": False, "blacklisted": False, "persistence": False,
    "secure_boot": False, "mok": False, "dkms": [], "unattended": False, "container": "",
    "initramfs": "update-initramfs",
}  # fmt: skip


def gpu_facts(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that tfctl_gpu_facts would report of a host in gpu_hosts.yaml."""
    seen = dict(seen)
    release = seen.pop("kernel", "6.1.0-18-amd64")
    kernel = {"release": release, "newest": seen.pop("newest", release), "headers": seen.pop("headers", True)}
    shown = [tfctl_gpu_facts.gpu_of(tfctl_gpu_facts.QUERY, line) for line in seen.pop("smi", [])]
    ids = [int(str(each), 16) for each in seen.pop("devices", [])]
    devices = [{"slot": "", "id": f"{each:04x}", **identify(each)} for each in ids]
    smi = {"said": seen.pop("smi_said", ""), "gpus": shown}
    assert set(seen) <= set(BARE), "tfctl_gpu_facts reports no such fact"
    return {**copy.deepcopy(BARE), "devices": devices, "kernel": kernel, "smi": smi, **seen}


def judged(case: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    facts: dict[str, Any] = {key: case[key] for key in ("system", "packager") if key in case}
    if "system" in case:
        facts |= {"title": case["system"], "python": {**GOOD["python"], "pythons": {"3.11": "/usr/bin/python3.11"}}}
    roomy = {path: {**each, "free_mb": 50_000} for path, each in GOOD["disks"].items()}
    seen = {**GOOD, **facts, "disks": roomy, "gpu": gpu_facts(case["gpu"]) if case["gpu"] is not None else None}
    asked = wanted()
    asked["wishes"] |= case.get("wishes", {})
    found: tuple[dict[str, Any], list[dict[str, Any]]] = judge(seen, asked)
    return found


@pytest.mark.parametrize("name", HOSTS)
def test_recorded_host_gets_the_expected_gpu_plan(name: str) -> None:
    case = HOSTS[name]
    plan, faults = judged(case)
    expect = case["expect"]
    messages, remedies = [each["message"] for each in faults], [each["remedy"] for each in faults]
    assert len(messages) == len(expect.get("faults", [])), messages
    assert all(part in text for part, text in zip(expect.get("faults", []), messages, strict=True)), messages
    assert all(part in text for part, text in zip(expect.get("remedies", []), remedies, strict=True)), remedies
    assert all(any(part in text for text in plan["notices"]) for part in expect.get("notices", [])), plan["notices"]
    assert plan["stack"]["edition"] == expect.get("edition", plan["stack"]["edition"])
    found = {"gpu": plan["gpu"], **(plan["gpu"] or dict.fromkeys(PARTS))}
    for part in ("gpu", *PARTS):
        if part in expect:
            compare(found[part], expect[part])
    if "reboot" in expect:
        assert tfctl_gpu_driver.reboot_reason(gpu_facts(case["gpu"])) == expect["reboot"]


def compare(found: Any, expected: Any) -> None:
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert {key: found[key] for key in expected} == expected


def test_gpu_plan_is_empty_after_its_driver_was_installed() -> None:
    """A second run has nothing to do, because the first one installed a driver that fits."""
    plan, _ = judged({"gpu": {"devices": ["20b5"]}})
    assert plan["gpu"]["driver"]["packages"]
    done = {"loaded": "535.261.03", "version": "535.261.03", "origins": ["debian"]}
    settled, _ = judged({"gpu": {"devices": ["20b5"], "own": True, "blacklisted": True, "persistence": True, **done}})
    assert settled["stack"]["edition"] == "gpu"
    assert settled["gpu"] is None


@pytest.mark.parametrize(
    ("units", "control", "gpu", "expected_objection"),
    [
        ([], {}, {}, ""),
        ([], {"machine_id": "m1"}, {}, "it is the machine that tfctl runs on"),
        ([], {"boot_id": "b1"}, {}, "it is the machine that tfctl runs on"),
        ([], {"local": True}, {}, "it is the machine that tfctl runs on"),
        (["tfctl-a-worker-0.service"], {}, {}, "tfctl-a-worker-0.service run"),
        ([], {}, {"processes": [{"pid": 7, "name": "Xorg"}]}, "Xorg (7) use the GPU"),
    ],
)
def test_reboot_is_refused_while_the_host_is_in_use(
    units: list[str], control: dict[str, Any], gpu: dict[str, Any], expected_objection: str
) -> None:
    here = {"machine_id": "m0", "boot_id": "b0", "local": False, **control}
    there = {"machine_id": "m1", "boot_id": "b1"}
    objection, remedy = tfctl_gpu_driver.reboot_objection({**BARE, **gpu}, units, here, there)
    assert (objection, bool(remedy)) == (expected_objection, bool(expected_objection))


@pytest.mark.parametrize(
    ("name", "have", "asked", "does"),
    [
        ("cuda", "12.4.1", "12.2", True), ("cuda", "12.1", "12.2", False), ("cuda", "11.8.0", "12.2", False),
        ("cuda", "10.2.89", "10.0", False), ("cudnn", "8.9.7.29", "8.9.4.25", True),
        ("nccl", "2.22.3", "2.27.7", False),
    ],
)  # fmt: skip
def test_library_version_satisfies_a_compatible_older_request(name: str, have: str, asked: str, does: bool) -> None:
    assert tfctl_gpu_libraries.serves(name, have, asked) is does


@pytest.mark.parametrize(
    ("name", "version", "file"),
    [
        ("cuda", "10.0.130", "libcudart.so.10.0"),
        ("cuda", "11.8.0", "libcudart.so.11.0"),
        ("cuda", "12.2", "libcudart.so.12"),
        ("cudnn", "7.6.5.32", "libcudnn.so.7"),
        ("nccl", "2.16.5", "libnccl.so.2"),
    ],
)
def test_soname_of_a_library_version_is_what_programs_load(name: str, version: str, file: str) -> None:
    assert tfctl_gpu_libraries.soname(name, version) == file


def test_nvidia_data_claims_no_verified_hash_and_names_every_repository_key() -> None:
    """Nobody has compared a hash with the one NVIDIA publishes. Change this test together with the data."""
    data = stacks.nvidia()
    rows = [row for kind in data.archives.values() for row in kind.values()]
    assert not any(row.verified for row in [*rows, *data.keys.values()])
    assert {each.key for each in data.repositories.values()} == set(data.keys)
    assert {*data.repositories, *data.distributions} <= set(stacks.systems())
