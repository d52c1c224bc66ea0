"""tfctl provision on real nodes: bare, provisioned, unfit, unreachable, or damaged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import expected_state
from tests.lab.labs import TFCTL, Lab
from tests.lab.plays import play
from tests.lab.terminal import type_at_prompt
from tfctl.provision import ansible

SHOW = json.dumps({"protocol": 2, "verb": "show", "job": None, "attempt": None})


def provision(
    lab: Lab, *words: object, inventory: Path | None = None, timeout: float = 400
) -> tuple[int, dict[str, Any], str]:
    """Run `tfctl provision`; return its exit code, the object that -o json prints, and stderr."""
    done = lab.tfctl("provision", inventory or lab.inventory, "-o", "json", *words, check=False, timeout=timeout)
    return done.returncode, json.loads(done.stdout), done.stderr


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {host["host"]: host for host in report["hosts"]}


def edited(lab: Lab, folder: Path, **settings: str) -> Path:
    """Write a copy of the inventory with more variables for some hosts; return its path."""
    lines = lab.inventory.read_text().splitlines()
    path = folder / "edited.ini"
    path.write_text("".join(f"{line} {settings.get(line.partition(' ')[0], '')}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two bare nodes; on node2 another user has the UID 880."""
    found = Lab(f"{run_name}-prov", tmp_path_factory.mktemp("pair"))
    found.up("--nodes", 2)
    found.shell("node2", "sudo useradd --system --uid 880 squatter")
    try:
        yield found
    finally:
        found.down()


@pytest.mark.timeout(300)
def test_provision_prepares_bare_nodes_and_names_an_unfit_one(pair: Lab) -> None:
    code, report, _ = provision(pair, "--stack", "none", "--check", "--limit", "node1")
    assert (code, report["changed"] > 0) == (0, True)
    assert pair.shell("node1", "id tfctl || true") == ""
    code, report, stderr = provision(pair, "--stack", "none")
    hosts = by_name(report)
    assert code == report["exit"] == 8
    assert (hosts["node1"]["failed"], hosts["node1"]["changed"] > 0) == (False, True)
    assert (
        hosts["node2"]["failed"]
        and hosts["node2"]["task"] == "preflight: Report what prevents provisioning, or decide which roles run"
    )
    taken = [f"the ID 880 belongs to the {kind} squatter here" for kind in ("user", "group")]
    assert hosts["node2"]["reason"] == "\n".join(taken)
    assert "tfctl_uid" in hosts["node2"]["remedy"]
    assert "node2  FAILED" in stderr and "node1  changed" in stderr
    assert pair.shell("node1", f"echo '{SHOW}' | sudo -n /usr/local/sbin/tfctl-node").startswith('{"show":')
    expected_state.job_host(pair.testinfra("node1"))
    refused = pair.testinfra("node2")
    assert not refused.user("tfctl").exists and not refused.file("/usr/local/sbin/tfctl-node").exists
    assert '(root) NOPASSWD: /usr/local/sbin/tfctl-node ""' in pair.shell("node1", "sudo -l")
    assert "tfctl.conf" in pair.shell("node1", "systemd-analyze cat-config systemd/journald.conf")
    for words in ((), ("--check",)):
        code, report, _ = provision(pair, "--stack", "none", "--limit", "node1", *words)
        assert (code, report["changed"]) == (0, 0)


def test_provision_makes_the_journal_persistent_and_limits_its_size(pair: Lab) -> None:
    assert pair.shell("node1", "ls /var/log/journal/*/system.journal")
    output = pair.shell("node1", "sudo journalctl -u systemd-journald -n 3 --no-pager")
    assert "max 4.0G" in output


@pytest.mark.slow
def test_provision_installs_a_python_from_the_distribution(pair: Lab) -> None:
    """The package stands for the Pythons that Debian 12 lacks; no stack uses it. Only this role runs."""
    given = {"python_env_packages": ["python3.11-nopie"]}
    node1 = pair.testinfra("node1")
    for harm in ("true", "apt-get -qq -y remove python3.11-nopie"):
        node1.check_output(harm)
        expected_state.is_violated(expected_state.python_env_packages, node1, "python3.11-nopie")
        assert re.search("changed=1 .*failed=0 ", output := play(pair, ["python_env"], given)), output
        for words in ((), ("--check",)):
            assert re.search("changed=0 .*failed=0 ", output := play(pair, ["python_env"], given, *words)), output
        expected_state.python_env_packages(node1, "python3.11-nopie")


