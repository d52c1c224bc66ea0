"""The role job_host, as far as it works without a host: jobs survive upgrades of packages."""

from __future__ import annotations

import subprocess

import yaml

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
        names.unit("digits", "worker", 0), names.deadline_units("digits", "worker", 0)[1], names.guard_service("digits"),
        names.guard_session("digits").replace("@", "@7"), names.notify_service("digits"), names.exec_unit("digits", "k"),
        "dbus.service",
    ]  # fmt: skip
    others = ["ssh.service", "tfctl_nvidia.service", "mytfctl-x.service"]
    words = ["perl", "-e", OVERRIDDEN, str(ROLE / "files" / NEEDRESTART), *units, *others]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert (done.stderr, done.stdout.split()) == ("", others)


def test_receipt_of_the_role_lists_the_file_for_needrestart() -> None:
    assert f"/{NEEDRESTART}" in yaml.safe_load((ROLE / "vars/receipt.yml").read_text())["job_host_managed_paths"]
    tasks = yaml.safe_load((ROLE / "tasks/node_part.yml").read_text())
    assert f"/{NEEDRESTART}" in [task.get("ansible.builtin.copy", {}).get("dest") for task in tasks]
