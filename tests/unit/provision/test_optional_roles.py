"""What several optional roles do in the same way: their messages, ranges of ports, and hosts that skip a role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.provision.role_play import ROLES, check, facts, play, tasks_of, trial
from tfctl.errors import Exit
from tfctl.model.ports import port_range
from tfctl.provision.remedies import remedy_for


def failures(role: str) -> Iterator[str]:
    """Yield the message of each check of a role, with the names of variables in place of their values."""

    def tasks(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for task in found:
            yield task
            for part in ("block", "always"):
                yield from tasks(task.get(part, []))

    for path in sorted((ROLES / role / "tasks").glob("*.yml")):
        for task in tasks(yaml.safe_load(path.read_text())):
            if "ansible.builtin.assert" in task:
                yield task["ansible.builtin.assert"]["fail_msg"]
            if "ansible.builtin.wait_for" in task:
                yield task["ansible.builtin.wait_for"]["msg"]


@pytest.mark.parametrize(
    ("role", "codes"),
    [
        ("time_sync", [Exit.FAILED, Exit.PREFLIGHT]),
        ("proxy", [Exit.BAD_FILE, Exit.PREFLIGHT]),
        ("dataset", [Exit.BAD_FILE]),
        ("firewall", [Exit.FAILED, Exit.BAD_FILE, Exit.BAD_FILE, Exit.PREFLIGHT]),
        ("shared_storage", [Exit.FAILED, Exit.BAD_FILE, *[Exit.PREFLIGHT] * 4]),
    ],
)
def test_each_check_of_a_role_has_a_remedy_and_an_exit_code(role: str, codes: list[Exit]) -> None:
    remedies = {message: remedy_for(message) for message in failures(role)}
    assert [message for message, remedy in remedies.items() if not remedy] == []
    assert sorted(remedy.exit for remedy in remedies.values() if remedy) == codes


#: Ranges of ports that an inventory may contain, and others.
RANGES = ("2222", "2222-2299", " 2222 - 2299 ", "1-65535", "2222-2222",
          "2299-2222", "0-5", "1-65536", "2222-", "-2222", "2222-2230-2299", "many", "")  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize(("role", "file"), [("firewall", "present.yml"), ("dataset", "main.yml")])
def test_role_accepts_the_same_ranges_of_ports_as_job_files(role: str, file: str, tmp_path: Path) -> None:
    task = tasks_of(role, file)[0]
    tasks: list[dict[str, object]] = []
    for ports in RANGES:
        try:
            first, last = port_range(ports)
        except ValueError:
            tasks += trial(task, "is not a range such as 2222-2299", tfctl_ports=ports)
            continue
        tasks += trial(task, "", tfctl_ports=ports)
        tasks.append(check(f"[{role}_first_port, {role}_last_port] == [{first}, {last}]", tfctl_ports=ports))
    play(tmp_path, role, tasks)


@pytest.mark.extended
def test_roles_that_compare_hosts_ignore_those_that_skip_them(tmp_path: Path) -> None:
    """A variable of a group enables the roles dataset and shared_storage on some hosts of the play only."""
    found = {"dataset_found": {"missing": ["cifar10"], "archived": []}, "shared_storage_probe": {"file": "x"}}
    own = {**facts(**found), "when": "inventory_hostname != 'login'"}
    (installs,) = (task["when"] for task in tasks_of("dataset", "main.yml") if "dataset_entry" in str(task.get("when")))
    checks = ["dataset_with_archive == []", "dataset_without_set == ['gpu1', 'gpu2']", installs[-1]]
    names = "login,gpu1,gpu2"
    play(tmp_path, "dataset", [own, check(*checks, dataset_entry={"name": "cifar10"})], hosts=names)
    play(tmp_path, "shared_storage", [own, check("shared_storage_first == 'gpu1'")], hosts=names)
