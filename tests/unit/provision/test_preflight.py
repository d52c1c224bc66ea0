"""`tfctl preflight` on this machine, by a local connection, reports all faults at once and changes nothing."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tfctl.cli import main
from tfctl.cli.preflight import exit_of
from tfctl.errors import Exit
from tfctl.provision.faults import Fault
from tfctl.provision.results import HostResult

LOCAL = "ansible_connection=local ansible_become=false ansible_python_interpreter={{ansible_playbook_python}}"
AWAY = "ansible_host=127.0.0.1 ansible_port=9 ansible_user=root"


#: What ssh says. Ansible may notice that it has ended before it reads the reason.
REFUSED = "Connection refused|ssh ended before the connection was established"
#: The variables of each host.
HOSTS = {
    "here": f"{LOCAL} tfctl_uid=5000 tfctl_stack=tf9.9",
    "away": AWAY,
    "one_wrong_type": f"{LOCAL} tfctl_stack=none tfctl_uid=many",
    "two_wrong_types": f"{LOCAL} tfctl_stack=none tfctl_uid=many tfctl_horovod=no,yes",
    "left_out": LOCAL,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what is printed about each host but the last."""
    inventory = tmp_path_factory.mktemp("inventory") / "hosts.ini"
    inventory.write_text("".join(f"{name} {variables}\n" for name, variables in HOSTS.items()))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main.run(["preflight", str(inventory), "--limit", "all:!left_out", "-o", "json"])
    found = json.loads(out.getvalue())
    assert found["exit"] == code
    return code, {host["host"]: host for host in found["hosts"]}


def test_preflight_reports_all_faults_of_all_hosts_at_once(report: tuple[int, dict[str, Any]]) -> None:
    code, hosts = report
    assert code == 3, "the first of 3, 8, 4, 5, 1 that occurs"
    assert [*hosts] == ["here", "away", "one_wrong_type", "two_wrong_types"]
    here, away = hosts["here"], hosts["away"]
    assert (here["state"], here["exit"]) == ("unfit", 3)
    faults = {fault["message"]: fault for fault in here["faults"]}
    [uid] = [fault for message, fault in faults.items() if "tfctl_uid 5000" in message]
    assert (uid["remedy"], uid["exit"]) == ("choose one from 1 to 999", 3)
    assert [message for message in faults if "tf9.9" in message]
    assert all(fault["remedy"] for fault in here["faults"])
    assert (away["state"], away["exit"], len(away["faults"])) == ("unreachable", 4, 1)
    assert re.search(REFUSED, away["faults"][0]["message"])


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("one_wrong_type", "argument 'tfctl_uid' is of type str and we were unable to convert to int"),
        ("two_wrong_types", "argument 'tfctl_horovod' is of type str and we were unable to convert"),
    ],
)
def test_preflight_names_settings_of_the_wrong_type(report: tuple[int, dict[str, Any]], host: str, said: str) -> None:
    faults = report[1][host]["faults"]
    assert [(said in fault["message"], fault["exit"]) for fault in faults] == [(True, 3)], faults
    assert faults[0]["remedy"] == "correct it in the inventory"


def test_preflight_refuses_an_unknown_stack_before_ansible_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"away {AWAY}\n")
    assert main.run(["preflight", str(inventory), "--stack", "tf9.9"]) == 3
    printed = capsys.readouterr()
    assert printed.out == "" and "tf9.9" in printed.err


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


def test_misspelt_variable_of_the_inventory_is_refused_before_ansible_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"away {AWAY} tfctl_stack=none tfctl_firewal=true tfctl_site=berlin\n")
    for command in ("preflight", "provision"):
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
    first, reason, *_ = capsys.readouterr().out.splitlines()
    assert first == "away  unreachable" and re.search(REFUSED, reason)


def test_preflight_counts_a_host_without_facts_as_unfit() -> None:
    """For example one without Python: Ansible only reports that the task failed."""
    assert exit_of(HostResult("a", failed=True, faults=(Fault("it broke"),))) == Exit.PREFLIGHT
    assert exit_of(HostResult("a", failed=True, faults=(Fault("gone", exit=Exit.UNREACHABLE),))) == Exit.UNREACHABLE
    assert exit_of(HostResult("a")) == Exit.OK