def test_provision_installs_py_spy_and_repairs_it(pair: Lab) -> None:
    node1 = pair.testinfra("node1")
    expected_state.py_spy(node1)
    for harm in (
        "rm /opt/tfctl/py-spy/py-spy",
        "chmod 0700 /opt/tfctl/py-spy/py-spy",
        "echo > /opt/tfctl/py-spy/py-spy",
    ):
        pair.shell("node1", f"sudo sh -c '{harm}'")
        expected_state.is_violated(expected_state.py_spy, node1)
        code, report, _ = provision(pair, "--stack", "none", "--limit", "node1")
        assert (code, report["changed"] > 0) == (0, True)
        expected_state.py_spy(node1)


def test_operator_may_run_tfctl_node_as_root_and_nothing_else(pair: Lab) -> None:
    pair.shell("node1", "sudo useradd --create-home alice")
    inventory = edited(pair, pair.folder, node1="""tfctl_operators="['ops','alice']" """)
    code, report, _ = provision(pair, "--stack", "none", "--limit", "node1", inventory=inventory)
    assert (code, report["changed"]) == (0, 1)
    as_alice = "sudo -u alice sudo -n"
    assert pair.shell("node1", f"echo '{SHOW}' | {as_alice} /usr/local/sbin/tfctl-node").startswith('{"show":')
    for other in ("/usr/local/sbin/tfctl-node --help", "/bin/true"):
        assert "a password is required" in pair.shell("node1", f"{as_alice} {other} 2>&1 || true")


def play_job_host(lab: Lab, *words: str, **variables: object) -> str:
    """Run the role job_host alone on node1, in a play of the test; return the output of ansible-playbook."""
    return play(lab, ["job_host"], {"job_host_operators": ["ops"], **variables}, *words)


@pytest.mark.timeout(300)
def test_job_host_runs_alone_in_a_play_of_the_user(pair: Lab) -> None:
    node1 = pair.testinfra("node1")
    node1.check_output("rm -rf /usr/local/lib/tfctl /usr/local/sbin/tfctl-node /etc/sudoers.d/tfctl")
    expected_state.is_violated(expected_state.job_host, node1)
    assert " failed=0 " in (output := play_job_host(pair)), output
    expected_state.job_host(node1)
    for words in ((), ("--check",)):
        assert re.search("changed=0 .*failed=0 ", output := play_job_host(pair, *words)), output


@pytest.mark.timeout(300)
def test_job_host_refuses_other_ids_of_its_user_and_operators_that_do_not_exist(pair: Lab) -> None:
    node1 = pair.testinfra("node1")
    output = play_job_host(pair, job_host_uid=879)
    assert "the user tfctl has the ID 880 here instead of 879" in output, output
    assert "the group tfctl has the ID 880 here instead of 879" in output, output
    output = play_job_host(pair, job_host_operators=["ops", "nobody2", "nobody1"])
    assert "tfctl_operators: there is no user nobody1, nobody2 on this host" in output, output
    assert not node1.user("nobody1").exists


@pytest.mark.timeout(300)
def test_job_host_keeps_two_versions_those_of_guards_and_the_owners_of_shared_directories(pair: Lab) -> None:
    """It also restarts journald if an earlier run was interrupted before it could do so."""
    node1 = pair.testinfra("node1")
    assert " failed=0 " in (output := play_job_host(pair)), output
    for version in ("cccc", "aaaa", "bbbb"):
        node1.check_output(f"mkdir /usr/local/lib/tfctl/{version}; sleep 1")
    guard = "/run/systemd/system/tfctlguard-x.service"
    node1.check_output(f"printf '[Service]\\nExecStart=/usr/local/lib/tfctl/cccc/guard run x\\n' >{guard}")
    node1.check_output("mkdir -m 755 /srv/theirs; chown ops:ops /srv/theirs")
    node1.check_output("sleep 2; touch /etc/systemd/journald.conf.d/tfctl.conf")
    roots = ["/srv/tfctl", "/srv/theirs", "/srv/new"]
    output = play_job_host(pair, job_host_output_roots=roots)
    # journald, node.json, /srv/new and the oldest version but that of the guard.
    assert re.search("changed=4 .*failed=0 ", output), output
    versions = node1.check_output("ls /usr/local/lib/tfctl").split()
    assert len(versions) == 4 and {"bbbb", "cccc", "current"} < {*versions}
    expected_state.is_directory(node1, "/srv/theirs", 0o755, "ops")
    expected_state.is_directory(node1, "/srv/new", 0o2770, "tfctl")
    output = play_job_host(pair, job_host_output_roots=roots)
    assert re.search("changed=0 .*failed=0 ", output), output
    node1.check_output(f"rm {guard}")  # the job has ended
    output = play_job_host(pair, job_host_output_roots=roots)
    assert re.search("changed=1 .*failed=0 ", output), output
    assert not node1.file("/usr/local/lib/tfctl/cccc").exists


