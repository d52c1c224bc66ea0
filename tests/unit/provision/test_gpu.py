"""What provisioning decides for hosts with GPUs: gpu_hosts.yaml has recorded hosts, each with the expected decision."""

from __future__ import annotations

import calendar
import copy
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.provision.fresh_host import GPU, HOST, KERNEL, facts, wanted
from tfctl import schema
from tfctl.model import stacks
from tfctl.model.stacks.nvidia import LibraryName
from tfctl.provision import ansible
from tfctl.provision.decide import libraries, readings, reboot
from tfctl.provision.decide.facts import GpuFacts
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.reboot import Control, DriverState
from tfctl.provision.decide.wanted import Preferences
from tfctl.provision.due import MOMENTARY
from tfctl.provision.faults import ModuleFault

HOSTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "gpu_hosts.yaml").read_text())
PARTS = ("driver", "cuda", "cudnn", "nccl", "source")
#: The fields of `smi` in gpu_hosts.yaml. The last one is optional there.
SMI_FIELDS = "uuid,name,compute_cap,driver_version,mig.mode.current,persistence_mode"

#: The package that updates the kernel, by system.
METAPACKAGES = {"debian": "linux-image-amd64", "ubuntu": "linux-image-generic", "el": ""}


def gpu_facts(seen: dict[str, Any], system: str = "debian-12") -> dict[str, Any]:
    """Return the facts that gpu_facts would report of a host in gpu_hosts.yaml."""
    seen = dict(seen)
    release = seen.pop("kernel", KERNEL["release"])
    driver = bool(seen.get("loaded") or seen.get("version"))
    kernel = {
        "release": release,
        "newest": seen.pop("newest", release),
        "module": seen.pop("module", driver),
        "metapackage": seen.pop("metapackage", METAPACKAGES[system.partition("-")[0]]),
        "dkms": seen.pop("has_dkms", False),
        **{name: seen.pop(name, KERNEL[name]) for name in ("headers", "follows", "offered")},
    }
    query = seen.pop("smi_query", SMI_FIELDS)
    shown = [schema.plain(readings.gpu_of(query, line)) for line in seen.pop("smi", [])]
    ids = [int(str(each), 16) for each in seen.pop("devices", [])]
    devices = [{"slot": "", "id": f"{each:04x}"} for each in ids]
    smi = {"said": seen.pop("smi_said", ""), "gpus": shown}
    assert set(seen) <= set(GPU), "gpu_facts reports no such fact"
    ready = {"modprobe": driver, "at_boot": driver, "fabric_running": bool(seen.get("fabric_manager"))}
    return {**copy.deepcopy(GPU), **ready, "devices": devices, "kernel": kernel, "smi": smi, **seen}


def decided(case: dict[str, Any]) -> tuple[Any, list[ModuleFault]]:
    """Return the decision as plain data, and the faults."""
    seen: dict[str, Any] = {key: case[key] for key in ("system", "packager", "receipts") if key in case}
    if "system" in case:
        seen["title"] = case["system"]
    version = case.get("python", "3.11")
    seen["python"] = {**HOST["python"], "pythons": {version: f"/usr/bin/python{version}"}}
    roomy = {path: {**each, "free_mb": 50_000} for path, each in HOST["disks"].items()}
    gpu = gpu_facts(case["gpu"], case.get("system", "debian-12")) if case["gpu"] is not None else None
    asked = wanted(stack=case.get("stack", "tf2.15"), preferences=Preferences(**case.get("preferences", {})))
    decision, faults = decide(facts(**seen, disks=roomy, gpu=gpu), asked)
    return schema.plain(decision), faults


