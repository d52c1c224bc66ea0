"""`tfctl preflight` on this machine, by a local connection: every fault at once, and nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfctl.cli import main
from tfctl.cli.preflight import exit_of
from tfctl.errors import Exit
from tfctl.remote.report import HostReport

LOCAL = "ansible_connection=local ansible_user=root ansible_python_interpreter={{ansible_playbook_python}}"
AWAY = "ansible_host=127.0.0.1 ansible_port=9 ansible_user=root"


def test_all_that_stands_against_it_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here {LOCAL} tfctl_uid=5000 tfctl_stack=tf9.9\naway {AWAY}\n")
    code = main.run(["preflight", str(inventory), "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    here, away = told["hosts"]
    assert (here["host"], here["state"], here["exit"]) == ("here", "unfit", 3)
    faults = {fault["message"]: fault for fault in here["faults"]}
    [uid] = [fault for message, fault in faults.items() if "tfctl_uid 5000" in message]
    assert (uid["remedy"], uid["exit"]) == ("take one from 1 to 999", 3)
    assert [message for message in faults if "tf9.9" in message]
    assert all(fault["remedy"] for fault in here["faults"])
    assert (away["state"], away["exit"], len(away["faults"])) == ("unreachable", 4, 1)
    assert code == told["exit"] == 3, "of several causes the first of 3, 8, 4, 5, 1"

    assert main.run(["preflight", str(inventory), "--limit", "away"]) == 4
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "away  unreachable"
    assert "Connection refused" in rest[0]
    assert main.run(["preflight", str(inventory), "--stack", "tf9.9"]) == 3


def test_a_host_that_cannot_be_looked_at_is_not_fit() -> None:
    """One without Python, for example: Ansible itself has nothing to say of it but that it failed."""
    assert exit_of(HostReport("a", failed=True, exit=Exit.FAILED)) == Exit.PREFLIGHT
    assert exit_of(HostReport("a", failed=True, exit=Exit.UNREACHABLE)) == Exit.UNREACHABLE
    assert exit_of(HostReport("a")) == Exit.OK
