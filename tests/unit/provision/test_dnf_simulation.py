"""Real dnf installs the decided driver on EL 9, from packages that depend on each other as NVIDIA's do.

Debian's dnf resolves the streams of modules like that of EL 9, which has the same version. It does not show whether the
packages of NVIDIA's server still have these dependencies, and it runs without the plugin versionlock, which tfctl
switches off while it simulates; test_dnf_locks.py has a fake of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import transaction as node_transaction
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import NVIDIA, Dnf, Transaction, transaction

from tests.unit.provision import nvidia_rpms
from tests.unit.provision.apt_tree import CARDS
from tests.unit.provision.dnf_tree import DnfTree
from tests.unit.provision.nvidia_rpms import FABRIC, KERNEL, OLD_FABRIC
from tests.unit.provision.role_play import tasks_of
from tests.unit.provision.test_gpu import INSTALLED, decided

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(os.geteuid() != 0, reason="dnf and rpm change to the directory tree with chroot, as root"),
]

HGX = {"8 A100 with NVSwitches": ["20b2"] * 8, "8 H100 with NVSwitches": ["2330"] * 8}
#: Values of tfctl_driver.
WANTED = ("auto", "535", "570", "580", "590", "610", "570.133.20", "580.65.06", "580.105.08", "590.48.01")


def plan(
    devices: list[str], wanted: str, installed: str = "", *, upgrade: bool = False, fabric_manager: bool = True
) -> tuple[Any, list[str]]:
    """Return the driver that tfctl decides for a host with these GPUs, and the faults.

    ``installed``: the version of an earlier driver of tfctl's. ``fabric_manager``: whether that has one.
    """
    gpu: dict[str, Any] = {"devices": devices, "kernel": f"{KERNEL}.x86_64", "offered": ["dkms"]}
    gpu["switches"] = 6 if devices in HGX.values() else 0
    if installed:
        gpu |= {**INSTALLED, "loaded": installed, "version": installed, "origins": ["nvidia"]}
        gpu["fabric_manager"] = installed if gpu["switches"] and fabric_manager else ""
    preferences = {"driver": wanted, "upgrade_driver": upgrade, "nvidia_key_file": "/key.asc"}
    decision, faults = decided({"system": "el-9", "packager": "dnf", "preferences": preferences, "gpu": gpu})
    return decision["gpu"] and decision["gpu"]["driver"], [each["message"] for each in faults]


def plans() -> dict[str, Any]:
    """Return each different plan for a host without a driver, with a name."""
    found = {}
    for devices in ({**CARDS, **HGX}).values():
        for wanted in WANTED:
            driver, faults = plan(devices, wanted)
            if not faults:
                fabric = [name for name in driver["packages"] if "fabric" in name]
                found[" ".join([driver["stream"], driver["version"], *fabric])] = driver
    return found


PLANS = plans()


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[Path]]:
    """The repositories by whether the streams contain the fabric manager."""
    folder = tmp_path_factory.mktemp("repositories")
    nvidia_rpms.write_system(folder / "system")
    for name, modular in (("nvidia", True), ("other", False)):
        nvidia_rpms.write(folder / name, modular_fabric=modular)
    return {True: [folder / "nvidia", folder / "system"], False: [folder / "other", folder / "system"]}


@pytest.fixture(scope="module")
def bare(repositories: dict[bool, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> dict[bool, DnfTree]:
    """Hosts on which nothing is installed, by whether the streams contain the fabric manager."""
    return {modular: DnfTree(tmp_path_factory.mktemp("bare"), found) for modular, found in repositories.items()}


@pytest.fixture
def host(repositories: dict[bool, list[Path]], tmp_path: Path) -> DnfTree:
    return DnfTree(tmp_path / "host", repositories[True])


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECORD", "PREVIOUS", "LOCKS"):
        monkeypatch.setattr(node_transaction, name, tmp_path / name)


def simulated(tree: DnfTree, driver: Any, monkeypatch: pytest.MonkeyPatch) -> Transaction:
    """Do what the role nvidia_packages does before it installs the packages of a driver."""
    (enable,) = (task for task in tasks_of("nvidia_packages", "dnf.yml") if "module stream" in task["name"])
    given = {"{{ nvidia_packages_module_stream }}": driver["stream"]}
    given["{{ ansible_check_mode | ternary('--assumeno', '-y') }}"] = "-y"
    if driver["stream"]:
        tree.run(*(given.get(word, word) for word in enable["ansible.builtin.command"]["argv"]))
    monkeypatch.setenv("PATH", str(tree.programs))
    manager = Dnf()
    manager.root = tree.programs  # no other process uses dnf there
    return transaction(manager, "nvidia_driver", driver["first"], driver["packages"], True, driver["upgrade"])


def provision(tree: DnfTree, driver: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Do what the role does, and return its record."""
    wanted = simulated(tree, driver, monkeypatch)
    (block,) = (task["block"] for task in tasks_of("nvidia_packages", "dnf.yml") if "block" in task)
    (install,) = (task["ansible.builtin.dnf"] for task in block if "ansible.builtin.dnf" in task)
    assert not install["install_weak_deps"]
    options = ["--allowerasing"] if install.get("allowerasing") else []
    tree.run("dnf", "-y", "--setopt=install_weak_deps=False", *options, "install", *wanted.install)
    node_transaction.RECORD.write_text(json.dumps(wanted.record))
    node_transaction.PREVIOUS.write_text(json.dumps(wanted.previous))
    return wanted.record["nvidia_driver"]


def drivers(tree: DnfTree) -> dict[str, str]:
    """Return the installed packages of NVIDIA."""
    return {name: version for name, version in tree.installed().items() if NVIDIA.search(name)}