@pytest.mark.parametrize("name", HOSTS)
def test_recorded_host_gets_the_expected_gpu_decision(name: str) -> None:
    case = HOSTS[name]
    decision, faults = decided(case)
    expect = case["expect"]
    messages, remedies = [each["message"] for each in faults], [each["remedy"] for each in faults]
    assert len(messages) == len(expect.get("faults", [])), messages
    assert all(part in text for part, text in zip(expect.get("faults", []), messages, strict=True)), messages
    assert all(part in text for part, text in zip(expect.get("remedies", []), remedies, strict=True)), remedies
    notices = decision["notices"]
    assert all(any(part in text for text in notices) for part in expect.get("notices", [])), notices
    assert decision["stack"]["edition"] == expect.get("edition", decision["stack"]["edition"])
    found = {"gpu": decision["gpu"], **(decision["gpu"] or dict.fromkeys(PARTS))}
    for part in ("gpu", *PARTS):
        if part in expect:
            compare(found[part], expect[part])
    if "reboot" in expect:
        assert reboot.reason(schema.parse(GpuFacts, gpu_facts(case["gpu"]))) == expect["reboot"]


@pytest.mark.parametrize(
    ("date", "notices"),
    [
        ("2026-06-30", []),
        (
            "2026-07-01",
            ["NVIDIA does not maintain driver branch 535 after 2026-06; tfctl_driver_method: repo installs 580"],
        ),
    ],
)
def test_a_branch_past_its_end_is_not_installed_silently(date: str, notices: list[str]) -> None:
    """Debian 12 has no other one."""
    now = float(calendar.timegm(time.strptime(date, "%Y-%m-%d")))
    gpu = gpu_facts({"devices": ["1eb8"]})
    decision, faults = decide(facts(gpu=gpu, clock={"begun": now, "ended": now}), wanted(stack="tf2.15"))
    assert faults == [] and decision.gpu and decision.gpu.driver and decision.gpu.driver.version == "535"
    assert [text for text in decision.notices if "maintain" in text] == notices


@pytest.mark.parametrize(("branch", "ended"), [(525, ""), (535, "2026-06"), (570, "2026-02"), (580, None), (610, None)])
def test_ends_of_branches_are_those_of_nvidia(branch: int, ended: str | None) -> None:
    assert stacks.nvidia().ended(branch, "2026-11") == ended


def compare(found: Any, expected: Any) -> None:
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert {key: found[key] for key in expected} == expected


def test_driver_of_ubuntu_needs_no_program_that_creates_device_nodes_because_a_rule_for_udev_does() -> None:
    ubuntus = {"loaded": "535.161.07", "version": "535.161.07", "origins": ["canonical"], "modprobe": False}
    decision, faults = decided({"system": "ubuntu-22.04", "gpu": {"devices": ["20b5"], **ubuntus, "at_boot": False}})
    assert (decision["notices"], faults) == ([], [])


def test_desktop_gets_no_notice_with_a_driver_that_has_a_part_for_displays() -> None:
    gpu = {"devices": ["2684"], "display": True}
    decision, faults = decided({"system": "ubuntu-22.04", "preferences": {"driver_method": "repo"}, "gpu": gpu})
    assert (decision["notices"], faults) == ([], [])


@pytest.mark.parametrize("system", stacks.systems())
def test_compiler_of_cuda_for_horovod_is_available_by_the_methods_that_the_guide_names(system: str) -> None:
    guide = " ".join((ansible.data_dir() / "docs/howto/gpus.md").read_text().split())
    assert "set `tfctl_cuda_method=archive`" in guide and "On Ubuntu 22.04, EL 9 and Debian 11, `repo` works" in guide
    case: dict[str, Any] = {"system": system, "packager": "dnf" if system.startswith("el") else "apt-get"}
    case["gpu"] = {"devices": ["20b5"], "loaded": "580.95.05", "version": "580.95.05", "origins": ["nvidia"]}
    offered = {}
    for method in ("archive", "repo"):
        preferences = {"cuda_method": method, "horovod": True, "nvidia_key_file": "/key.asc"}
        _, faults = decided({**case, "preferences": preferences})
        offered[method] = faults == []
    assert offered == {"archive": True, "repo": system in ("ubuntu-22.04", "el-9", "debian-11")}