def test_job_host_reports_a_rule_that_asks_operators_for_a_password(pair: Lab) -> None:
    """sudo reads the files of sudoers.d in the order of their names, and the last rule that matches wins."""
    node1 = pair.testinfra("node1")
    node1.check_output("echo 'ops ALL=(ALL) NOPASSWD: ALL, PASSWD: /usr/local/sbin/tfctl-node' > /etc/sudoers.d/zz")
    try:
        code, report, _ = provision(pair, "--stack", "none", "--limit", "node1")
    finally:
        node1.check_output("rm /etc/sudoers.d/zz")
    (host,) = report["hosts"]
    assert (code, host["reason"]) == (8, "ops cannot run tfctl-node: sudo: a password is required")
    assert "overrides /etc/sudoers.d/tfctl" in host["remedy"]


@pytest.mark.timeout(400)
def test_provision_asks_for_a_sudo_password_that_jobs_do_not_need(pair: Lab) -> None:
    """carol may use sudo with a password, as in a new installation of Debian."""
    pair.root_script(
        "node1",
        "useradd --create-home --shell /bin/bash --groups sudo carol; echo carol:open-sesame | chpasswd\n"
        "cp -r ~ops/.ssh ~carol/; chown -R carol: ~carol/.ssh",
        30,
    )
    inventory = edited(pair, pair.folder, node1="ansible_user=carol")
    code, report, _ = provision(pair, "--stack", "none", "--limit", "node1", inventory=inventory)
    (host,) = report["hosts"]
    assert (code, host["reason"], "with -K" in host["remedy"]) == (8, "Missing sudo password", True)
    options = [str(inventory), "--stack", "none", "--limit", "node1", "-K"]
    for verb, password, expected, message in (
        ("provision", "sesame", 8, "Incorrect sudo password"),
        ("preflight", "open-sesame", 0, "Jobs need sudo without a password for one program"),
        ("provision", "open-sesame", 0, "node1 ok"),
    ):
        words = [str(TFCTL), verb, *options]
        code, shown = type_at_prompt(words, pair.folder, "sudo password of the hosts: ", password)
        assert (code, message in " ".join(shown.split())) == (expected, True), shown
        assert password not in shown
    as_carol = "sudo -u carol sudo -n"
    assert pair.shell("node1", f"echo '{SHOW}' | {as_carol} /usr/local/sbin/tfctl-node").startswith('{"show":')
    assert "a password is required" in pair.shell("node1", f"{as_carol} /bin/true 2>&1 || true")


def test_provision_changes_nothing_in_a_second_run_of_one_task(cluster: Lab) -> None:
    began = time.monotonic()
    code, report, stderr = provision(cluster)
    print(f"second run: {time.monotonic() - began:.1f} s")
    assert (code, report["changed"]) == (0, 0)
    tasks = [line.split(" s  ")[1] for line in stderr.splitlines()]
    assert tasks == ["preflight: Inspect the host"]
    code, report, _ = provision(cluster, "--check")
    assert (code, report["changed"]) == (0, 0)


def test_provision_names_unusable_hosts_and_finishes_the_others(cluster: Lab, tmp_path: Path) -> None:
    inventory = edited(
        cluster, tmp_path, node1="ansible_port=9", node3="ansible_user=stranger", node4="tfctl_stack=tf9"
    )
    code, report, _ = provision(cluster, inventory=inventory)
    hosts = by_name(report)
    assert code == 3
    assert hosts["node1"]["unreachable"] and "Connection refused" in hosts["node1"]["reason"]
    assert hosts["node3"]["unreachable"] and "Permission denied (publickey)" in hosts["node3"]["reason"]
    assert hosts["node4"]["failed"] and hosts["node4"]["reason"] == "tfctl_stack: no stack is called 'tf9'"
    assert "tf2.15" in hosts["node4"]["remedy"]
    assert not hosts["node2"]["failed"] and hosts["node2"]["ok"] > 0
    assert provision(cluster, "--limit", "node1,node2", inventory=inventory)[0] == 4


# Each damage to a node, and the task that repairs it.
DAMAGES = {
    "rm /etc/sudoers.d/tfctl": "Let operators run tfctl-node as root",
    "chmod 777 /var/lib/tfctl/jobs": "Create the directories",
    "echo '# mine' >> /usr/local/lib/tfctl/current/tfctl_node/states.py": "Install the node part",
    "touch /usr/local/lib/tfctl/current/tfctl_node/more.py": "Delete files that do not belong to the node part",
    "chmod 644 /usr/local/sbin/tfctl-node": "Install the program that sudo runs",
    "rm /etc/systemd/system/tfctl-.service.d/10-tfctl.conf": "Install the drop-in of the units of jobs",
    "rm /etc/systemd/journald.conf.d/tfctl.conf": "Configure journald",
    "usermod --shell /bin/bash tfctl": "Create the user for jobs",
    "usermod --shell /bin/bash tfctl-guard": "Create the user for guards",
    "gpasswd --delete ops tfctl-admin": "Add the operators to the group tfctl-admin",
    "ln -sfn nowhere /usr/local/lib/tfctl/current": "Switch to this version of the node part",
}


