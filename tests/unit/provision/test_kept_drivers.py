"""The packages of a driver are kept before an upgrade, so that a rollback works when no package source has them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fake_dnf
import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import transaction as node_transaction
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import Apt, Dnf, Transaction, transaction

from tests.unit.provision.apt_tree import AptTree
from tests.unit.provision.role_play import play, tasks_of

OLD, NEW = {"libcuda1": "1:535.2-1", "nvidia-smi": "535.2-1"}, {"libcuda1": "1:550.1-1", "nvidia-smi": "550.1-1"}


class Host:
    """A host on which the tasks of the role that keep and find packages run. tfctl has installed the driver OLD."""

    def __init__(self, folder: Path, manager: Apt | Dnf) -> None:
        self.folder, self.kept, self.manager = folder, folder / "driver-before", manager
        self.manager.root = folder
        self.record(OLD)

    def record(self, versions: Mapping[str, str], previous: Mapping[str, str] | None = None) -> None:
        node_transaction.RECORD.write_text(json.dumps({"nvidia_driver": versions}))
        node_transaction.PREVIOUS.write_text(json.dumps({"nvidia_driver": previous} if previous else {}))

    def plan(self, packages: Sequence[str]) -> Transaction:
        return transaction(self.manager, "nvidia_driver", (), packages, update=False)

    def run(self, tasks: Sequence[Mapping[str, Any]], wanted: Mapping[str, str] | Sequence[str], *options: str) -> str:
        """Run tasks of the role for these versions, or for these files. Return what Ansible prints."""
        names = [f"{name}={version}" for name, version in wanted.items()] if isinstance(wanted, Mapping) else [*wanted]
        variables = {
            "nvidia_packages_component": "nvidia_driver", "nvidia_packages_names": names,
            "nvidia_packages_manager": "apt-get" if self.manager.apt else "dnf", "nvidia_packages_rollback": True,
            "nvidia_packages_transaction": self.plan(names)._asdict() if tasks is KEEP else {"previous": {}},
            "nvidia_packages_kept": str(self.kept),
        }  # fmt: skip
        return play(self.folder, "nvidia_packages", tasks, "-e", json.dumps(variables), *options)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.kept.iterdir()) if self.kept.exists() else []

    def names(self, wanted: Mapping[str, str] = OLD) -> list[str]:
        """Return what a rollback to these versions asks the package manager for."""
        output = self.run(FIND, wanted)
        return list(json.loads(re.findall(r'"msg": (\[.*?\])', output, re.S)[-1]))


KEEP = tasks_of("nvidia_packages", "keep.yml")
for _task in KEEP:  # tests need no root
    for _name in ("owner", "group"):
        _task.get("ansible.builtin.file", {}).pop(_name, None)
FIND = [
    *(task for task in tasks_of("nvidia_packages", "main.yml") if task["name"].startswith("Find the kept")),
    {"ansible.builtin.debug": {"msg": "{{ nvidia_packages_found.stdout_lines }}"}},
]


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_transaction, "RECORD", tmp_path / "held.json")
    monkeypatch.setattr(node_transaction, "PREVIOUS", tmp_path / "held-before.json")


class Debian(Host):
    """Real apt and dpkg-query, on a tree of the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Apt())
        (folder / "debian").mkdir()
        self.tree = AptTree(folder / "host", f"deb [trusted=yes] file:{folder}/debian ./\n")

    def offer(self, *drivers: Mapping[str, str]) -> None:
        """Let the package source have these drivers and no others."""
        source, paragraphs = self.folder / "debian", []
        for name, version in (pair for driver in drivers for pair in driver.items()):
            control = self.folder / f"build/{name}/{version}/DEBIAN/control"
            control.parent.mkdir(parents=True, exist_ok=True)
            fields = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x <x@example.org>\n"
            control.write_text(f"{fields}Description: x\n")
            path = source / f"{name}_{version.replace(':', '')}.deb"
            words = ["dpkg-deb", "--root-owner-group", "-b", str(control.parents[1]), str(path)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=60)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            fields += f"Filename: ./{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n"
            paragraphs.append(f"{fields}Description: x\n")
        (source / "Packages").write_text("\n".join(paragraphs))
        self.tree.update()

    def have(self, driver: Mapping[str, str]) -> None:
        fields = "Status: install ok installed\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"
        text = "\n".join(f"Package: {name}\nVersion: {version}\n{fields}" for name, version in driver.items())
        (self.folder / "host/state/status").write_text(text)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Debian:
    found = Debian(tmp_path)
    monkeypatch.setenv("APT_CONFIG", str(found.tree.configuration))
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path / "host/state"))
    found.have(OLD)
    return found


DEBS = ["libcuda1_1%3a535.2-1_amd64.deb", "nvidia-smi_535.2-1_amd64.deb"]


