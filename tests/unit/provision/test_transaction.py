"""transaction.py simulates an installation, refuses what it must not do, and derives what remains to be done."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from ansible_collections.tfctl.cluster.plugins.module_utils import transaction as node_transaction
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import Package
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import (
    Apt,
    Dnf,
    InstalledPackage,
    Manager,
    Simulation,
    transaction,
)
from jinja2 import Environment

from tfctl.provision import ansible
from tfctl.provision.decide import readings

NEEDS = {"nvidia-smi": ["libcuda1", "dkms"], "nvidia-headless": ["linux-image-6.9"]}
OFFERS = {"nvidia-smi": "535.2", "libcuda1": "535.2", "dkms": "3.0", "nvidia-headless": "1", "linux-image-6.9": "6.9"}


class FakeManager(Manager):
    """A fake package manager. It installs the latest version with the packages that NEEDS lists; see `carry_out`.

    Like apt, it forgets that a package is on hold when it installs it again.
    """

    apt = True
    unhold = "unhold"

    def __init__(self) -> None:
        self.there: dict[str, InstalledPackage] = {"libc6": InstalledPackage("2.36", False)}
        self.offers = dict(OFFERS)
        self.removes: list[str] = []
        self.without_file: list[str] = []
        self.updates = 0

    def update(self) -> None:
        self.updates += 1

    def is_held(self, package: Package) -> bool:
        return self.there[package.name].held

    def installed(self, names: Collection[str]) -> dict[str, InstalledPackage]:
        return {name: self.there[name] for name in names if name in self.there}

    def simulate(self, packages: Sequence[str]) -> Simulation:
        asked = [package.partition("=")[0] for package in packages]
        names = [needed for name in asked for needed in (name, *NEEDS.get(name, []))]
        missing = [name for name in names if name not in self.offers]
        if missing:
            raise ModuleFailed(f"no package {missing[0]}")
        changes = {name: self.offers[name] for name in names}
        there = self.installed(changes)
        return Simulation({n: v for n, v in changes.items() if n not in there or there[n].version != v}, self.removes)

    def damaged(self, names: Collection[str]) -> list[str]:
        return [name for name in names if name in self.without_file]

    def exact(self, name: str, version: str) -> str:
        return f"{name}={version}"

    def carry_out(self, wanted: node_transaction.Transaction) -> None:
        """Do what the tasks of the role nvidia_packages do with a transaction."""
        self.begin(wanted)
        for name in (package.partition("=")[0] for package in wanted.reinstall):
            self.without_file.remove(name)
            self.there[name] = InstalledPackage(self.there[name].version, False)
        self.there.update({name: InstalledPackage(self.there[name].version, True) for name in wanted.hold})
        node_transaction.RECORD.write_text(json.dumps(wanted.record))
        node_transaction.PREVIOUS.write_text(json.dumps(wanted.previous))

    def begin(self, wanted: node_transaction.Transaction) -> None:
        """Do what the tasks do before they reinstall packages and put them on hold."""
        if wanted.install:
            node_transaction.RECORD.write_text(json.dumps(wanted.pending))
            versions, _ = self.simulate(wanted.install)
            self.there.update({name: InstalledPackage(version, False) for name, version in versions.items()})
        for name in wanted.release:
            self.there[name] = InstalledPackage(self.there[name].version, False)
        for name in wanted.remove:
            del self.there[name]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeManager]:
    monkeypatch.setattr(node_transaction, "RECORD", tmp_path / "held.json")
    monkeypatch.setattr(node_transaction, "PREVIOUS", tmp_path / "held-before.json")
    yield FakeManager()


def planned(manager: FakeManager, *asked: str, component: str = "nvidia_driver") -> node_transaction.Transaction:
    return transaction(manager, component, (), asked, update=True)


def nothing_left(wanted: node_transaction.Transaction) -> bool:
    return not (wanted.install or wanted.reinstall or wanted.remove or wanted.release or wanted.hold)


def test_transaction_installs_holds_and_records_packages(manager: FakeManager) -> None:
    wanted = planned(manager, "nvidia-smi")
    assert wanted.install == ["nvidia-smi=535.2"]
    assert wanted.hold == ["libcuda1", "nvidia-smi"], "dkms is not a package of NVIDIA"
    assert wanted.record == {"nvidia_driver": {"libcuda1": "535.2", "nvidia-smi": "535.2"}}
    manager.carry_out(wanted)
    for asked in (["nvidia-smi"], ["nvidia-smi=535.*"], []):
        again = planned(manager, *asked)
        assert nothing_left(again) and again.record == wanted.record
    assert manager.updates == 1, "package lists are updated only if a package is missing"


def test_transaction_names_all_packages_that_it_adds_but_none_that_it_changes(manager: FakeManager) -> None:
    manager.there["dkms"] = InstalledPackage("2.8", False)
    assert planned(manager, "nvidia-smi").new == ["libcuda1", "nvidia-smi"]


def test_transaction_puts_on_hold_what_an_interrupted_run_has_installed(manager: FakeManager) -> None:
    """Without a record, tfctl would take the driver for one of the host's owner."""
    wanted = planned(manager, "nvidia-smi")
    assert wanted.pending == {"nvidia_driver": {"libcuda1": "", "nvidia-smi": ""}}
    manager.begin(wanted)
    for asked in (["nvidia-smi"], []):
        again = planned(manager, *asked)
        assert (again.install, again.hold) == ([], ["libcuda1", "nvidia-smi"])
        assert (again.record, again.previous) == (wanted.record, {})