def numbers(record: dict[str, str]) -> set[str]:
    """Return the versions without epoch and release."""
    return {version.partition(":")[2].partition("-")[0] for version in record.values()}


def newest(wanted: str) -> str:
    """Return the newest version of the repository that begins with a branch or a version."""
    return [each for each in nvidia_rpms.VERSIONS if each.startswith(wanted)][-1]


#: Names of plans, and whether the streams contain the fabric manager of 580 and later.
CASES = [(name, modular) for name in PLANS for modular in (True, False) if modular or FABRIC in name]


@pytest.mark.parametrize(("name", "modular"), CASES)
def test_every_planned_driver_is_of_the_decided_branch_with_its_fabric_manager(
    name: str, modular: bool, bare: dict[bool, DnfTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = PLANS[name]
    record = simulated(bare[modular], driver, monkeypatch).record["nvidia_driver"]
    assert numbers(record) == {newest(driver["version"])}, record
    module = "kmod-nvidia-open-dkms" if driver["stream"].endswith("-open") else "kmod-nvidia-latest-dkms"
    assert {"nvidia-driver-cuda", "nvidia-modprobe", "nvidia-persistenced", module} <= {*record}
    assert ({FABRIC, OLD_FABRIC} & {*record} != set()) == ("nvidia-fabricmanager" in driver["services"])


def test_without_a_stream_dnf_would_install_the_newest_branch(
    bare: dict[bool, DnfTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the other tests would show nothing."""
    bare[True].run("dnf", "-y", "module", "reset", "nvidia-driver")
    driver, _ = plan(CARDS["A100"], "auto")
    named = [name.partition("=")[0] for name in driver["packages"]]
    record = simulated(bare[True], {**driver, "stream": "", "packages": named}, monkeypatch).record["nvidia_driver"]
    assert numbers(record) == {newest("610")}


@pytest.mark.parametrize(
    ("devices", "before", "wanted", "version"),
    # upgrade: as `tfctl provision --upgrade-driver`.
    [
        ("A100", "580.65.06", "upgrade", "580.159.03"),
        ("8 H100 with NVSwitches", "580.65.06", "upgrade", "580.159.03"),
        ("A100", "570", "580", "580.159.03"),
        ("V100", "535", "580", "580.159.03"),
        ("A100", "535", "580", "580.159.03"),
        ("A100", "590", "580", "580.159.03"),
        ("A100", "580.65.06", "580.105.08", "580.105.08"),
        ("A100", "580.105.08", "580.65.06", "580.65.06"),
        ("8 A100 with NVSwitches", "570", "580", "580.159.03"),
        ("8 H100 with NVSwitches", "580", "590", "590.48.01"),
    ],
)
def test_another_version_replaces_an_earlier_driver_completely(
    devices: str, before: str, wanted: str, version: str, host: DnfTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = {**CARDS, **HGX}[devices]
    earlier, _ = plan(cards, before)
    provision(host, earlier, monkeypatch)
    assert numbers(drivers(host)) == {newest(before)}
    upgrade = wanted == "upgrade"
    driver, faults = plan(cards, "auto" if upgrade else wanted, newest(before), upgrade=upgrade)
    assert faults == []
    record = provision(host, driver, monkeypatch)
    assert numbers(record) == {version}
    assert record == drivers(host)
    assert [name for name in host.installed() if name.startswith("kernel-core")] == ["kernel-core"]


def test_a_fabric_manager_is_added_in_the_version_of_the_installed_driver(
    host: DnfTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, _ = plan(CARDS["H100"], "580.105.08")
    provision(host, earlier, monkeypatch)
    driver, faults = plan(HGX["8 H100 with NVSwitches"], "auto", "580.105.08", fabric_manager=False)
    assert faults == []
    record = provision(host, driver, monkeypatch)
    assert FABRIC in record and numbers(record) == {"580.105.08"}
    assert record == drivers(host)


def test_the_driver_of_another_branch_can_be_installed_again_from_its_stream(
    host: DnfTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `tfctl provision --rollback` does. The role takes the stream from the record, see test_driver_rollback.py."""
    earlier, _ = plan(CARDS["A100"], "570")
    before = provision(host, earlier, monkeypatch)
    driver, _ = plan(CARDS["A100"], "580", newest("570"))
    provision(host, driver, monkeypatch)
    assert json.loads(node_transaction.PREVIOUS.read_text())["nvidia_driver"] == before
    names = [f"{name}={version}" for name, version in before.items()]
    back = {"stream": earlier["stream"], "first": [], "packages": names, "upgrade": False}
    assert provision(host, back, monkeypatch) == before == drivers(host)


def test_kept_files_of_the_earlier_driver_bring_it_back_without_a_repository_that_has_it(
    repositories: dict[bool, list[Path]], host: DnfTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role names them with the shell commands of nvidia_packages_file, see test_kept_drivers.py."""
    earlier, _ = plan(CARDS["A100"], "570")
    before = provision(host, earlier, monkeypatch)
    versions = {name: version.partition(":")[2] for name, version in before.items()}
    files = [next(repositories[True][0].glob(f"{name}-[0-9]:{version}.*.rpm")) for name, version in versions.items()]
    driver, _ = plan(CARDS["A100"], "580", newest("570"))
    provision(host, driver, monkeypatch)
    for path in (host.programs.parent / "root/etc/yum.repos.d").glob("nvidia.repo"):
        path.unlink()
    back = {"stream": "", "first": [], "packages": [str(path) for path in files], "upgrade": False}
    assert provision(host, back, monkeypatch) == before == drivers(host)
