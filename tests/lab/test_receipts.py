"""Receipts on real nodes: what was changed by hand is found and restored, and a reset leaves a node as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.test_provision import edited

#: Prints the packages, accounts, units and files of a node. Left out: what changes by itself, caches of the system,
#: backups that useradd and its like leave (passwd-), and ~/.ansible, which every command of Ansible makes.
SNAPSHOT = """
dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package} ${Version}\\n'
getent passwd; getent group
systemctl list-unit-files --no-legend --no-pager --plain | grep -v ^session-
systemctl list-units --no-legend --no-pager --plain --all --type=service,socket,timer,mount | grep -v -e ' not-found ' \
    -e user@ -e user-runtime -e session | awk '{print $1, $3}'
for place in /etc /usr/local /opt /var/lib/tfctl /srv /home; do
    test ! -e $place || find $place -xdev -not -path '/etc/*-' -not -path /etc/.pwd.lock \
        -not -path '/home/*/.ansible*' -printf '%p %y %m %u %g %l\\n'
done
cd /etc; find . -xdev -type f -not -name '*-' -not -name ld.so.cache -exec sha256sum {} +
"""

#: Damages to what job_host manages, one of each kind, and what tfctl says about each.
DAMAGES = {
    "rm /etc/sudoers.d/tfctl": "/etc/sudoers.d/tfctl was removed",
    "echo '# mine' >>/etc/systemd/journald.conf.d/tfctl.conf": "/etc/systemd/journald.conf.d/tfctl.conf changed",
    "rm /etc/systemd/system/tfctl-.service.d/10-tfctl.conf": "10-tfctl.conf was removed",
    "rm /etc/needrestart/conf.d/tfctl.conf": "/etc/needrestart/conf.d/tfctl.conf was removed",
    "rm /etc/tfctl/node.json": "/etc/tfctl/node.json was removed",
    "echo '# mine' >>/usr/local/sbin/tfctl-node": "/usr/local/sbin/tfctl-node changed",
    "chmod 777 /var/lib/tfctl/jobs": "/var/lib/tfctl/jobs changed",
    "rmdir /var/lib/tfctl/code": "/var/lib/tfctl/code was removed",
    "chown root /var/lib/tfctl/home": "/var/lib/tfctl/home changed",
    "rm -r /srv/tfctl": "/srv/tfctl was removed",
    "echo '# mine' >>/usr/local/lib/tfctl/current/tfctl_node/states.py": "/tfctl_node/states.py changed",
    "ln -sfn nowhere /usr/local/lib/tfctl/current": "/usr/local/lib/tfctl/current changed",
    "usermod --shell /bin/bash tfctl": "user tfctl changed",
    # userdel deletes the group of the same name, if login.defs says so.
    "userdel tfctl-guard": "user tfctl-guard was removed",
    "! getent group tfctl-guard >/dev/null || groupdel tfctl-guard": "group tfctl-guard was removed",
    "gpasswd --delete ops tfctl-admin": "group tfctl-admin changed",
}


@pytest.fixture(scope="module")
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two bare nodes."""
    found = Lab(f"{run_name}-receipts", tmp_path_factory.mktemp("pair"))
    found.up("--nodes", 2)
    try:
        # A lab mounts one directory there on all nodes.
        found.root_script("node1", "umount /srv/tfctl; rmdir /srv/tfctl", 20)
        yield found
    finally:
        found.down()


def report_of(
    lab: Lab, command: str, *words: object, inventory: Path | None = None, timeout: float = 400
) -> dict[str, Any]:
    """Run a command with -o json; return what it prints."""
    done = lab.tfctl(command, inventory or lab.inventory, "-o", "json", *words, timeout=timeout)
    return dict(json.loads(done.stdout))


def provision(lab: Lab, *words: object) -> tuple[int, list[str]]:
    """Provision both nodes without TensorFlow; return the number of changes, and what had changed on node1."""
    report = report_of(lab, "provision", "--stack", "none", *words)
    return report["changed"], report["hosts"][0]["drifts"]


