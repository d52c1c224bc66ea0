"""The locks of dnf's plugin versionlock: set once, kept by later runs, moved by an upgrade, released by a reset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_dnf
import pytest
import yaml
from ansible_collections.tfctl.cluster.plugins.module_utils import transaction as node_transaction
from ansible_collections.tfctl.cluster.plugins.module_utils.created import begin, end, undo
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import Manages, announce, read_all
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import (
    Dnf,
    Transaction,
    missing,
    transaction,
)

from tfctl.provision import ansible

ROLE = ansible.data_dir() / "roles/nvidia_packages"
OLD, NEW = "3:580.65.06-1.el9", "3:590.48.01-1.el9"
#: A lock of the owner of the host.
OTHERS = "postgresql-0:15.2-1.el9.*"


class Host:
    """A fake host of the EL family, without apt."""

    def __init__(self, folder: Path) -> None:
        self.manager = Dnf()
        self.manager.root = folder
        self.folder, self.state, self.locks = folder, folder / "dnf.json", folder / "versionlock.list"
        offers = {"nvidia-open": [OLD, NEW], "nvidia-driver-libs": [OLD, NEW], "postgresql": ["0:15.2-1.el9"]}
        needs = {"nvidia-open": ["nvidia-driver-libs"]}
        there = {"postgresql": "0:15.2-1.el9"}
        self.state.write_text(json.dumps({"installed": there, "offers": offers, "needs": needs, "calls": []}))
        self.locks.write_text(f"# Added lock on Mon Nov 23 12:00:00 2026\n{OTHERS}\n")

    def __getitem__(self, part: str) -> Any:
        return json.loads(self.state.read_text())[part]

    def change(self, **parts: Any) -> None:
        self.state.write_text(json.dumps({**json.loads(self.state.read_text()), **parts}))

    def locked(self) -> list[str]:
        return sorted(line for line in self.locks.read_text().splitlines() if line and line[0] != "#")

    def transaction(self, *packages: str) -> Transaction:
        return transaction(self.manager, "nvidia_driver", (), packages, update=True)

    def provision(self, *packages: str) -> Transaction:
        """Run the tasks of the role that install and lock packages, and write its record."""
        wanted = self.transaction(*packages)
        announce(wanted.new, self.folder / "installed")
        done = self.play(wanted)
        assert done.returncode == 0, done.stdout + done.stderr
        node_transaction.RECORD.write_text(json.dumps(wanted.record))
        return wanted

    def install(self, *packages: str) -> None:
        """Install packages as the role packages does."""
        absent, new = missing(self.manager, packages, act=True)
        announce(new, self.folder / "installed")
        subprocess.run(["dnf", "-y", "install", *absent], check=True, timeout=10)

    def play(self, wanted: Transaction) -> subprocess.CompletedProcess[str]:
        tasks = yaml.safe_load((ROLE / "tasks/dnf.yml").read_text())
        (block,) = [task for task in tasks if "block" in task]
        for task in block["block"]:
            # The module needs the bindings of dnf. Its option allow_downgrade does not matter here.
            if task.pop("ansible.builtin.dnf", None):
                task["ansible.builtin.command"] = {
                    "argv": "{{ ['dnf', '-y', 'install'] + nvidia_packages_transaction.install }}"
                }
        return self.run({"nvidia_packages_transaction": wanted._asdict()}, block, tasks[-1])

    def run(
        self, variables: dict[str, Any], *tasks: dict[str, Any], check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        found = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}
        playbook = self.folder / "play.yml"
        playbook.write_text(json.dumps([found]))
        words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "--connection", "local"]
        words += [str(playbook), "-e", f"ansible_python_interpreter={sys.executable}"]
        words += ["--check"] if check else []
        path = f"{os.environ['PATH']}:/usr/bin:/bin"
        return subprocess.run(words, capture_output=True, text=True, timeout=110, env={**os.environ, "PATH": path})


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    fake_dnf.install(tmp_path / "bin")
    found = Host(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_DNF", str(found.state))
    monkeypatch.setenv("FAKE_LOCKS", str(found.locks))
    monkeypatch.setattr(node_transaction, "LOCKS", found.locks)
    monkeypatch.setattr(node_transaction, "RECORD", tmp_path / "held.json")
    monkeypatch.setattr(node_transaction, "PREVIOUS", tmp_path / "held-before.json")
    return found


def of(version: str) -> list[str]:
    return [f"nvidia-driver-libs-{version}.*", f"nvidia-open-{version}.*", OTHERS]


def test_packages_are_locked_once_and_stay_locked_in_later_runs(host: Host) -> None:
    first = host.provision("nvidia-open=3:580.*")
    assert first.hold == ["nvidia-driver-libs", "nvidia-open"]
    assert host.locked() == of(OLD)
    second = host.transaction("nvidia-open=3:580.*")
    assert (second.install, second.reinstall, second.release, second.hold) == ([], [], [], [])
    assert second.record == first.record


@pytest.mark.parametrize("other", ["solver", "gromacs-common-of-a-long-name"])
def test_package_that_another_one_needs_stays_when_its_role_is_undone(host: Host, other: str) -> None:
    """`dnf remove` would remove both. Its table has the long name on a line of its own."""
    receipts = f"{host.folder}/provision"
    manages: Manages = {"packages": ["openmpi", "gcc"]}
    begin("openmpi", manages, receipts)
    host.change(offers={"openmpi": ["2:4.1.1-5.el9"], "gcc": ["0:11.5.0-5.el9"]})
    host.install("openmpi", "gcc")
    end("openmpi", "digest", manages, receipts)
    host.change(installed={**host["installed"], other: "0:1-1.el9"}, needs={other: ["openmpi"]})
    found = undo(read_all(receipts), receipts)
    assert found.kept == [f"package openmpi.x86_64: {other} need it"]
    assert sorted(host["installed"]) == sorted(["openmpi", "postgresql", other])


def test_reset_removes_no_package_that_somebody_else_has_installed_while_a_role_ran(host: Host) -> None:
    receipts = f"{host.folder}/provision"
    begin("openmpi", {}, receipts)
    host.change(installed={**host["installed"], "hwloc": "0:2-1.el9", "htop": "0:3-1.el9"})  # by the owner of the host
    host.change(
        offers={"openmpi": ["2:4.1.1-5.el9"], "libfabric-of-a-long-name": ["0:1-1.el9"]},
        needs={"openmpi": ["libfabric-of-a-long-name", "hwloc"]},
    )
    host.install("openmpi", "postgresql")
    host.change(installed={**host["installed"], "tmux": "0:3-1.el9"})
    end("openmpi", "digest", {}, receipts)
    removed = undo(read_all(receipts), receipts).removed
    assert removed == ["package libfabric-of-a-long-name.x86_64", "package openmpi.x86_64"]
    assert sorted(host["installed"]) == ["htop", "hwloc", "postgresql", "tmux"]


@pytest.mark.extended
def test_lock_is_set_again_after_it_was_removed_or_changed_by_hand(host: Host) -> None:
    """The plugin would add no lock at all while one of the packages is locked in another version."""
    host.provision("nvidia-open=3:580.*")
    host.locks.write_text(f"{OTHERS}\nnvidia-open-3:570.1-1.el9.*\n")
    host.provision("nvidia-open=3:580.*")
    assert host.locked() == of(OLD)


@pytest.mark.extended
def test_upgrade_moves_the_locks_to_the_new_versions(host: Host) -> None:
    host.provision("nvidia-open=3:580.*")
    upgrade = host.provision("nvidia-open=3:590.*")
    assert upgrade.release == ["nvidia-driver-libs", "nvidia-open"]
    assert host["installed"] == {"postgresql": "0:15.2-1.el9", "nvidia-open": NEW, "nvidia-driver-libs": NEW}
    assert host.locked() == of(NEW)


@pytest.mark.extended
def test_upgrade_that_fails_leaves_the_locks(host: Host) -> None:
    host.provision("nvidia-open=3:580.*")
    wanted = host.transaction("nvidia-open=3:590.*")
    host.change(offers={"nvidia-open": [OLD], "nvidia-driver-libs": [OLD]})
    assert "Unable to find a match: nvidia-open-3:590.48.01-1.el9" in host.play(wanted).stdout
    assert host.locked() == of(OLD)


def test_upgrade_of_packages_that_somebody_else_has_locked_is_refused(host: Host) -> None:
    host.locks.write_text(f"{OTHERS}\nnvidia-open-{OLD}.*\n")
    host.change(installed={"nvidia-open": OLD, "nvidia-driver-libs": OLD})
    with pytest.raises(ModuleFailed, match="would change packages that are on hold: nvidia-open") as refused:
        host.transaction("nvidia-open=3:590.*")
    assert refused.value.fault["remedy"] == "dnf versionlock delete nvidia-open, then provision again"


@pytest.mark.extended
def test_module_stream_of_another_branch_is_enabled_and_stays(host: Host) -> None:
    (task,) = (each for each in yaml.safe_load((ROLE / "tasks/dnf.yml").read_text()) if "stream" in each["name"])
    for stream, changed in (("570-open", 1), ("580-open", 1), ("580-open", 0)):
        done = host.run({"nvidia_packages_module_stream": f"nvidia-driver:{stream}"}, task)
        assert f"changed={changed} " in done.stdout and "failed=0" in done.stdout, done.stdout
        assert host["streams"] == {"nvidia-driver": stream}


@pytest.mark.extended
def test_check_mode_enables_no_module_stream_and_simulates_nothing_without_it(host: Host) -> None:
    """dnf finds the packages of a branch in its stream only."""
    enable, simulate = (
        task
        for task in yaml.safe_load((ROLE / "tasks/dnf.yml").read_text())
        if "stream" in task["name"] or "Simulate" in task["name"]
    )
    simulate["ansible.builtin.debug"] = {"msg": "it is simulated"}
    del simulate["ansible.builtin.import_tasks"]
    variables = {"nvidia_packages_module_stream": "nvidia-driver:580-open"}
    for stream, simulated in (("570-open", False), ("580-open", True)):
        host.change(streams={"nvidia-driver": stream})
        done = host.run(variables, enable, simulate, check=True)
        assert "failed=0" in done.stdout and ("it is simulated" in done.stdout) == simulated, done.stdout
        assert host["streams"] == {"nvidia-driver": stream}


@pytest.mark.extended
@pytest.mark.parametrize("needed", [False, True], ids=["alone", "needed by another package"])
def test_reset_removes_the_packages_and_their_locks_but_not_those_of_others(host: Host, needed: bool) -> None:
    receipts = str(host.folder / "provision")
    begin("nvidia_driver", {"packages": ["nvidia-open"]}, receipts)
    host.provision("nvidia-open=3:580.*")
    end("nvidia_driver", "digest", {"packages": ["nvidia-open"]}, receipts)
    if needed:
        host.change(
            installed={**host["installed"], "dcgm": "0:4.1-1.el9"},
            needs={**host["needs"], "dcgm": ["nvidia-driver-libs"]},
        )
    undone = undo(read_all(receipts), receipts)
    removed = ["package nvidia-open.x86_64"]
    removed += ["hold of package nvidia-driver-libs", "hold of package nvidia-open", str(node_transaction.RECORD)]
    if needed:
        assert undone.kept == ["package nvidia-driver-libs.x86_64: dcgm need it"]
    else:
        removed.insert(0, "package nvidia-driver-libs.x86_64")
    assert undone.removed == removed
    assert host.locked() == [OTHERS]
    assert {"nvidia-open", "nvidia-driver-libs"} & {*host["installed"]} == ({"nvidia-driver-libs"} if needed else set())