def test_transaction_restores_nothing_that_an_interrupted_run_has_not_installed(manager: FakeManager) -> None:
    """Somebody may have installed another driver since."""
    node_transaction.RECORD.write_text(json.dumps(planned(manager, "nvidia-smi").pending))
    again = planned(manager)
    assert nothing_left(again) and again.record == {"nvidia_driver": {}}


@pytest.mark.parametrize("packager", ["apt-get", "dnf"])
def test_role_records_packages_before_it_installs_them(packager: str) -> None:
    folder = ansible.data_dir() / "roles/nvidia_packages/tasks"
    tasks = yaml.safe_load((folder / f"{packager}.yml").read_text())
    kinds = ["block" if "block" in task else task.get("ansible.builtin.import_tasks") for task in tasks]
    assert kinds.index("simulate.yml") < kinds.index("block")
    simulation, _, record, *_ = yaml.safe_load((folder / "simulate.yml").read_text())
    assert "tfctl.cluster.transaction" in simulation and record["ansible.builtin.include_tasks"] == "record.yml"
    assert record["vars"] == {"nvidia_packages_recorded": "{{ nvidia_packages_transaction.pending }}"}


def test_role_records_the_earlier_versions_before_an_upgrade_and_after_a_rollback() -> None:
    """An upgrade that fails can be undone, and a rollback that fails can be repeated."""
    folder = ansible.data_dir() / "roles/nvidia_packages/tasks"
    for file, condition in (("simulate.yml", "not nvidia_packages_rollback"), ("main.yml", "nvidia_packages_rollback")):
        tasks = yaml.safe_load((folder / file).read_text())
        names = [task.get("ansible.builtin.include_tasks") for task in tasks]
        assert condition in tasks[names.index("previous.yml")]["when"]
    installs = next(place for place, name in enumerate(names) if name and name.startswith("{{"))
    assert installs < names.index("previous.yml")