def changed_tasks(stderr: str) -> set[str]:
    return set(re.findall(r"changed  job_host: (.*)", stderr))


@pytest.mark.timeout(300)
def test_provision_repairs_a_host_after_manual_changes(cluster: Lab) -> None:
    node2 = cluster.testinfra("node2")
    expected_state.job_host(node2)
    for damage in DAMAGES:
        cluster.shell("node2", f'sudo sh -c "{damage}"')
    expected_state.is_violated(expected_state.job_host, node2)
    # journald is restarted when its configuration has changed.
    tasks = {*DAMAGES.values(), "Restart journald"}
    code, _, stderr = provision(cluster, "--limit", "node2", "--check", "--diff")
    # The module unarchive does not support check mode.
    compares = {"Compare the node part with its checksums"}
    assert (code, changed_tasks(stderr)) == (0, tasks - {"Install the node part"} | compares)
    assert '-    "mode": "0777"' in stderr and "+%tfctl-admin ALL=(root) NOPASSWD:" in stderr
    code, report, stderr = provision(cluster, "--limit", "node2")
    assert (code, report["changed"], changed_tasks(stderr)) == (0, len(tasks), tasks)
    code, report, _ = provision(cluster, "--limit", "node2")
    assert (code, report["changed"]) == (0, 0)
    expected_state.job_host(node2)
    assert cluster.shell("node2", f"echo '{SHOW}' | sudo -n /usr/local/sbin/tfctl-node").startswith('{"show":')


@pytest.mark.timeout(300)  # it installs the environment twice
def test_provision_rebuilds_a_damaged_environment_even_after_an_interruption(cluster: Lab) -> None:
    keras = "/opt/tfctl/stacks/tf2.15/lib/python3.11/site-packages/keras/src/callbacks.py"
    node3 = cluster.testinfra("node3")
    expected_state.tensorflow(node3, "tf2.15", "3.11")
    cluster.shell("node3", f"sudo rm {keras}")
    expected_state.is_violated(expected_state.tensorflow, node3, "tf2.15", "3.11")
    code, report, stderr = provision(cluster, "--limit", "node3", "--check", "--diff")
    assert (code, report["changed"]) == (0, 1)
    assert "keras/src/callbacks.py is missing" in stderr
    words = [*map(str, (Path(cluster.tfctl("--version").args[0]), "provision", cluster.inventory, "--limit", "node3"))]
    child = subprocess.Popen(words, cwd=cluster.folder, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr as told_live:
        for line in told_live:
            if "Install the environment" in line:
                child.terminate()
                break
        assert "interrupted" in told_live.read()
    assert child.wait(20) == 130
    assert not node3.file(keras).exists
    code, report, _ = provision(cluster, "--limit", "node3")
    assert (code, [host["reason"] for host in report["hosts"]]) == (0, [""])
    assert provision(cluster, "--limit", "node3", "--check")[1]["changed"] == 0
    expected_state.tensorflow(node3, "tf2.15", "3.11")
    cluster.shell("node3", "sudo -u tfctl /opt/tfctl/stacks/tf2.15/bin/python -c 'import tensorflow' 2>&1", timeout=60)
    left = "sudo ls -A /opt/tfctl/stacks /var/cache/tfctl-sent | grep -E 'part|old|tar$' || true"
    assert cluster.shell("node3", left) == ""


@pytest.mark.timeout(300)  # it runs the playbook twice
def test_playbook_run_by_ansible_playbook_provisions_like_tfctl(pair: Lab) -> None:
    """ansible-playbook runs in the checkout, whose ansible.cfg it reads. tfctl then finds nothing to change."""
    pair.shell("node1", "sudo rm /etc/sudoers.d/tfctl /usr/local/sbin/tfctl-node")
    words = [sys.executable, "-m", "ansible", "playbook", "-i", str(pair.inventory), "-e", "tfctl_stack=none"]
    done = subprocess.run(
        [*words, "--limit", "node1", "playbooks/provision.yml"],
        cwd=ansible.data_dir(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected_state.job_host(pair.testinfra("node1"))
    _, report, _ = provision(pair, "--stack", "none", "--limit", "node1")
    assert report["changed"] == 0