#: The facts that an installation of Debian's driver changes, and of NVIDIA's.
INSTALLED: dict[str, Any] = {"own": True, "blacklisted": True, "persistence": True}
DEBIANS: dict[str, Any] = {"loaded": "535.261.03", "version": "535.261.03", "origins": ["debian"], **INSTALLED}
NVIDIAS: dict[str, Any] = {"loaded": "580.95.05", "version": "580.95.05", "origins": ["nvidia"], **INSTALLED}


@pytest.mark.parametrize(
    ("case", "installed"),
    [({}, DEBIANS), ({"system": "ubuntu-22.04", "preferences": {"driver_method": "repo"}}, NVIDIAS)],
)
def test_inputs_of_the_driver_roles_stay_the_same_after_an_installation(
    case: dict[str, Any], installed: dict[str, Any]
) -> None:
    """Otherwise their receipts would not hold, and a second run would run the roles again."""
    decision, faults = decided({**case, "gpu": {"devices": ["20b5"]}})
    assert faults == [] and decision["gpu"]["driver"]["packages"] and decision["gpu"]["driver"]["needed"]
    settled, faults = decided({**case, "gpu": {"devices": ["20b5"], **installed}})
    assert faults == [] and not settled["gpu"]["driver"]["needed"]
    assert settled["gpu"]["source"] == decision["gpu"]["source"] is not None
    variables = yaml.safe_load((ansible.data_dir() / "playbooks/vars/roles.yml").read_text())
    read = {name: re.findall(r"decision\.gpu\.driver\.(\w+)", str(text)) for name, text in variables.items()}
    inputs = [fields for name, fields in read.items() if name.startswith("nvidia_driver_") and name not in MOMENTARY]
    lasting = {field for fields in inputs for field in fields}
    assert "services" in lasting and "packages" not in lasting
    first, second = decision["gpu"]["driver"], settled["gpu"]["driver"]
    assert {field: first[field] for field in lasting} == {field: second[field] for field in lasting}


def test_gpu_decision_keeps_the_source_of_a_driver_after_tfctl_has_installed_it() -> None:
    """Otherwise the inputs of the role nvidia_repo would differ in a second run, and its pins exclude the driver."""
    preferences = {"driver_method": "repo", "cuda_method": "repo"}
    case = {"system": "ubuntu-22.04", "preferences": preferences}
    decision, faults = decided({**case, "gpu": {"devices": ["20b5"]}})
    assert faults == [] and decision["gpu"]["source"]["drivers"]
    settled, faults = decided({**case, "gpu": {"devices": ["20b5"], **NVIDIAS}})
    assert faults == [] and settled["gpu"] == {**decision["gpu"], "driver": settled["gpu"]["driver"]}


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
    here = Control(**{"machine_id": "m0", "boot_id": "b0", "local": False, **control})
    outdated: dict[str, Any] = {"loaded": "535.104.05", "version": "535.161.07"}
    found = schema.parse(GpuFacts, {**gpu_facts({}), **outdated, **gpu})
    verdict = reboot.judge(found, DriverState(found, tuple(units), "m1", "b1"), here)
    assert (verdict.objection, "--reboot" in verdict.remedy) == (expected_objection, not expected_objection)
    assert verdict.problem.startswith("needs a reboot: driver 535.161.07 is installed, 535.104.05 is loaded")


WORKING: dict[str, Any] = {
    "loaded": "535.161.07", "version": "535.161.07", "origins": ["debian"], "own": True, "persistence": True,
    "smi": ["GPU-1b7a7a2e-0001, NVIDIA A100 80GB PCIe, 8.0, 535.161.07, Disabled, Enabled"],
}  # fmt: skip
UNLOADED = {"loaded": "", "smi": [], "persistence": False}


