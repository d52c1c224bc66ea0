"""Receipts: what a role created is recorded over all its runs, changes by hand are noticed, and a reset undoes it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_host_programs
import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import created, programs
from ansible_collections.tfctl.cluster.plugins.module_utils import receipts as node_receipts
from ansible_collections.tfctl.cluster.plugins.module_utils.created import begin, end, running_jobs, undo
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import live_units
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import (
    INSTALLED,
    Manages,
    Receipt,
    announce,
    drifts,
    read_all,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import Apt, missing
from ansible_collections.tfctl.cluster.plugins.modules import receipt
from ansible_collections.tfctl.cluster.plugins.modules.receipt import remove
from node_tree import Tree, make_plan, reserve

from tfctl.node import receipts, reservations
from tfctl.node.system import System

RUNNING = {"active": "active", "enabled": "enabled"}
STOPPED = {"active": "inactive", "enabled": "disabled"}


class Host:
    """A directory with the files of a host, and fakes of its programs."""

    def __init__(self, folder: Path) -> None:
        self.files, self.state, self.receipts = folder / "files", folder / "host.json", f"{folder}/tfctl/provision"
        self.files.mkdir()
        self.change({"packages": {"base": {"version": "1"}}, "units": {}, "calls": []})

    def change(self, parts: dict[str, Any]) -> None:
        now = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.state.write_text(json.dumps({**now, **parts}))

    def install(self, **packages: dict[str, Any]) -> None:
        self.change({"packages": {**self["packages"], **packages}})

    def provide(self, *names: str, **offers: dict[str, Any]) -> None:
        """Install packages of a source that has these, as the role packages does."""
        self.change({"offers": {**offers, "python3-apt": {"version": "2.6"}}})
        manager = Apt()
        manager.root = self.files  # no other process uses apt there
        absent, new = missing(manager, names, act=True)
        announce(new, Path(self.receipts).parent / INSTALLED.name)
        subprocess.run(["apt-get", "install", *absent], check=True, timeout=10)

    def __getitem__(self, part: str) -> Any:
        return json.loads(self.state.read_text())[part]

    def receipt(self, role: str = "role") -> Any:
        (found,) = [each for each in read_all(self.receipts) if each["role"] == role]
        return found

    def drifts(self, role: str = "role") -> Any:
        return drifts(read_all(self.receipts))[role]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for module in (programs, receipt):
        monkeypatch.setattr(module, "STARTS", tmp_path / "run/tfctl")
    host = Host(tmp_path)
    with fake_host_programs.serve(tmp_path / "bin", host.state):
        yield host


def test_module_util_tfctl_receipts_links_to_the_file_of_the_node_part() -> None:
    linked = Path(node_receipts.__file__)
    assert linked.is_symlink() and linked.resolve() == Path(receipts.__file__)


@pytest.fixture
def manages(host: Host) -> Manages:
    """A role that manages one thing of each kind, and has run."""
    at = host.files
    (at / "there").write_text("older than tfctl\n")
    found: Manages = {
        "paths": [f"{at}/there", f"{at}/etc/role.d/role.conf", f"{at}/link"],
        "trees": [f"{at}/opt/tree"],
        "ignore": ["*.pth"],
        "caches": [f"{at}/cache"],
        "packages": ["tool=2"],
        "units": ["own.service", "old.service"],
        "users": ["root"],
        "groups": ["root"],
        "refresh": ["systemctl restart old.service"],
    }
    host.change({"units": {"old.service": RUNNING}})
    begin("role", found, host.receipts)
    (at / "etc/role.d").mkdir(parents=True)
    (at / "etc/role.d/role.conf").write_text("one\n")
    (at / "link").symlink_to("there")
    (at / "opt/tree/lib").mkdir(parents=True)
    (at / "opt/tree/lib/module.py").write_text("x = 1\n")
    (at / "tool").touch()
    tool = {"version": "2", "files": [f"{at}/tool", "/usr/share/doc/tool"], "needs": ["libtool"]}
    host.provide("tool", tool=tool, libtool={"version": "2"})
    host.change({"units": {"old.service": RUNNING, "own.service": RUNNING}})
    end("role", "digest", found, host.receipts)
    return found


@pytest.fixture
def provisioned(host: Host, manages: Manages) -> Host:
    assert host.receipt()["manages"] == manages
    return host


def test_receipt_lists_what_the_role_created(host: Host, manages: Manages) -> None:
    receipt, at = host.receipt(), str(host.files)
    assert (receipt["role"], receipt["digest"], receipt["manages"]) == ("role", "digest", manages)
    parents = [f"{at}/etc", f"{at}/etc/role.d", f"{at}/opt"]
    assert {kind: sorted(names) for kind, names in receipt["created"].items()} == {
        "paths": sorted([f"{at}/etc/role.d/role.conf", f"{at}/link", *parents]),
        "trees": [f"{at}/opt/tree"],
        "caches": [f"{at}/cache"],
        "packages": ["libtool", "tool"],
        "units": ["own.service"],
        "users": [],
        "groups": [],
    }
    path = Path(host.receipts, "role.json")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o755)


def test_receipt_still_lists_what_the_first_run_created_after_later_runs(host: Host, manages: Manages) -> None:
    first = host.receipt()
    del manages["trees"]
    host.install(more={"version": "1"})  # by the owner of the host, between two runs
    begin("role", manages, host.receipts)
    host.provide("extra", extra={"version": "1"})
    end("role", "other", manages, host.receipts)
    second = host.receipt()
    assert second["since"] == first["since"]
    assert second["created"]["trees"] == [f"{host.files}/opt/tree"]
    assert second["created"]["packages"] == ["extra", "libtool", "tool"]


def test_receipt_forgets_what_the_role_has_removed_and_no_longer_manages(host: Host, manages: Manages) -> None:
    manages["paths"].remove(f"{host.files}/link")
    begin("role", manages, host.receipts)
    (host.files / "link").unlink()
    end("role", "digest", manages, host.receipts)
    receipt = host.receipt()
    assert f"{host.files}/link" not in [*receipt["created"]["paths"], *receipt["before"]["paths"]]


def test_interrupted_run_counts_what_it_created(host: Host) -> None:
    path = host.files / "made"
    manages: Manages = {"paths": [str(path)]}
    begin("role", manages, host.receipts)
    path.touch()
    host.provide("tool", tool={"version": "1"})
    assert host.receipt()["digest"] == ""
    begin("role", manages, host.receipts)
    end("role", "digest", manages, host.receipts)
    assert host.receipt()["created"] == {
        "paths": [str(path)], "trees": [], "caches": [], "packages": ["tool"], "units": [], "users": [], "groups": [],
    }  # fmt: skip


def test_reset_removes_no_package_that_somebody_else_has_installed_while_a_role_ran(host: Host) -> None:
    """With the reboots of a batch, a role may run for hours. ``base`` was there before, ``libtool`` since then."""
    begin("role", {}, host.receipts)
    host.install(htop={"version": "3"}, libtool={"version": "1"})  # by the owner of the host
    needs = {"needs": ["libtool", "libmore"]}
    host.provide("tool", "base", tool={"version": "1", **needs}, libmore={"version": "1"})
    host.install(**{"linux-image-6.1.0-50-amd64": {"version": "6.1"}})  # by unattended upgrades
    end("role", "digest", {}, host.receipts)
    assert host.receipt()["created"]["packages"] == ["libmore", "tool"]
    assert undo(read_all(host.receipts), host.receipts).removed == ["package libmore", "package tool"]
    assert [*host["packages"]] == ["base", "htop", "libtool", "linux-image-6.1.0-50-amd64"]
    assert not Path(host.receipts).parent.exists()


def test_module_that_tfctl_lets_ansible_install_counts_as_created(host: Host) -> None:
    begin("role", {}, host.receipts)
    host.provide("tool", tool={"version": "1"})
    host.install(**{"python3-apt": {"version": "2.6"}})  # by Ansible's module apt
    assert undo(read_all(host.receipts), host.receipts).removed == ["package python3-apt", "package tool"]


def test_nothing_drifts_without_a_change_and_each_program_is_called_once(provisioned: Host) -> None:
    begin("second", {"packages": ["base"], "units": ["old.service"]}, provisioned.receipts)
    end("second", "digest", {"packages": ["base"], "units": ["old.service"]}, provisioned.receipts)
    provisioned.change({"calls": []})
    assert drifts(read_all(provisioned.receipts)) == {"role": [], "second": []}
    assert [call.split()[0] for call in provisioned["calls"]] == ["dpkg-query", "systemctl"]


#: Shell commands in the directory of the files, and the sentence about each.
FILE_DAMAGES = {
    "rm etc/role.d/role.conf": "{at}/etc/role.d/role.conf was removed",
    "echo two >etc/role.d/role.conf": "{at}/etc/role.d/role.conf changed",
    "echo longer >etc/role.d/role.conf": "{at}/etc/role.d/role.conf changed",
    "chmod 600 etc/role.d/role.conf": "{at}/etc/role.d/role.conf changed",
    "mv etc/role.d/role.conf x; ln -s ../../x etc/role.d/role.conf": "{at}/etc/role.d/role.conf changed",
    "ln -sfn nowhere link": "{at}/link changed",
    "rm -r opt/tree": "{at}/opt/tree was removed",
    "echo 'x = 2' >opt/tree/lib/module.py": "{at}/opt/tree/lib/module.py changed",
    "touch opt/tree/lib/new.py": "{at}/opt/tree/lib",
    "rm opt/tree/lib/module.py": "{at}/opt/tree/lib changed",
    "chmod 700 opt/tree": "{at}/opt/tree changed",
    "rm tool": "{at}/tool of package tool=2 was removed",
}


@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_damaged_file_is_named(provisioned: Host, damage: str) -> None:
    subprocess.run(["sh", "-ec", damage], cwd=provisioned.files, check=True, timeout=10)
    (sentence,) = provisioned.drifts()
    assert sentence.startswith(FILE_DAMAGES[damage].format(at=provisioned.files)), sentence
    assert sentence.endswith(" since it was provisioned")


@pytest.mark.parametrize("harmless", ["touch etc/role.d/role.conf", "touch opt/tree/lib/x.pth", "mkdir cache"])
def test_touching_a_file_without_changing_its_content_is_no_drift(host: Host, manages: Manages, harmless: str) -> None:
    if "cache" in harmless:
        (host.files / "cache").mkdir()
        begin("role", manages, host.receipts)
        end("role", "digest", manages, host.receipts)
        harmless = "touch cache/new"
    subprocess.run(["sh", "-ec", harmless], cwd=host.files, check=True, timeout=10)
    assert host.drifts() == []


def test_file_is_hashed_only_when_its_size_or_times_differ(provisioned: Host) -> None:
    """A wrong hash in the receipt is noticed once the time of the file differs."""
    path = Path(provisioned.receipts, "role.json")
    receipt = json.loads(path.read_text())
    receipt["fingerprint"]["paths"][f"{provisioned.files}/there"]["sha256"] = "0"
    path.write_text(json.dumps(receipt))
    assert provisioned.drifts() == []
    (provisioned.files / "there").touch()
    assert provisioned.drifts() == [f"{provisioned.files}/there changed since it was provisioned"]


def test_changes_of_packages_units_and_accounts_are_named(provisioned: Host) -> None:
    provisioned.install(tool={"version": "3"})
    provisioned.change({"units": {"old.service": {**RUNNING, "enabled": "disabled"}}})
    path = Path(provisioned.receipts, "role.json")
    receipt = json.loads(path.read_text())
    receipt["fingerprint"]["users"]["root"]["shell"] = "/bin/false"
    receipt["fingerprint"]["users"]["nobody-like-this"] = {"uid": 5}
    receipt["manages"]["users"].append("nobody-like-this")
    path.write_text(json.dumps(receipt))
    since = "since it was provisioned"
    assert provisioned.drifts() == [
        f"package tool=2 changed {since}",
        f"unit old.service changed {since}",
        f"unit own.service was removed {since}",
        f"user root changed {since}",
        f"user nobody-like-this was removed {since}",
    ]
    provisioned.change({"packages": {}})
    assert f"package tool=2 was removed {since}" in provisioned.drifts()


def test_group_may_get_more_members_but_not_lose_one(provisioned: Host) -> None:
    path = Path(provisioned.receipts, "role.json")
    receipt = json.loads(path.read_text())
    receipt["fingerprint"]["groups"]["root"]["members"] = ["somebody"]
    path.write_text(json.dumps(receipt))
    assert provisioned.drifts() == ["group root changed since it was provisioned"]


def test_unreadable_receipt_is_ignored(provisioned: Host) -> None:
    Path(provisioned.receipts, "torn.json").write_text('{"format": 1')
    Path(provisioned.receipts, "future.json").write_text('{"format": 99}')
    assert [each["role"] for each in read_all(provisioned.receipts)] == ["role"]


def test_undo_returns_the_host_to_its_state_before(provisioned: Host) -> None:
    planned = undo(read_all(provisioned.receipts), provisioned.receipts, act=False)
    assert (provisioned.files / "opt/tree").is_dir() and "tool" in provisioned["packages"]
    removed, kept = undo(read_all(provisioned.receipts), provisioned.receipts)
    assert (removed, kept) == planned
    at = provisioned.files
    assert removed == [
        "unit own.service", f"{at}/opt/tree", f"{at}/link", f"{at}/etc/role.d/role.conf", "package libtool",
        "package tool", f"{at}/opt", f"{at}/etc/role.d", f"{at}/etc",
    ]  # fmt: skip
    assert [path.name for path in at.iterdir()] == ["there"]
    assert [*provisioned["packages"]] == ["base"]
    assert provisioned["units"] == {"old.service": RUNNING, "own.service": STOPPED}
    assert provisioned["calls"][-1] == "systemctl restart old.service"
    assert not Path(provisioned.receipts).exists() and not Path(provisioned.receipts).parent.exists()


@pytest.mark.extended
def test_undo_forgets_the_holds_of_its_roles_alone(provisioned: Host) -> None:
    """A package that stays is released; one that another role needs, such as the driver, stays on hold."""
    held = {"version": "1", "status": "hi "}
    provisioned.install(tool=held, libtool=held, base=held, other={"version": "1", "needs": ["libtool"]})
    records = [Path(provisioned.receipts).parent / name for name in ("held.json", "held-before.json")]
    driver = {"driver": {"base": "1"}}
    for record in records:
        record.write_text(json.dumps({"role": {"tool": "1", "libtool": "1", "base": "1"}, **driver}))
    planned = undo(read_all(provisioned.receipts), provisioned.receipts, act=False)
    before = read_all(provisioned.receipts)
    assert undo(before, provisioned.receipts) == planned
    assert [what for what in planned.removed if "package" in what] == ["package tool", "hold of package libtool"]
    status = {name: package["status"] for name, package in provisioned["packages"].items() if "status" in package}
    assert status == {"libtool": "ii ", "base": "hi "}
    assert [json.loads(record.read_text()) for record in records] == [driver, driver]

    removed = undo([{**before[0], "role": "driver", "created": {}}], provisioned.receipts).removed
    assert removed == ["hold of package base", *map(str, records)]
    assert not any(record.exists() for record in records)


def test_query_packages_asks_rpm_on_a_host_with_dnf_that_also_has_dpkg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, line in (("rpm", r"tool\tii\t3:1.0-1.el9\ttool.x86_64\n"), ("dpkg-query", "")):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '{line}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = {"version": "3:1.0-1.el9", "held": False, "missing": []}
    assert receipts.observe({"packages": ["tool"]})["packages"] == {"tool": facts}


def test_version_that_an_earlier_receipt_has_without_its_epoch_is_no_drift(host: Host) -> None:
    host.install(tool={"version": "1.0-1.el9"})
    begin("role", {"packages": ["tool"]}, host.receipts)
    end("role", "digest", {"packages": ["tool"]}, host.receipts)
    host.install(tool={"version": "0:1.0-1.el9"})
    assert host.drifts() == []
    host.install(tool={"version": "0:1.0-2.el9"})
    assert host.drifts() == ["package tool changed since it was provisioned"]


def test_undo_keeps_directories_that_are_not_empty_and_packages_that_others_need(provisioned: Host) -> None:
    (provisioned.files / "etc/role.d/mine").touch()
    provisioned.install(mine={"version": "1", "needs": ["libtool"]}, other={"version": "1", "needs": ["mine"]})
    removed, kept = undo(read_all(provisioned.receipts), provisioned.receipts)
    assert kept == [
        "package libtool: mine, other need it",
        f"{provisioned.files}/etc/role.d: it is not empty",
        f"{provisioned.files}/etc: it is not empty",
    ]
    assert "package tool" in removed
    assert {*provisioned["packages"]} == {"base", "libtool", "mine", "other"}
    assert (provisioned.files / "etc/role.d/mine").exists()


def test_undo_keeps_the_receipts_when_something_could_not_be_removed(provisioned: Host, tmp_path: Path) -> None:
    (tmp_path / "bin/apt-get").write_text("#!/bin/sh\necho E: the disk is on fire\nexit 100\n")
    with pytest.raises(ModuleFailed, match="E: the disk is on fire"):
        undo(read_all(provisioned.receipts), provisioned.receipts)
    assert not (provisioned.files / "opt").exists(), "everything else is removed"
    shutil.copy(tmp_path / "bin/dpkg-query", tmp_path / "bin/apt-get")  # they differ in their names alone
    assert undo(read_all(provisioned.receipts), provisioned.receipts).removed == ["package libtool", "package tool"]
    assert not Path(provisioned.receipts).exists()


def test_undo_removes_an_empty_directory_whose_mode_others_may_change(host: Host) -> None:
    """Such as the mount point of a unit, which shows the mode of what is mounted."""
    point = host.files / "srv/all"
    manages: Manages = {"directories": [str(point)]}
    begin("role", manages, host.receipts)
    point.mkdir(parents=True)
    end("role", "digest", manages, host.receipts)
    point.chmod(0o2770)
    assert host.drifts() == []
    (point / "mine").touch()
    begin("role", manages, host.receipts)
    end("role", "digest", manages, host.receipts)
    kept = undo(read_all(host.receipts), host.receipts, act=False).kept
    assert kept == [f"{point}: it is not empty", f"{point.parent}: it is not empty"]
    (point / "mine").unlink()
    assert undo(read_all(host.receipts), host.receipts).removed == [str(point), str(point.parent)]


def test_undo_leaves_a_directory_that_existed_before(host: Host) -> None:
    manages: Manages = {"directories": [str(host.files)]}
    begin("role", manages, host.receipts)
    end("role", "digest", manages, host.receipts)
    assert undo(read_all(host.receipts), host.receipts) == ([], [])
    assert host.files.is_dir()


def test_undo_keeps_the_file_of_a_unit_that_does_not_stop_so_that_a_second_call_can_stop_it(host: Host) -> None:
    file = host.files / "srv-all.mount"
    manages: Manages = {"paths": [str(file)], "units": [file.name]}
    begin("role", manages, host.receipts)
    file.write_text("[Mount]\n")
    host.change({"units": {file.name: {**RUNNING, "busy": True}}})
    end("role", "digest", manages, host.receipts)
    with pytest.raises(ModuleFailed, match=r"unit srv-all\.mount: Job for srv-all\.mount failed"):
        undo(read_all(host.receipts), host.receipts)
    assert file.exists()
    host.change({"units": {file.name: RUNNING}})
    assert undo(read_all(host.receipts), host.receipts).removed == ["unit srv-all.mount", str(file)]


def test_undo_does_not_look_into_a_mounted_directory(host: Host) -> None:
    """Its file server may not answer. A check assumes that the unit of the mount is going to be stopped."""
    mounted: Receipt = {
        "format": 1, "role": "role", "since": 0.0, "digest": "d", "manages": {"directories": ["/proc"]},
        "before": {"paths": {"/proc": False}}, "created": {"paths": ["/proc"]}, "installed": [], "fingerprint": {},
    }  # fmt: skip
    assert undo([mounted], host.receipts) == ([], ["/proc: a file system is mounted there"])
    mounted["created"]["units"] = ["proc.mount"]
    host.change({"units": {"proc.mount": RUNNING}})
    assert undo([mounted], host.receipts, act=False) == (["unit proc.mount", "/proc"], [])


def test_undo_of_an_interrupted_run_removes_what_it_left(host: Host) -> None:
    begin("role", {"paths": [f"{host.files}/made"]}, host.receipts)
    (host.files / "made").touch()
    assert undo(read_all(host.receipts), host.receipts).removed == [f"{host.files}/made"]


def test_running_jobs_are_those_with_a_task_or_a_guard_that_lives_or_is_about_to_start(host: Host) -> None:
    active = ("tfctl-my-job-worker-0.service", "tfctl-my-job-worker-1.service", "tfctl-x.service")
    others = {
        "tfctl-done-ps-0.service": STOPPED,
        "tfctl-failed-ps-0.service": {**STOPPED, "active": "failed"},
        "tfctl-queued-ps-0.service": {**STOPPED, "job": "start"},
        "tfctlguard-guarded.service": RUNNING,
    }
    host.change({"units": {**dict.fromkeys(active, RUNNING), **others}})
    assert running_jobs() == ["guarded", "my-job", "queued"]
    assert live_units() == [*active, "tfctl-queued-ps-0.service", "tfctlguard-guarded.service"]


def test_reset_is_refused_while_only_the_guard_of_a_job_lives(provisioned: Host) -> None:
    """The guard waits until it starts the tasks again."""
    units = {"tfctl-retried-worker-0.service": STOPPED, "tfctlguard-retried.service": RUNNING}
    provisioned.change({"units": {**provisioned["units"], **units}})
    with pytest.raises(ModuleFailed, match=r"^job retried runs on this host, or is being started$") as refused:
        remove({"folder": provisioned.receipts, "keep": []}, act=True)
    assert (refused.value.fault["kind"], refused.value.fault["remedy"]) == ("busy", "tfctl stop retried")
    assert provisioned.receipt()["created"] and "tool" in provisioned["packages"]


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """The host, on which the real node part starts jobs."""
    with Tree() as made:
        (tmp_path / "run").mkdir()
        (tmp_path / "run/tfctl").symlink_to(made / "run/tfctl")
        yield made


def test_reset_is_refused_while_a_job_is_being_started_whose_tasks_do_not_run_yet(
    provisioned: Host, tree: Tree
) -> None:
    with tree.start() as session:
        reserve(session, make_plan())
        assert live_units() == ["tfctl-digits-worker-0.service"]
        with pytest.raises(ModuleFailed, match=r"^job digits runs on this host, or is being started$"):
            remove({"folder": provisioned.receipts, "keep": []}, act=True)
        session.process.kill()
        session.process.wait(10)
    assert running_jobs() == [], "the process of the start is dead"
    assert remove({"folder": provisioned.receipts, "keep": []}, act=True)["changed"]


def test_reset_is_refused_while_a_start_writes_its_files(
    provisioned: Host, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt, "TURN_S", 0.1)
    with (
        reservations.lock(System(str(tree.path))),
        pytest.raises(ModuleFailed, match="a job is being started on this host") as refused,
    ):
        remove({"folder": provisioned.receipts, "keep": []}, act=True)
    assert refused.value.fault["kind"] == "busy"
    assert provisioned.receipt()["created"]


def test_reset_that_only_checks_creates_no_lock(provisioned: Host, tmp_path: Path) -> None:
    remove({"folder": provisioned.receipts, "keep": []}, act=False)
    assert not (tmp_path / "run").exists()


def test_reset_does_not_count_its_own_lock_among_what_it_removes(provisioned: Host, tmp_path: Path) -> None:
    things: Manages = {
        "paths": [], "trees": [], "caches": [str(tmp_path / "run/tfctl")], "packages": [], "units": [], "users": [],
        "groups": [],
    }  # fmt: skip
    begin("job_host", things, provisioned.receipts)
    end("job_host", "digest", things, provisioned.receipts)
    given = {"folder": provisioned.receipts, "keep": []}
    planned = remove(given, act=False)["removed"]
    assert planned and remove(given, act=True)["removed"] == planned
    assert not (tmp_path / "run/tfctl").exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo Failed to connect to bus: No such file or directory >&2; exit 1", "Failed to connect to bus"),
        ("exec sleep 60", "systemctl ran longer than 0.2 s and was killed"),
    ],
)
def test_reset_is_refused_when_systemctl_does_not_say_which_jobs_run(
    provisioned: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(programs, "LIMIT_S", 0.2)
    (tmp_path / "bin/systemctl").unlink()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    with pytest.raises(ModuleFailed, match=f"^tfctl cannot find out which jobs run: {said}"):
        remove({"folder": provisioned.receipts, "keep": []}, act=True)
    assert provisioned.receipt()["created"]


def test_created_module_needs_nothing_but_the_receipts() -> None:
    """It runs on hosts, where only the standard library and module_utils exist."""
    source = Path(created.__file__).read_text()
    assert "import tfctl" not in source and "from tfctl" not in source