def snapshot(lab: Lab, node: str) -> set[str]:
    return {*lab.root_script(node, SNAPSHOT, 60).splitlines()}


def test_reset_returns_a_node_to_its_state_before_provision(pair: Lab) -> None:
    before = snapshot(pair, "node1")
    assert provision(pair)[0] > 0
    expected_state.job_host(pair.testinfra("node1"))
    assert "/etc/sudoers.d/tfctl f 440 root root " in snapshot(pair, "node1") - before
    planned = report_of(pair, "reset", "--check", "--limit", "node1")["hosts"][0]
    assert "user tfctl" in planned["removed"] and "/etc/sudoers.d/tfctl" in planned["removed"]
    expected_state.job_host(pair.testinfra("node1"))
    report = report_of(pair, "reset", "--yes", "--limit", "node1")
    [host] = report["hosts"]
    assert (host["removed"], host["kept"]) == (planned["removed"], planned["kept"])
    assert snapshot(pair, "node1") ^ before == set()
    expected_state.is_violated(expected_state.job_host, pair.testinfra("node1"))
    expected_state.job_host(pair.testinfra("node2"))
    assert report_of(pair, "reset", "--yes", "--limit", "node1")["hosts"][0]["removed"] == []


@pytest.mark.timeout(400)
def test_second_run_is_one_task_and_changes_nothing(pair: Lab) -> None:
    provision(pair)
    done = pair.tfctl("provision", pair.inventory, "--stack", "none")
    remark, task = sorted(re.findall(r"^ *[\d.]+ s  (.*)$", done.stderr, re.MULTILINE))
    assert remark.startswith("node1: the hosts share no directory")  # the fixture has unmounted it
    assert task == "preflight: Inspect the host"
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [["ok", "changed", "0"]] * 2
    for words in ((), ("--full",), ("--check",), ("--tags", "job_host")):
        assert provision(pair, *words) == (0, []), words
        done = pair.tfctl("provision", pair.inventory, "--stack", "none", *words)
        assert ("job_host: " in done.stderr) == bool(words), done.stderr


@pytest.mark.timeout(600)
def test_changes_by_hand_are_reported_and_restored(pair: Lab) -> None:
    provision(pair)
    node1 = pair.testinfra("node1")
    for damage in DAMAGES:
        pair.root_script("node1", damage, 20)
    drifts = report_of(pair, "preflight", "--stack", "none", "--limit", "node1")["hosts"][0]["drifts"]
    assert [said for said in DAMAGES.values() if not any(said in drift for drift in drifts)] == []
    assert len(drifts) == len(DAMAGES)
    expected_state.is_violated(expected_state.job_host, node1)
    for words in (("--check",), ()):
        changed, found = provision(pair, *words)
        assert changed > 0 and found == drifts
    expected_state.job_host(node1)
    assert provision(pair) == (0, [])


def test_nodes_reports_changes_by_hand(pair: Lab) -> None:
    provision(pair)
    pair.root_script("node1", "echo '# mine' >>/etc/tfctl/node.json", 20)
    done = pair.tfctl("nodes", "-i", pair.inventory)
    assert "node1: /etc/tfctl/node.json changed since it was provisioned\n  → tfctl provision" in done.stderr
    nodes = json.loads(pair.tfctl("nodes", "-i", pair.inventory, "-o", "json").stdout)["nodes"]
    assert [node["drifts"] for node in nodes] == [["/etc/tfctl/node.json changed since it was provisioned"], []]
    assert provision(pair)[0] > 0


