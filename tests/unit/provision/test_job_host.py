"""The role job_host without a host: jobs survive upgrades of packages, and operators may run tfctl-node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.provision.role_play import MANAGES, check, facts, play, tasks_of, trial
from tfctl.node import names
from tfctl.provision import ansible

ROLE = ansible.data_dir() / "roles/job_host"
NEEDRESTART = "etc/needrestart/conf.d/tfctl.conf"
#: Evaluates a file as needrestart(1) does, and prints those of the units that it would restart.
OVERRIDDEN = """
use strict; use warnings; our %nrconf = (override_rc => {qr(^dbus) => 0});
my $file = shift;
eval do { local (@ARGV, $/) = $file; <> }; die $@ if $@;
for my $unit (@ARGV) {
    my @found = grep { $unit =~ /$_/ } sort keys %{$nrconf{override_rc}};
    print "$unit\\n" unless @found and not $nrconf{override_rc}{$found[0]};
}
"""


def test_needrestart_leaves_the_units_of_jobs_alone() -> None:
    units = [
        names.unit("digits", "worker", 0), names.deadline_units("digits", "worker", 0)[1],
        names.guard_service("digits"), names.guard_session("digits").replace("@", "@7"),
        names.notify_service("digits"), names.exec_unit("digits", "k"), "dbus.service",
    ]  # fmt: skip
    others = ["ssh.service", "tfctl_nvidia.service", "mytfctl-x.service"]
    words = ["perl", "-e", OVERRIDDEN, str(ROLE / "files" / NEEDRESTART), *units, *others]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert (done.stderr, done.stdout.split()) == ("", others)


def test_receipt_of_the_role_lists_the_file_for_needrestart() -> None:
    assert f"/{NEEDRESTART}" in yaml.safe_load(MANAGES.read_text())["provision_job_host_paths"]
    tasks = yaml.safe_load((ROLE / "tasks/node_part.yml").read_text())
    assert f"/{NEEDRESTART}" in [task.get("ansible.builtin.copy", {}).get("dest") for task in tasks]


@pytest.mark.extended
def test_operators_may_run_tfctl_node_on_a_host_that_cannot_resolve_its_name(tmp_path: Path) -> None:
    (task,) = (each for each in tasks_of("job_host", "sudoers.yml") if "ansible.builtin.assert" in each)
    own = task.pop("vars", {})
    warning = "sudo: unable to resolve host node7: Name or service not known"
    password = "sudo: a password is required"
    tasks: list[dict[str, object]] = []
    for lines, failure in (
        ([], ""),
        ([warning], ""),
        ([password], "ops cannot run tfctl-node: sudo: a password is required"),
        ([warning, password], "ops cannot run tfctl-node: sudo: a password is required"),
    ):
        tried = {"item": "ops", "rc": 0, "stderr": "\n".join(lines), "stderr_lines": lines}
        tasks += trial(task, failure, **own, job_host_tried={"results": [tried]})
    play(tmp_path, "job_host", tasks)


def test_versions_that_the_guards_of_running_jobs_use_are_kept_and_nothing_is_deleted_if_they_are_unknown(
    tmp_path: Path,
) -> None:
    units, lib = tmp_path / "units", "/usr/local/lib/tfctl"
    units.mkdir()
    (units / "tfctlguard-digits.service").write_text(f"[Service]\nType=exec\nExecStart={lib}/aa/guard run digits\n")
    (units / "tfctl-digits-worker-0.service").write_text(f"[Service]\nExecStart={lib}/bb/tfctl-node\n")
    (task,) = (each for each in tasks_of("job_host", "node_part.yml") if "that running jobs use" in each["name"])
    task["ansible.builtin.command"]["argv"][1], task["delay"] = str(units), 0
    ages = {"aa": 0, "bb": 1, "cc": 2, "dd": 3}
    files = [{"path": f"{lib}/{name}", "isdir": True, "ctime": age} for name, age in ages.items()]
    node_part = {"digest": "ee", "files": [], "archive": ""}
    known = facts(job_host_found={"files": files}, job_host_node_part=node_part)
    play(tmp_path, "job_host", [known, task, check(f"job_host_old_versions | sort == ['{lib}/bb', '{lib}/cc']")])
    (units / "tfctlguard-unreadable.service").mkdir()
    play(tmp_path, "job_host", [{**task, "ignore_errors": True}, check("job_host_guards is failed")])