@pytest.mark.extended
def test_rollback_of_an_upgrade_needs_no_package_source_that_has_the_earlier_driver(debian: Debian) -> None:
    debian.offer(OLD, NEW)
    assert "cannot return" not in debian.run(KEEP, NEW)
    assert debian.files() == DEBS
    debian.offer(NEW)
    debian.have(NEW)
    debian.record(NEW, previous=OLD)
    names = debian.names()
    assert names == [f"{debian.kept}/{file}" for file in DEBS]
    back = debian.plan(names)
    assert (sorted(back.install), back.record["nvidia_driver"], back.previous["nvidia_driver"]) == (names, OLD, NEW)
    debian.run(KEEP, names)
    assert len(debian.files()) == 4, "a rollback keeps the driver that it replaces, too"


@pytest.mark.extended
def test_driver_that_the_package_source_lacks_is_kept_from_the_cache_of_apt(debian: Debian) -> None:
    debian.offer(OLD)
    cache = debian.folder / "host/cache/archives"
    assert debian.tree.run("sh", "-ec", f"cd {cache} && apt-get -q download {' '.join(OLD)}").returncode == 0
    debian.offer(NEW)
    assert "cannot return" not in debian.run(KEEP, NEW, "--check") and debian.files() == []
    assert "cannot return" not in debian.run(KEEP, NEW)
    assert debian.files() == DEBS


@pytest.mark.extended
@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_upgrade_says_before_it_changes_anything_that_the_present_driver_cannot_be_kept(
    debian: Debian, option: str
) -> None:
    debian.offer({"libcuda1": OLD["libcuda1"]}, NEW)
    said = (
        "tfctl cannot return to the present driver later, because its package sources no longer have nvidia-smi=535.2-1"
    )
    assert said in debian.run(KEEP, NEW, option)
    assert debian.files() == ([] if option == "--check" else DEBS[:1])


@pytest.mark.extended
def test_kept_packages_are_those_before_the_last_change(debian: Debian) -> None:
    debian.offer(OLD, NEW)
    debian.run(KEEP, NEW)
    for name in ("libcuda1_1%3a525.1-1_amd64.deb", "nvidia-smi_525.1-1_amd64.deb"):
        (debian.kept / name).touch()
    (task,) = (each for each in tasks_of("nvidia_packages", "main.yml") if each["name"].startswith("Remove the kept"))
    wanted = {"nvidia_packages_transaction": {"previous": {"nvidia_driver": OLD}}}
    given = {
        "nvidia_packages_component": "nvidia_driver", "nvidia_packages_manager": "apt-get",
        "nvidia_packages_kept": str(debian.kept), **wanted,
    }  # fmt: skip
    play(debian.folder, "nvidia_packages", [task], "-e", json.dumps(given))
    assert debian.files() == DEBS


EL_OLD = dict.fromkeys(("nvidia-driver-libs", "nvidia-open"), "3:580.65.06-1.el9")
EL_NEW = dict.fromkeys(EL_OLD, "3:590.48.01-1.el9")
RPMS = [f"{name}-580.65.06-1.el9.x86_64.rpm" for name in EL_OLD]


@pytest.fixture
def rocky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host with fakes of dnf and rpm."""
    fake_dnf.install(tmp_path / "bin")
    offers = {name: [EL_OLD[name], EL_NEW[name]] for name in EL_OLD}
    state = {"installed": EL_OLD, "offers": offers, "needs": {}, "calls": []}
    (tmp_path / "dnf.json").write_text(json.dumps(state))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DNF", str(tmp_path / "dnf.json"))
    monkeypatch.setenv("FAKE_LOCKS", str(tmp_path / "versionlock.list"))
    monkeypatch.setattr(node_transaction, "LOCKS", tmp_path / "versionlock.list")
    found = Host(tmp_path, Dnf())
    found.record(EL_OLD)
    yield found


def offer_new_driver(host: Host, **more: Mapping[str, str]) -> None:
    """Let the package source have no other driver."""
    state = json.loads((host.folder / "dnf.json").read_text())
    state["offers"] = {name: [version] for name, version in EL_NEW.items()}
    (host.folder / "dnf.json").write_text(json.dumps({**state, **more}))


@pytest.mark.extended
def test_rollback_on_el_needs_no_package_source_that_has_the_earlier_driver(rocky: Host) -> None:
    assert "cannot return" not in rocky.run(KEEP, EL_NEW)
    assert rocky.files() == RPMS
    offer_new_driver(rocky, installed=EL_NEW)
    rocky.record(EL_NEW, previous=EL_OLD)
    files = [f"{rocky.kept}/{name}" for name in RPMS]
    assert rocky.names(EL_OLD) == files
    back = rocky.plan(files)
    assert (back.install, back.record["nvidia_driver"]) == (files, EL_OLD)


@pytest.mark.extended
def test_upgrade_on_el_says_that_the_present_driver_cannot_be_kept(rocky: Host) -> None:
    offer_new_driver(rocky)
    lost = "nvidia-driver-libs=3:580.65.06-1.el9, nvidia-open=3:580.65.06-1.el9"
    assert f"no longer have {lost}" in rocky.run(KEEP, EL_NEW, "--check")