@pytest.mark.parametrize(
    ("gpu", "problem", "remedy"),
    [
        ({}, "", ""),
        (
            {"missing_nodes": ["/dev/nvidia-uvm"]},
            "CUDA cannot start without /dev/nvidia-uvm, which the host does not have",
            "systemctl status tfctl_nvidia.service",
        ),
        ({"persistence": False}, "nvidia-persistenced does not run, or persistence mode is off", "nvidia-persistenced"),
        ({"persistence": False, "own": False}, "", ""),
        (
            {**UNLOADED, "module": False},
            "the driver is installed, but has no module for the running kernel 6.1.0-18-amd64",
            "dkms status",
        ),
        (
            {**UNLOADED, "secure_boot": True, "dkms": [{"version": "535.161.07", "kernel": "", "state": "installed"}]},
            "the driver is installed, but Secure Boot prevents its module from loading",
            "mokutil --import",
        ),
        (UNLOADED, "the driver is installed, but not loaded", "journalctl -b -u tfctl_nvidia.service"),
    ],
)
def test_driver_that_does_not_work_is_named_with_its_remedy(gpu: dict[str, Any], problem: str, remedy: str) -> None:
    found = schema.parse(GpuFacts, gpu_facts({**WORKING, **gpu}))
    verdict = reboot.judge(found, DriverState(found, (), "m1", "b1"), Control("m0", "b0", local=False))
    assert (verdict.reason, verdict.problem, remedy in verdict.remedy) == ("", problem, True)


@pytest.mark.parametrize(
    ("name", "have", "asked", "does"),
    [
        ("cuda", "12.4.1", "12.2", True), ("cuda", "12.1", "12.2", False), ("cuda", "11.8.0", "12.2", False),
        ("cuda", "10.2.89", "10.0", False), ("cudnn", "8.9.7.29", "8.9.4.25", True),
        ("nccl", "2.22.3", "2.27.7", False), ("cuda", "11.8.0", "11.2", True), ("cuda", "11.2.2", "11.0", False),
    ],
)  # fmt: skip
def test_library_version_satisfies_a_compatible_older_request(
    name: LibraryName, have: str, asked: str, does: bool
) -> None:
    assert libraries.serves(name, have, asked) is does


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
def test_soname_of_a_library_version_is_what_programs_load(name: LibraryName, version: str, file: str) -> None:
    assert libraries.soname(name, version) == file


def test_nvidia_data_claims_as_verified_only_what_nvidia_states() -> None:
    """That is the fingerprints of two keys, and no hash of an archive. Change this test together with the data."""
    data = stacks.nvidia()
    assert [name for name, key in data.keys.items() if key.verified] == ["3bf863cc", "D42D0685"]
    assert all("NVIDIA" in source for key in data.keys.values() if key.verified for source in key.sources)
    assert not any(row.verified for kind in data.archives.values() for row in kind.values())


def test_names_of_unverified_keys_and_hashes_are_unique() -> None:
    """Stacks that share a version of Open MPI share its hash, and so its name."""
    hashes = {each.openmpi.version: each.openmpi.sha256 for each in stacks.load().values() if each.openmpi}
    assert all(hashes[each.openmpi.version] == each.openmpi.sha256 for each in stacks.load().values() if each.openmpi)
    unverified = [name for name, known in wanted().known().items() if not known.trusted]
    assert unverified == ["8793F200", "cuda-12.5.1", "cudnn-8.0.5.39-cuda11.0", "openmpi-4.1.8"]


def test_nvidia_data_names_every_repository_key() -> None:
    data = stacks.nvidia()
    assert {each.key for each in data.repositories.values()} == set(data.keys)
    assert {*data.repositories, *data.distributions} <= set(stacks.systems())


@pytest.mark.parametrize(
    ("units", "processes", "expected"),
    [
        ((), [], ""),
        (("tfctl-a-worker-0.service",), [], "tfctl-a-worker-0.service run"),
        ((), [{"pid": 7, "name": "python"}], "python (7) use the GPU"),
    ],
)
def test_driver_is_in_use_by_jobs_and_processes_also_when_no_reboot_is_needed(
    units: tuple[str, ...], processes: list[dict[str, Any]], expected: str
) -> None:
    found = schema.parse(GpuFacts, {**gpu_facts({}), "processes": processes})
    assert reboot.in_use(found, DriverState(found, units, "m1", "b1"))[0] == expected