def test_transaction_keeps_the_records_of_other_components(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    manager.carry_out(planned(manager, "libcuda1", component="cuda"))
    assert {*planned(manager).record} == {"nvidia_driver", "cuda"}


def test_transaction_restores_a_recorded_package_that_was_removed(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    del manager.there["libcuda1"]
    assert planned(manager).hold == ["libcuda1"]
    manager.carry_out(planned(manager))
    assert manager.there["libcuda1"] == InstalledPackage("535.2", True)


def test_transaction_holds_a_package_again_that_was_unheld(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    manager.there["libcuda1"] = InstalledPackage("535.2", False)
    wanted = planned(manager, "nvidia-smi")
    assert (wanted.install, wanted.hold) == ([], ["libcuda1"])


def test_transaction_releases_own_holds_of_packages_that_change(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    manager.offers.update({"nvidia-smi": "550.1", "libcuda1": "550.1"})
    wanted = planned(manager, "nvidia-smi=550.*")
    assert (wanted.install, wanted.release) == (["nvidia-smi=550.1"], ["libcuda1", "nvidia-smi"])
    assert wanted.hold == ["libcuda1", "nvidia-smi"]


def test_transaction_records_the_versions_before_the_last_change_to_which_a_rollback_returns(
    manager: FakeManager,
) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    assert planned(manager, "nvidia-smi").previous == {}, "a first installation has none"
    manager.offers.update({"nvidia-smi": "550.1", "libcuda1": "550.1"})
    manager.carry_out(planned(manager, "nvidia-smi=550.*"))
    manager.carry_out(planned(manager, "libcuda1", component="cuda"))
    manager.without_file = ["libcuda1"]
    old = {"libcuda1": "535.2", "nvidia-smi": "535.2"}
    assert planned(manager).previous == {"nvidia_driver": old}, "a repair is no change of versions"
    manager.without_file = []
    manager.offers.update(old)
    back = planned(manager, *(f"{name}={version}" for name, version in old.items()))
    assert sorted(back.install) == ["libcuda1=535.2", "nvidia-smi=535.2"]
    assert back.record["nvidia_driver"] == old
    assert back.previous == {"nvidia_driver": {"libcuda1": "550.1", "nvidia-smi": "550.1"}}, "another one undoes it"


def test_transaction_upgrades_installed_packages_only_if_it_is_told_to(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    manager.offers.update({"nvidia-smi": "535.3", "libcuda1": "535.3"})
    assert nothing_left(planned(manager, "nvidia-smi"))
    upgraded = transaction(manager, "nvidia_driver", (), ["nvidia-smi"], update=True, upgrade=True)
    assert upgraded.install == ["nvidia-smi=535.3"]
    assert upgraded.record["nvidia_driver"] == {"libcuda1": "535.3", "nvidia-smi": "535.3"}
    manager.carry_out(upgraded)
    assert nothing_left(transaction(manager, "nvidia_driver", (), ["nvidia-smi"], update=True, upgrade=True))


def test_transaction_lets_modules_that_are_built_for_one_kernel_follow_its_updates(manager: FakeManager) -> None:
    """With a hold on them, the next kernel has no driver. An earlier tfctl has left holds."""
    modules, library = "linux-modules-nvidia-580-server-generic", "libnvidia-compute-580-server"
    manager.offers.update({modules: "5.15.0-91.101", library: "580.95"})
    manager.there[library] = InstalledPackage("580.82", True)
    node_transaction.RECORD.write_text(json.dumps({"nvidia_driver": {library: "580.82"}}))
    wanted = planned(manager, modules, library)
    assert (wanted.hold, wanted.release) == ([], [library])
    manager.carry_out(wanted)
    assert not any(package.held for package in manager.there.values())
    manager.there[modules] = InstalledPackage("5.15.0-126.136", False)
    again = planned(manager)
    assert nothing_left(again) and again.record == {"nvidia_driver": {modules: "", library: ""}}


def test_transaction_forgets_modules_of_a_kernel_that_was_removed(manager: FakeManager) -> None:
    """Their names contain the version of the kernel, and the package sources do not have them any more."""
    followed, removed = (f"linux-modules-nvidia-580-server-{end}" for end in ("generic", "5.15.0-91-generic"))
    manager.there[followed] = InstalledPackage("5.15.0-126.136", False)
    node_transaction.RECORD.write_text(json.dumps({"nvidia_driver": {followed: "", removed: ""}}))
    wanted = planned(manager)
    assert nothing_left(wanted) and wanted.record == {"nvidia_driver": {followed: ""}}


def test_transaction_holds_no_package_that_it_adds_to_the_driver_of_somebody_else(manager: FakeManager) -> None:
    """A fabric manager has to follow the updates of the driver. An earlier tfctl has left holds."""
    fabric = "nvidia-fabricmanager-535"
    manager.there["libnvidia-compute-535"] = InstalledPackage("535.1", False)
    manager.offers[fabric] = "535.1-1"
    wanted = planned(manager, f"{fabric}=535.1-*")
    assert (wanted.install, wanted.hold) == ([f"{fabric}=535.1-1"], [])
    assert wanted.record == {"nvidia_driver": {fabric: ""}}
    manager.carry_out(wanted)
    manager.there[fabric] = InstalledPackage("535.1-1", True)
    again = planned(manager, f"{fabric}=535.1-*")
    assert (again.install, again.release, again.hold) == ([], [fabric], [])


def test_transaction_reinstalls_the_installed_version_of_a_damaged_package(manager: FakeManager) -> None:
    manager.carry_out(planned(manager, "nvidia-smi"))
    manager.without_file, manager.offers["libcuda1"] = ["libcuda1"], "550.1"
    wanted = planned(manager)
    assert (wanted.install, wanted.reinstall) == ([], ["libcuda1=535.2"])
    manager.carry_out(wanted)
    assert nothing_left(planned(manager))


def test_transaction_refuses_to_remove_packages(manager: FakeManager) -> None:
    manager.removes = ["openmpi"]
    with pytest.raises(ModuleFailed, match="The installation of nvidia-smi would remove openmpi"):
        planned(manager, "nvidia-smi")


OLD_BRANCH, NEW_BRANCH = "libnvidia-compute-535-server", "libnvidia-compute-580-server"


def test_transaction_replaces_packages_of_another_branch_of_the_driver(manager: FakeManager) -> None:
    """On Ubuntu they conflict. A rollback returns to the removed ones."""
    node_transaction.RECORD.write_text(json.dumps({"nvidia_driver": {OLD_BRANCH: "535.2"}}))
    manager.there[OLD_BRANCH] = InstalledPackage("535.2", True)
    manager.offers[NEW_BRANCH], manager.removes = "580.1", [OLD_BRANCH]
    wanted = planned(manager, NEW_BRANCH)
    assert (wanted.install, wanted.remove, wanted.release) == ([f"{NEW_BRANCH}=580.1"], [OLD_BRANCH], [OLD_BRANCH])
    assert (wanted.hold, wanted.record) == ([NEW_BRANCH], {"nvidia_driver": {NEW_BRANCH: "580.1"}})
    assert wanted.previous == {"nvidia_driver": {OLD_BRANCH: "535.2"}}
    manager.carry_out(wanted)
    assert OLD_BRANCH not in manager.there
    assert nothing_left(again := planned(manager)) and again.record == wanted.record
    manager.offers[OLD_BRANCH], manager.removes = "535.2", [NEW_BRANCH]
    back = planned(manager, f"{OLD_BRANCH}=535.2")
    assert (back.remove, back.record) == ([NEW_BRANCH], {"nvidia_driver": {OLD_BRANCH: "535.2"}})


def test_transaction_completes_an_interrupted_change_of_the_branch(manager: FakeManager) -> None:
    """The next run may ask for nothing, because the driver that is installed fits."""
    old, new = {"nvidia_driver": {OLD_BRANCH: "535.2"}}, {"nvidia_driver": {NEW_BRANCH: "580.1"}}
    node_transaction.RECORD.write_text(json.dumps(old))
    manager.there[OLD_BRANCH] = InstalledPackage("535.2", True)
    manager.offers[NEW_BRANCH], manager.removes = "580.1", [OLD_BRANCH]
    wanted = planned(manager, NEW_BRANCH)
    node_transaction.RECORD.write_text(json.dumps(wanted.pending))
    unchanged = planned(manager)
    assert nothing_left(unchanged) and (unchanged.record, unchanged.previous) == (old, {}), "nothing was installed"
    assert planned(manager, NEW_BRANCH) == wanted
    manager.begin(wanted)
    for asked in ([], [NEW_BRANCH]):
        again = planned(manager, *asked)
        assert (again.install, again.hold, again.record, again.previous) == ([], [NEW_BRANCH], new, old)


@pytest.mark.parametrize(
    ("held", "component", "error"),
    [
        (True, "nvidia_driver", f"change packages that are on hold: {OLD_BRANCH}"),
        (False, "cuda", f"remove {OLD_BRANCH}"),
    ],
)
def test_transaction_removes_no_package_of_a_driver_that_is_on_hold_or_for_another_component(
    manager: FakeManager, held: bool, component: str, error: str
) -> None:
    manager.there[OLD_BRANCH] = InstalledPackage("535.2", held)
    manager.offers[NEW_BRANCH], manager.removes = "580.1", [OLD_BRANCH]
    with pytest.raises(ModuleFailed, match=f"The installation of {NEW_BRANCH} would {error}"):
        planned(manager, NEW_BRANCH, component=component)


@pytest.mark.parametrize(
    ("name", "is_driver"),
    [
        ("xserver-xorg-video-nvidia-535", True),
        ("xserver-xorg-video-nouveau", False),
        ("nvidia-driver-535", True),
        ("nvidia-driver-local-repo-ubuntu2204-580.95.05", False),
    ],
)
def test_packages_of_a_driver_are_recognised_by_their_names(name: str, is_driver: bool) -> None:
    assert bool(node_transaction.DRIVER.match(name)) == is_driver


def test_patterns_of_a_drivers_packages_are_those_of_preflight() -> None:
    """Modules that run on hosts cannot import them."""
    assert node_transaction.DRIVER.pattern == readings.PACKAGE.pattern
    assert node_transaction.LIBRARY.pattern == readings.LIBRARY.pattern


def test_transaction_refuses_to_install_a_kernel(manager: FakeManager) -> None:
    with pytest.raises(ModuleFailed, match="nvidia-headless would install another kernel: linux-image"):
        planned(manager, "nvidia-headless")


def test_transaction_refuses_to_change_a_package_that_somebody_else_put_on_hold(manager: FakeManager) -> None:
    manager.there["libcuda1"] = InstalledPackage("530.1", True)
    with pytest.raises(ModuleFailed, match="would change packages that are on hold: libcuda1") as refused:
        planned(manager, "nvidia-smi")
    assert refused.value.fault["remedy"] == "unhold libcuda1, then provision again"


#: What apt-get prints, and dpkg-query with the format of receipts.
APT = """Reading package lists...
The following held packages will be changed:
  libcudnn8
Remv openmpi-bin [4.1.4-3]
Inst libcudnn8 [8.9.7.29-1+cuda12.2] (8.9.4.25-1+cuda12.2 NVIDIA:/ [amd64])
Inst nvidia-smi (535.261.03-1 Debian:12.11/oldstable [amd64])
Conf nvidia-smi (535.261.03-1 Debian:12.11/oldstable [amd64])
"""
FAKE_APT = """#!/bin/sh
echo "$0 $*" >> $LOG
case "$*" in
*update) echo "W: Failed to fetch http://dead.example/  Connection refused";;
*nvidia-none) echo "Reading package lists..."; echo "E: Unable to locate package nvidia-none"; exit 100;;
*) cat $APT;;
esac
"""
FAKE_DPKG_QUERY = """#!/bin/sh
printf 'nvidia-smi\\tii \\t535.2\\tnvidia-smi\\n /etc/gone\\n /usr/share/gone\\n /usr\\n /usr/bin/gone\\n\\n'
printf 'libcuda1\\thi \\t535.1\\tlibcuda1:amd64\\n /usr\\nlibnvidia-ml1\\trc \\t530\\tlibnvidia-ml1\\n'
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of fake programs, which comes first on the PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_apt_simulation_is_read(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "apt-get", FAKE_APT)
    (programs / "output").write_text(APT)
    monkeypatch.setenv("APT", str(programs / "output"))
    versions, removed = Apt().simulate(["nvidia-smi", "libcudnn8=8.9.4*"])
    assert versions == {"libcudnn8": "8.9.4.25-1+cuda12.2", "nvidia-smi": "535.261.03-1"}
    assert removed == ["openmpi-bin"]
    assert " -s --ignore-hold --no-install-recommends --allow-downgrades install " in (programs / "log").read_text()


#: What apt-get prints for another branch of Ubuntu's driver.
APT_OF_ANOTHER_BRANCH = """Reading package lists...
The following packages will be REMOVED:
  libnvidia-compute-535-server nvidia-utils-535-server
The following NEW packages will be installed:
  libnvidia-compute-580-server nvidia-utils-580-server
Remv nvidia-utils-535-server [535.161.08-0ubuntu2.22.04.1]
Remv libnvidia-compute-535-server [535.161.08-0ubuntu2.22.04.1]
Inst libnvidia-compute-580-server (580.95.05-0ubuntu0.22.04.2 Ubuntu:22.04/jammy-updates [amd64])
Inst nvidia-utils-580-server (580.95.05-0ubuntu0.22.04.2 Ubuntu:22.04/jammy-updates [amd64])
Conf libnvidia-compute-580-server (580.95.05-0ubuntu0.22.04.2 Ubuntu:22.04/jammy-updates [amd64])
Conf nvidia-utils-580-server (580.95.05-0ubuntu0.22.04.2 Ubuntu:22.04/jammy-updates [amd64])
"""
#: Knows the packages in $ROWS.
FAKE_DPKG_QUERY_OF_ROWS = """#!/bin/sh
shift 3
for name; do grep "^$name$(printf '\\t')" $ROWS; done
"""


@pytest.mark.usefixtures("manager")
def test_apt_may_remove_packages_of_the_branch_that_a_driver_replaces(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, old = ["libnvidia-compute-535-server", "nvidia-utils-535-server"], "535.161.08-0ubuntu2.22.04.1"
    program(programs, "apt-get", FAKE_APT)
    program(programs, "dpkg-query", FAKE_DPKG_QUERY_OF_ROWS)
    (programs / "output").write_text(APT_OF_ANOTHER_BRANCH)
    (programs / "rows").write_text("".join(f"{name}\thi \t{old}\t{name}\n" for name in names))
    monkeypatch.setenv("APT", str(programs / "output"))
    monkeypatch.setenv("ROWS", str(programs / "rows"))
    node_transaction.RECORD.write_text(json.dumps({"nvidia_driver": dict.fromkeys(names, old)}))
    wanted = transaction(Apt(), "nvidia_driver", (), ["nvidia-utils-580-server"], update=False)
    assert wanted.install == ["nvidia-utils-580-server=580.95.05-0ubuntu0.22.04.2"]
    assert (sorted(wanted.remove), wanted.release) == (names, names)
    assert wanted.previous == {"nvidia_driver": dict.fromkeys(names, old)}
    role = yaml.safe_load((ansible.data_dir() / "roles/nvidia_packages/tasks/apt-get.yml").read_text())
    tasks = [
        task["ansible.builtin.apt"] for part in role for task in part.get("block", ()) if "ansible.builtin.apt" in task
    ]
    refuses = Environment().compile_expression(tasks[0]["fail_on_autoremove"].strip("{} "))
    for found, expected in ((wanted, False), (wanted._replace(remove=[]), True)):
        assert refuses(nvidia_packages_transaction=found._asdict()) is expected


def test_apt_names_unreachable_sources_when_a_package_is_missing(programs: Path) -> None:
    program(programs, "apt-get", FAKE_APT)
    apt = Apt()
    apt.update()
    with pytest.raises(ModuleFailed) as refused:
        apt.simulate(["nvidia-none"])
    assert str(refused.value).splitlines() == [
        "apt cannot install nvidia-none (exit code 100)", "E: Unable to locate package nvidia-none",
        "Failed to fetch http://dead.example/  Connection refused",
    ]  # fmt: skip


FAKE_APT_OF_A_NEW_KERNEL = """#!/bin/sh
echo "E: Unable to locate package linux-headers-6.1.0-18-amd64"
echo "E: Couldn't find any package by glob 'linux-headers-6.1.0-18-amd64'"
exit 100
"""
FAKE_DNF_OF_A_NEW_KERNEL = """#!/bin/sh
echo "No match for argument: kernel-devel-5.14.0-362.8.1.el9_3.x86_64"
echo "Error: Unable to find a match: kernel-devel-5.14.0-362.8.1.el9_3.x86_64"
exit 1
"""


@pytest.mark.parametrize(
    ("name", "text", "manager", "package"),
    [
        ("apt-get", FAKE_APT_OF_A_NEW_KERNEL, Apt, "linux-headers-6.1.0-18-amd64"),
        ("dnf", FAKE_DNF_OF_A_NEW_KERNEL, Dnf, "kernel-devel-5.14.0-362.8.1.el9_3.x86_64"),
    ],
)
def test_headers_that_the_sources_no_longer_have_are_an_error_with_a_remedy(
    programs: Path, name: str, text: str, manager: type[node_transaction.Manager], package: str
) -> None:
    program(programs, name, text)
    with pytest.raises(ModuleFailed) as refused:
        manager().simulate(["nvidia-kernel-dkms", package])
    remedy = f"the package sources have no {package}: install the latest kernel, reboot, then provision again"
    assert refused.value.fault["remedy"] == remedy


def test_dpkg_reports_versions_holds_and_missing_files(programs: Path) -> None:
    program(programs, "dpkg-query", FAKE_DPKG_QUERY)
    names = ["nvidia-smi", "libcuda1", "libnvidia-ml1"]
    assert Apt().installed(names) == {
        "nvidia-smi": InstalledPackage("535.2", False),
        "libcuda1": InstalledPackage("535.1", True),
    }
    assert Apt().damaged(names) == ["nvidia-smi"]
    assert (Apt().installed([]), Apt().damaged([])) == ({}, [])


#: What dnf 4.14 prints with --assumeno, where a long name is followed by a line break.
DNF = """Last metadata expiration check: 0:00:01 ago.
Dependencies resolved.
================================================================================
 Package             Architecture  Version              Repository         Size
================================================================================
Installing:
 nvidia-open         noarch        3:580.65.06-1.el9    tfctl-nvidia       8.5 k
     replacing  nvidia-driver-NVML.x86_64 3:535.183.06-1.el9
Installing dependencies:
 cuda-toolkit-12-2-config-common-of-a-long-name
                     noarch        12.2.140-1.el9       tfctl-nvidia       6.1 k
Removing:
 openmpi             x86_64        4.1.1-7.el9          @appstream          19 M
Downgrading:
 libnccl             x86_64        2.16.5-1+cuda12.0    tfctl-nvidia        90 M
Enabling module streams:
 nvidia-driver                     580-open

Transaction Summary
================================================================================
Install  2 Packages

Operation aborted.
"""
NO_MATCH = "No match for argument: nvidia-none\nError: Unable to find a match: nvidia-none\n"
RPM = """nvidia-open\tii\t3:580.65.06-1.el9\tnvidia-open.noarch
kernel-devel\tii\t0:5.14.0-1.el9\tkernel-devel.x86_64
 /usr/share/gone
 /usr
 /usr/src/gone
"""


def test_dnf_simulation_is_read(programs: Path) -> None:
    (programs / "output").write_text(DNF)
    program(programs, "dnf", f"#!/bin/sh\necho $* >> $LOG\ncat {programs}/output; exit 1\n")
    versions, removed = Dnf().simulate(["nvidia-open=3:580*"])
    assert versions == {
        "nvidia-open": "3:580.65.06-1.el9", "cuda-toolkit-12-2-config-common-of-a-long-name": "0:12.2.140-1.el9",
        "libnccl": "0:2.16.5-1+cuda12.0",
    }  # fmt: skip
    assert removed == ["openmpi", "nvidia-driver-NVML"]
    words = (programs / "log").read_text().split()
    assert words[-3:] == ["--assumeno", "install", "nvidia-open-3:580*"]
    assert "-q" not in words, "dnf -q prints no table"


def test_dnf_error_is_reported(programs: Path) -> None:
    (programs / "output").write_text(NO_MATCH)
    program(programs, "dnf", f"#!/bin/sh\ncat {programs}/output; exit 1\n")
    with pytest.raises(ModuleFailed) as refused:
        Dnf().simulate(["nvidia-none"])
    assert str(refused.value) == f"dnf cannot install nvidia-none\n{NO_MATCH.strip()}"


def test_rpm_versions_have_an_epoch_and_locks_are_read(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has versions with epochs, because preflight compares it with versions that have one."""
    monkeypatch.setattr(node_transaction, "LOCKS", programs / "versionlock.list")
    (programs / "output").write_text(RPM)
    program(programs, "rpm", f"#!/bin/sh\ncat {programs}/output\n")
    program(programs, "dpkg-query", "#!/bin/sh\n")  # as of EPEL's package dpkg
    (programs / "versionlock.list").write_text("# Added\nnvidia-open-3:580.65.06-1.el9.*\nkernel-devel-0:5.13-1.*\n")
    kernel, locked = InstalledPackage("0:5.14.0-1.el9", False), InstalledPackage("3:580.65.06-1.el9", True)
    found = Dnf().installed(["nvidia-open", "kernel-devel-5.14.0-1.el9.x86_64"])
    assert found == {"nvidia-open": locked, "kernel-devel-5.14.0-1.el9.x86_64": kernel}
    assert Dnf().damaged(["nvidia-open", "kernel-devel"]) == ["kernel-devel"]
    assert node_transaction.is_installed(found, "nvidia-open=580.*")
    assert node_transaction.is_installed(found, "nvidia-open=3:580.*")
    assert not node_transaction.is_installed(found, "nvidia-open=590.*")
