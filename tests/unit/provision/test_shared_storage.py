"""The role shared_storage, as far as it works without a host: its checks, its mount unit and its receipt."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.provision.role_play import MANAGES, ROLES, check, facts, play, tasks_of, trial
from tfctl.provision.remedies import remedy_for


def test_shared_storage_finds_the_visible_mount_at_a_directory(tmp_path: Path) -> None:
    """The answers of findmnt are recorded."""
    stacked = {"filesystems": [
        {"target": "/srv/all", "source": "/dev/sda1", "fstype": "ext4"},
        {"target": "/srv/all", "source": "nas:/with space", "fstype": "nfs4"},
    ]}  # fmt: skip
    visible = "shared_storage_mount == {'target': '/srv/all', 'source': 'nas:/with space', 'fstype': 'nfs4'}"
    found = check(visible, shared_storage_findmnt={"rc": 0, "stdout": json.dumps(stacked)})
    nothing = check("shared_storage_mount.target == ''", shared_storage_findmnt={"rc": 1, "stdout": ""})
    play(tmp_path, "shared_storage", [found, nothing])


#: Kinds and sources, and the message of the role, or "".
SOURCES = (
    ("nfs", "nas:/all", ""),
    ("nfs", "[2001:db8::1]:/", ""),
    ("nfs", "nas", "tfctl_shared_source 'nas' is not HOST:/PATH"),
    ("nfs", "nas:/a\nWhat=b", "is not HOST:/PATH"),
    ("sshfs", "me@nas:/all", ""),
    ("sshfs", "nas:/all", "tfctl_shared_source 'nas:/all' is not USER@HOST:/PATH"),
)


@pytest.mark.extended
def test_shared_storage_checks_the_form_of_the_source(tmp_path: Path) -> None:
    task = tasks_of("shared_storage", "preflight.yml")[0]
    tasks: list[dict[str, object]] = []
    for kind, source, failure in SOURCES:
        tasks += trial(task, failure, shared_storage_kind=kind, shared_storage_source=source)
    play(tmp_path, "shared_storage", tasks)


#: A fake of systemctl(1) for one mount unit, beside the files "loaded" and "mounted": what systemd has read, and with
#: what it has mounted. While there is a file "busy", umount fails.
MOUNTS = """#!/bin/sh
cd "$MOUNTS"
test -e mounted && active=active || active=inactive
test -e unit && load=loaded || load=not-found
stop() { test ! -e mounted && return; test ! -e busy || { echo "umount: target is busy." >&2; exit 1; }; rm mounted; }
case $1 in
daemon-reload) cp unit loaded ;;
show) printf 'LoadState=%s\\nActiveState=%s\\n' $load $active ;;
is-enabled) echo enabled ;;
start) test -e mounted || cp loaded mounted ;;
stop) stop ;;
restart) stop; cp loaded mounted ;;
*) exit 2 ;;
esac
"""


@pytest.mark.extended
def test_shared_storage_mounts_with_new_options_also_if_the_directory_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(MOUNTS)
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("MOUNTS", str(tmp_path))
    kinds = ("ansible.builtin.template", "ansible.builtin.systemd_service")
    tasks = [task for task in tasks_of("shared_storage", "mount.yml") if {*kinds} & {*task}]
    for arguments in (task["ansible.builtin.template"] for task in tasks if "ansible.builtin.template" in task):
        arguments |= {
            "src": str(ROLES / "shared_storage/templates/etc/systemd/system/share.mount.j2"),
            "dest": f"{tmp_path}/unit",
        }
        for own in ("owner", "group"):  # tests need no root
            arguments.pop(own, None)

    def run(options: str, *words: str, fails: bool = False) -> None:
        target = "/mnt/all" if (tmp_path / "mounted").exists() else ""
        given = {"shared_storage_kind": "nfs", "shared_storage_source": "nas:/all", "shared_storage_dir": "/mnt/all"}
        given |= {"shared_storage_options": options}
        found = facts(**given, shared_storage_mount={"target": target})
        block: dict[str, object] = {"block": tasks, "rescue": [facts(busy=True)]}
        play(tmp_path, "shared_storage", [found, facts(busy=False), block, check(f"busy == {fails}")], *words)

    run("soft", "--check")
    assert not (tmp_path / "unit").exists()
    run("soft")
    assert ",soft\n" in (tmp_path / "mounted").read_text()
    (tmp_path / "busy").touch()
    run("soft")
    run("nfsvers=4.2", fails=True)
    assert ",soft\n" in (tmp_path / "mounted").read_text()
    (tmp_path / "busy").unlink()
    run("nfsvers=4.2", "--check")
    run("nfsvers=4.2")
    assert ",nfsvers=4.2\n" in (tmp_path / "mounted").read_text()


def test_mount_that_is_in_use_when_its_options_change_has_a_remedy_of_its_own() -> None:
    remedy = remedy_for("Unable to stop service mnt-all.mount: Job for mnt-all.mount failed.")
    assert remedy and "end what else uses the directory" in remedy.text


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("nfs", "nas:/all", "Type=nfs\nOptions=hard,noatime,_netdev,nofail,soft"),
        ("sshfs", "me@nas:/50%", "uid=881,gid=881,_netdev,nofail,soft"),
    ],
)
def test_shared_storage_creates_a_mount_unit_that_systemd_accepts(
    kind: str, source: str, options: str, tmp_path: Path
) -> None:
    unit = tmp_path / "mnt-all.mount"
    template = ROLES / "shared_storage/templates/etc/systemd/system/share.mount.j2"
    given = {"tfctl_shared_storage": kind, "tfctl_shared_source": source, "tfctl_shared_dir": "/mnt/all"}
    task: dict[str, object] = {"ansible.builtin.template": {"src": str(template), "dest": str(unit), "mode": "0644"}}
    play(tmp_path, "shared_storage", [{**task, "vars": {**given, "tfctl_shared_options": "soft", "tfctl_uid": 881}}])
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    said = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    assert [line for line in said.stderr.splitlines() if "mnt-all.mount" in line] == []
    assert f"What={source.replace('%', '%%')}\nWhere=/mnt/all\n" in unit.read_text()
    assert options in unit.read_text()


@pytest.mark.extended
def test_shared_storage_names_its_unit_like_systemd_and_lists_it_in_its_receipt(tmp_path: Path) -> None:
    """A reset removes what the receipt lists."""
    tasks: list[dict[str, object]] = []
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(MANAGES)}
    for place in ("/srv/tfctl", "/mnt/my-share//all/", "/srv/./.hidden.d", "/srv/ä:b_c~d@e\\f%g"):
        escape = ["systemd-escape", "--path", "--suffix=mount", place]
        unit = subprocess.run(escape, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        given = {"tfctl_shared_storage": "nfs", "tfctl_shared_dir": place, "expected": unit}
        listed = (
            "provision_manages.shared_storage.units == [expected]",
            "provision_manages.shared_storage.paths == ['/etc/systemd/system/' ~ expected]",
            "provision_manages.shared_storage.directories == [tfctl_shared_dir]",
        )
        tasks += [receipt, check(*listed, **given)]
    nothing = check("provision_manages.shared_storage.values() | flatten == []", tfctl_shared_storage="existing")
    play(tmp_path, "shared_storage", [*tasks, nothing])


def test_shared_storage_names_the_host_whose_directory_is_another_one(tmp_path: Path) -> None:
    """a and b share a directory. Nothing of the check remains in either."""
    for name in ("shared", "other"):
        (tmp_path / name).mkdir()
    own = facts(shared_storage_dir=f"{tmp_path}/{{{{ 'other' if inventory_hostname == 'c' else 'shared' }}}}")
    given = facts(shared_storage_uid=os.geteuid(), shared_storage_timeout_s=1, refused="")
    block: dict[str, object] = {
        "block": tasks_of("shared_storage", "verify.yml"),
        "rescue": [facts(refused="{{ ansible_failed_result.msg }}")],
    }
    message = f"{tmp_path}/other is not the directory that a has"
    compared = check("(message in refused) == (inventory_hostname == 'c')", message=message)
    play(tmp_path, "shared_storage", [own, given, block, compared], hosts="a,b,c")
    assert [*tmp_path.glob("*/.tfctl-*")] == []


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("/srv/tfctl/.tfctl-k3x_9a0b: Permission denied", "make the UID of user tfctl (tfctl_uid) the owner"),
        ("/srv/tfctl: no answer for 60 s", "check that the file server"),
    ],
)
def test_directory_that_the_jobs_user_cannot_use_has_a_remedy(said: str, remedy: str) -> None:
    found = remedy_for(said)
    assert found and remedy in found.text
