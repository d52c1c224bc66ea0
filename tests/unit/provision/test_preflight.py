"""`tfctl preflight` on this machine, by a local connection, reports all faults at once and changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tfctl.cli import main
from tfctl.cli.preflight import exit_of
from tfctl.errors import Exit
from tfctl.provision.faults import Fault
from tfctl.provision.results import HostResult

LOCAL = "ansible_connection=local ansible_user=root ansible_python_interpreter={{ansible_playbook_python}}"
AWAY = "ansible_host=127.0.0.1 ansible_port=9 ansible_user=root"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tfctl_uid=many", "argument 'tfctl_uid' is of type str and we were unable to convert to int"),
        (
            "tfctl_uid=many tfctl_horovod=no,yes",
            "argument 'tfctl_horovod' is of type str and we were unable to convert",
        ),
    ],
)
def test_preflight_names_settings_of_the_wrong_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here {LOCAL} tfctl_stack=none {setting}\n")
    assert main.run(["preflight", str(inventory), "-o", "json"]) == 3
    [host] = json.loads(capsys.readouterr().out)["hosts"]
    assert [(said in fault["message"], fault["exit"]) for fault in host["faults"]] == [(True, 3)], host["faults"]
    assert host["faults"][0]["remedy"] == "correct it in the inventory"


def test_preflight_reports_all_faults_of_all_hosts_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here {LOCAL} tfctl_uid=5000 tfctl_stack=tf9.9\naway {AWAY}\n")
    code = main.run(["preflight", str(inventory), "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    here, away = report["hosts"]
    assert (here["host"], here["state"], here["exit"]) == ("here", "unfit", 3)
    faults = {fault["message"]: fault for fault in here["faults"]}
    [uid] = [fault for message, fault in faults.items() if "tfctl_uid 5000" in message]
    assert (uid["remedy"], uid["exit"]) == ("choose one from 1 to 999", 3)
    assert [message for message in faults if "tf9.9" in message]
    assert all(fault["remedy"] for fault in here["faults"])
    assert (away["state"], away["exit"], len(away["faults"])) == ("unreachable", 4, 1)
    assert code == report["exit"] == 3, "the first of 3, 8, 4, 5, 1 that occurs"

    assert main.run(["preflight", str(inventory), "--limit", "away"]) == 4
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "away  unreachable"
    # Ansible may notice that ssh has ended before it reads the reason.
    assert re.search("Connection refused|ssh ended before the connection was established", rest[0])
    assert main.run(["preflight", str(inventory), "--stack", "tf9.9"]) == 3


@pytest.mark.extended
def test_preflight_names_a_variable_of_the_inventory_that_has_the_wrong_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here {LOCAL} tfctl_uid=many tfctl_stack=none\n")
    assert main.run(["preflight", str(inventory)]) == 3
    printed = capsys.readouterr().out
    assert "'tfctl_uid' is of type str" in printed and "preflight_uid" not in printed
    assert "correct it in the inventory" in printed


@pytest.mark.parametrize("command", ["preflight", "provision"])
def test_misspelt_variable_of_the_inventory_is_refused_before_ansible_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"away {AWAY} tfctl_stack=none tfctl_firewal=true tfctl_site=berlin\n")
    assert main.run([command, str(inventory)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{inventory}: tfctl_firewal (of away) is not a tfctl variable" in printed.err
    assert "did you mean tfctl_firewall?" in printed.err


@pytest.mark.extended
def test_template_in_an_inventory_is_left_to_ansible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that do not run Ansible refuse it."""
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("away ansible_host='{{ address }}' address=127.0.0.1 ansible_port=9 ansible_user=root\n")
    assert main.run(["preflight", str(inventory)]) == 4
    assert capsys.readouterr().out.startswith("away  unreachable\n")


def test_preflight_counts_a_host_without_facts_as_unfit() -> None:
    """For example one without Python: Ansible only reports that the task failed."""
    assert exit_of(HostResult("a", failed=True, faults=(Fault("it broke"),))) == Exit.PREFLIGHT
    assert exit_of(HostResult("a", failed=True, faults=(Fault("gone", exit=Exit.UNREACHABLE),))) == Exit.UNREACHABLE
    assert exit_of(HostResult("a")) == Exit.OK
