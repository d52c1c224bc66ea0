"""The role time_sync, as far as it works without a host: its variables, its files and what a reset does with them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.provision.role_play import MANAGES, ROLES, SYSTEMCTL, check, facts, play, tasks_of


def services(*running: str) -> dict[str, object]:
    names = ("chrony.service", "chronyd.service", "ntpd.service", "systemd-timesyncd.service", "ssh.service")
    return {name: {"name": name, "state": "running" if name in running else "stopped"} for name in names}


@pytest.mark.extended
def test_time_sync_keeps_the_running_time_service_and_otherwise_takes_chrony(tmp_path: Path) -> None:
    cases = [
        ("Debian", ["ssh.service"], "chrony.service"),
        ("RedHat", ["ssh.service"], "chronyd.service"),
        ("RedHat", ["chronyd.service"], "chronyd.service"),
        ("Debian", ["systemd-timesyncd.service"], "systemd-timesyncd.service"),
        ("RedHat", ["ntpd.service", "ssh.service"], "ntpd.service"),
    ]
    tasks = [
        task
        for family, running, unit in cases
        for task in (facts(os_family=family, services=services(*running)), check(f"time_sync_unit == '{unit}'"))
    ]
    play(tmp_path, "time_sync", tasks)


@pytest.mark.extended
def test_time_servers_of_an_ini_inventory_may_be_text_with_commas(tmp_path: Path) -> None:
    """Otherwise a template would take each letter for a server."""
    play(tmp_path, "time_sync", [
        check("time_sync_server_list == ['ntp1.example', 'n2']", tfctl_ntp_servers="ntp1.example, n2"),
        check("time_sync_server_list == ['ntp1.example']", tfctl_ntp_servers=["ntp1.example"]),
        check("time_sync_server_list == []"),
    ])  # fmt: skip


@pytest.mark.extended
def test_time_sync_keeps_the_configuration_of_chrony_and_a_reset_restores_it(tmp_path: Path) -> None:
    conf, kept = tmp_path / "chrony.conf", tmp_path / "var/chrony.conf"
    conf.write_text("pool mine.example\n")
    block = next(task["block"] for task in tasks_of("time_sync", "chrony.yml") if "block" in task)
    files = [task for task in block if "ansible.builtin.systemd_service" not in task]
    for task in files:
        for arguments in (value for name, value in task.items() if name.startswith("ansible.builtin.")):
            for own in ("owner", "group"):  # tests need no root
                arguments.pop(own, None)
            if "dest" in arguments and not arguments.get("remote_src"):
                arguments["src"] = str(ROLES / "time_sync/templates" / arguments["src"])
    given = {"time_sync_chrony_conf": str(conf), "time_sync_kept_conf": str(kept), "time_sync_servers": ["ntp.example"]}
    for _ in range(2):
        play(tmp_path, "time_sync", [{**task, "vars": given} for task in files])
        assert "server ntp.example iburst" in conf.read_text()
        assert kept.read_text() == "pool mine.example\n", "a second run keeps the first configuration"
        conf.unlink()
    assert not list(tmp_path.glob("chrony.conf?*")), "no backup that a reset does not know"
    conf.write_text("server ntp.example iburst\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    places = {"/etc/chrony.conf": conf, "/var/lib/tfctl/chrony.conf": kept}
    restore, restart = map(shlex.split, restored(tmp_path, "dnf", places))
    variables = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CALLS": f"{tmp_path}/calls"}
    subprocess.run(restore, check=True, timeout=10, env=variables)
    assert (conf.read_text(), kept.exists()) == ("pool mine.example\n", False)
    subprocess.run(restart, check=True, timeout=10, env=variables)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["try-restart chronyd.service", "try-restart systemd-timesyncd.service"]
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\nexit 5\n")  # the unit does not exist
    subprocess.run(restart, check=True, timeout=10, env=variables)
    subprocess.run(restore, check=True, timeout=10, env=variables)
    kept.write_text("of a chrony that the reset has removed\n")
    conf.unlink()
    subprocess.run(restore, check=True, timeout=10, env=variables)
    assert (conf.exists(), kept.exists()) == (False, False)


def restored(folder: Path, packager: str, places: Mapping[str, Path]) -> list[str]:
    """Return the commands with which a reset restores the configuration of chrony, for files in other places, and makes
    systemd-timesyncd read its own again."""
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(MANAGES)}
    copy = {"content": "{{ provision_manages.time_sync.refresh | to_json }}", "dest": str(folder / "commands")}
    seen = {"preflight_found": {"seen": {"packager": packager}}}
    play(folder, "time_sync", [receipt, {"ansible.builtin.copy": copy, "vars": seen}])
    text = (folder / "commands").read_text()
    for path, place in places.items():
        assert path in text
        text = text.replace(path, str(place))
    return list(json.loads(text))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("packager", "unit", "conf"),
    [("apt-get", "chrony.service", "/etc/chrony/chrony.conf"), ("dnf", "chronyd.service", "/etc/chrony.conf")],
)
def test_time_sync_lists_the_files_and_units_that_it_changes_in_its_receipt(
    packager: str, unit: str, conf: str, tmp_path: Path
) -> None:
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(MANAGES)}
    seen = {"preflight_found": {"seen": {"packager": packager}}, "unit": unit, "conf": conf}
    play(tmp_path, "time_sync", [
        receipt,
        check("provision_manages.time_sync.units == [unit, 'systemd-timesyncd.service']", **seen),
        check("conf not in provision_manages.time_sync.paths", **seen),
        check("conf in provision_manages.time_sync.paths", **seen, tfctl_ntp_servers=["ntp.example"]),
    ])  # fmt: skip
