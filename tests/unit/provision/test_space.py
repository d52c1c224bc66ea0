"""A file system that is full or nearly full is a fault, whichever of tfctl's directories is on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.facts import disk, gather

from tests.unit.provision.fresh_host import FREE, facts, wanted
from tfctl.provision.decide import space
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.space import OTHER_MB, SPARE_MB, STACKS, WHEELS, directories

HOME = "~/.ansible/tmp"
ALL = directories(("/srv/tfctl",), HOME)


def found(disks: Mapping[str, Mapping[str, Any]], stack_mb: int = 0) -> list[str]:
    """Return the messages about disks for a stack of this size, or without a stack."""
    known = facts(disks=disks)
    stack = decide(facts(), wanted())[0].stack
    assert stack
    chosen = replace(stack, disk_mb=stack_mb) if stack_mb else None
    faults = [*space.faults(known, wanted(), chosen)]
    assert all(fault["remedy"] and fault["kind"] == "unfit" for fault in faults)
    return [fault["message"] for fault in faults]


def apart(special: Mapping[str, Mapping[str, int | None]]) -> dict[str, dict[str, Any]]:
    """Return large file systems, one for each directory, apart from ``special``."""
    disks = {path: {**FREE, "at": path, "device": number} for number, path in enumerate(ALL)}
    disks[HOME]["at"] = "/home/ops"
    return {path: {**each, **special.get(path, {})} for path, each in disks.items()}


@pytest.mark.parametrize("path", [path for path in ALL if path != STACKS])
def test_each_full_directory_is_a_fault(path: str) -> None:
    name = "/home/ops" if path == HOME else path
    (message,) = found(apart({path: {"free_mb": 0}}))
    assert message == f"0 MB are free for {name}, but {SPARE_MB.get(path, OTHER_MB)} MB are needed"
    (message,) = found(apart({path: {"free_inodes": 3}}))
    assert message == f"3 inodes are free for {name}, but 100 are needed"


def test_the_remedy_for_a_full_directory_of_the_jobs_names_prune() -> None:
    known = facts(disks=apart({space.JOBS: {"free_mb": 0}}))
    [fault] = space.faults(known, wanted(), None)
    assert "tfctl prune --older-than 14d" in fault["remedy"]


def test_stack_needs_space_for_itself_and_for_its_wheels() -> None:
    little = {"free_mb": 100}
    assert found(apart({STACKS: little}), 2600) == ["100 MB are free for /opt/tfctl, but 2600 MB are needed"]
    assert found(apart({WHEELS: little}), 2600) == [f"100 MB are free for {WHEELS}, but 1050 MB are needed"]
    assert found(apart(dict.fromkeys((STACKS, WHEELS, "/var/tmp", HOME), little))) == []
    assert found(apart({STACKS: {"free_inodes": 20_000}}), 2600) == [
        "20000 inodes are free for /opt/tfctl, but 40000 are needed"
    ]


def test_space_is_added_up_for_directories_on_one_file_system() -> None:
    """The space for a stack includes its wheels there."""
    total = 2600 + sum(SPARE_MB.values()) + 4 * OTHER_MB
    names = f"/opt/tfctl, {WHEELS}, /var/lib/tfctl/jobs and 8 other directories"
    assert found({path: {**FREE, "free_mb": total} for path in ALL}, 2600) == []
    (message,) = found({path: {**FREE, "free_mb": total - 1} for path in ALL}, 2600)
    assert message == f"{total - 1} MB are free for {names}, but {total} MB are needed"


def test_file_system_without_a_fixed_number_of_inodes_has_enough() -> None:
    assert found(apart({STACKS: {"free_inodes": None}}), 2600) == []


def test_disk_is_that_of_the_nearest_existing_directory(tmp_path: Path) -> None:
    here = disk(str(tmp_path / "a/b"))
    assert (here["at"], here["device"]) == (str(tmp_path), tmp_path.stat().st_dev)
    assert here["free_mb"] == os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize // 2**20


def test_tilde_is_the_home_directory_of_the_login_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module runs as root, which has another one."""
    monkeypatch.setenv("SUDO_USER", "daemon")
    seen = gather(880, ["~/.ansible/tmp"])
    home = Path("~daemon").expanduser()
    (disks,) = seen["disks"].values()  # type: ignore[attr-defined]
    assert disks["at"] == str(home)