def test_reset_refuses_while_a_job_runs_and_keeps_what_jobs_have_written(pair: Lab) -> None:
    provision(pair)
    job = pair.folder / "stays.yaml"
    job.write_text(
        "name: stays\nstrategy: custom\nstack: none\ncommand: [sleep, '600']\n"
        "roles: {worker: {replicas: 1, hosts: node1}}\n"
    )
    pair.tfctl("start", job, "-i", pair.inventory)
    pair.root_script("node1", "echo result >/srv/tfctl/result", 20)
    try:
        done = pair.tfctl("reset", pair.inventory, "--yes", "-o", "json", check=False)
    finally:
        pair.tfctl("stop", "stays", "-i", pair.inventory)
    first, second = json.loads(done.stdout)["hosts"]
    reason = "job stays runs on this host, or is being started"
    assert (done.returncode, first["failed"], first["reason"]) == (5, True, reason)
    assert first["remedy"] == "tfctl stop stays"
    assert (second["failed"], "user tfctl" in second["removed"]) == (False, True)
    expected_state.job_host(pair.testinfra("node1"))
    [host] = report_of(pair, "reset", "--yes", "--limit", "node1")["hosts"]
    assert "/var/lib/tfctl/jobs: it is not empty" in host["kept"]
    assert pair.shell("node1", "sudo cat /srv/tfctl/result") == "result"
    assert pair.shell("node1", "sudo ls /var/lib/tfctl/jobs/stays/1/job.json")
    expected_state.is_violated(expected_state.job_host, pair.testinfra("node1"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_reset_removes_the_packages_and_units_of_roles(pair: Lab) -> None:
    """A compiler with the packages that it needs, and the service of the firewall."""
    pair.root_script("node2", "apt-get -qq -y purge nftables >/dev/null", 60)  # part of every image of a lab
    before, node2 = snapshot(pair, "node2"), pair.testinfra("node2")
    inventory = edited(pair, pair.folder, node2="tfctl_toolchain=true tfctl_firewall=true")
    words = ("--stack", "tf2.15", "--limit", "node2")
    report_of(pair, "provision", *words, inventory=inventory, timeout=600)
    expected_state.toolchain(node2, 12)
    expected_state.firewall(node2, "2222-2299")
    added = "\n".join(snapshot(pair, "node2") - before)
    for line in (r"^ii +g\+\+-12\S* ", r"^ii +nftables\S* ", r"^tfctl_firewall\.service +enabled"):
        assert re.search(line, added, re.MULTILINE), line
    report = report_of(pair, "provision", *words, inventory=inventory)
    assert (report["changed"], report["hosts"][0]["drifts"]) == (0, [])
    [host] = report_of(pair, "reset", "--yes", "--limit", "node2", inventory=inventory)["hosts"]
    assert {"package g++-12", "package nftables", "unit tfctl_firewall.service"} <= {
        line.partition(":")[0] for line in host["removed"]
    }
    assert snapshot(pair, "node2") ^ before == set()
    expected_state.is_violated(expected_state.toolchain, node2, 12)
    expected_state.is_violated(expected_state.firewall, node2, "2222-2299")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_damage_to_a_stack_is_found_and_repaired_and_a_reset_removes_it(pair: Lab) -> None:
    before = snapshot(pair, "node2")
    words = ("--stack", "tf2.15", "--limit", "node2")
    report_of(pair, "provision", *words)
    report = report_of(pair, "provision", *words)
    assert (report["changed"], report["hosts"][0]["drifts"]) == (0, [])
    keras = "/opt/tfctl/stacks/tf2.15/lib/python3.11/site-packages/keras"
    for damage, said in {
        f"rm {keras}/src/callbacks.py": "/site-packages/keras/src",
        f"echo '# mine' >>{keras}/__init__.py": "/site-packages/keras/__init__.py changed",
        "ln -sfn nowhere /opt/tfctl/stacks/tf2.15": "/opt/tfctl/stacks/tf2.15 changed",
    }.items():
        pair.root_script("node2", damage, 20)
        report = report_of(pair, "provision", *words)
        [drift] = report["hosts"][0]["drifts"]
        assert said in drift
        assert report["changed"] > 0
        expected_state.tensorflow(pair.testinfra("node2"), "tf2.15", "3.11")
    assert report_of(pair, "provision", *words)["changed"] == 0
    report_of(pair, "reset", "--yes", "--limit", "node2")
    assert snapshot(pair, "node2") ^ before == set()
