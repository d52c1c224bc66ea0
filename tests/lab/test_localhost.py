"""A node that provisions itself, beside another one that it reaches by ssh: tfctl runs on it as an ordinary user.

Its user may use sudo only until the node has been provisioned, and all commands run in one login session, which began
before the user became an operator.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.labs import Lab
from tests.unit.doc_blocks import ROOT

USER = "ann"
HOME = f"/home/{USER}"
#: What the user may do until provisioning has ended.
SUDOERS = f"/etc/sudoers.d/{USER}"
PREPARE = f"""
useradd --create-home --shell /bin/bash {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' >{SUDOERS}
mkdir -p {HOME}/tfctl {HOME}/.ssh
tar -xzf /tmp/tfctl.tar.gz -C {HOME}/tfctl
install -m 600 /tmp/id {HOME}/.ssh/id_lab
install -m 644 /tmp/known_hosts {HOME}/.ssh/known_hosts
chown -R {USER}: {HOME}
"""
INSTALL = "cd tfctl && bash -c '. scripts/lib.sh; environment run'"
#: One worker on each of the two hosts.
JOB = """\
name: pair
inventory: hosts.ini
strategy: multi_worker_mirrored
stack: tf2.15
code: .
command: python train.py
output: {output}
roles:
  worker: {{per_host: 1}}
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


class Machine:
    """node1, on which tfctl runs. ``lab``: the lab that has it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def put(self, file: Path, target: str) -> None:
        """Copy a file to the node as the user as whom Ansible logs in."""
        with file.open("rb") as data:
            command = self.lab.ssh("node1", f"cat >{target} && chmod 600 {target}")
            subprocess.run(command, stdin=data, check=True, timeout=60)

    def run(self, script: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a shell script in a new login session of the user, in the home directory."""
        path = "export PATH=$HOME/tfctl/.venv/bin:$PATH"
        login = f"sudo runuser -l {USER} -c {shlex.quote(f'{path}; {script}')}"
        done = subprocess.run(
            self.lab.ssh("node1", login), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def ok(self, script: str, timeout: float = 120) -> str:
        """The script must succeed; return its stdout."""
        done = self.run(script, timeout)
        assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def machine(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Two bare nodes, of which the first has tfctl."""
    folder = tmp_path_factory.mktemp("localhost")
    lab = Lab(f"{run_name}-self", folder)
    lab.up("--nodes", 2)
    try:
        yield prepared(lab, folder)
    finally:
        lab.down()


def prepared(lab: Lab, folder: Path) -> Machine:
    found, other = Machine(lab), lab.hosts()["node2"]
    archive = folder / "tfctl.tar.gz"
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, check=True, capture_output=True, timeout=60).stdout
    names = b"\0".join(name for name in files.split(b"\0") if name and (ROOT / name.decode()).exists())
    pack = ["tar", "-C", str(ROOT), "--null", "--no-recursion", "-T", "-", "-czf", str(archive)]
    subprocess.run(pack, input=names, check=True, timeout=60)
    known = folder / "known_hosts"
    [path] = re.findall(r"UserKnownHostsFile=(\S+)", other["ansible_ssh_common_args"])
    known.write_text(Path(path).read_text())
    for file, target in ((archive, "tfctl.tar.gz"), (Path(other["ansible_ssh_private_key_file"]), "id")):
        found.put(file, f"/tmp/{target}")
    found.put(known, "/tmp/known_hosts")
    lab.root_script("node1", PREPARE, timeout=60)
    found.ok(INSTALL, timeout=300)
    return found


def test_a_machine_provisions_itself_and_trains_beside_a_host_that_it_reaches_by_ssh(machine: Machine) -> None:
    node1, node2 = (machine.lab.hosts()[name]["ansible_host"] for name in ("node1", "node2"))
    machine.ok("tfctl init pair --here --strategy multi_worker_mirrored")
    away = f"node2 ansible_host={node2} ansible_user=ops ansible_ssh_private_key_file={HOME}/.ssh/id_lab"
    machine.ok(f"sed -i 's#^localhost .*#&\\n{away}#' pair/hosts.ini && cat pair/hosts.ini")
    write = f"printf %s {shlex.quote(JOB.format(output='/srv/tfctl/pair'))} >pair/job.yaml"
    session = (
        f"{write} && tfctl preflight pair/hosts.ini >&2 && tfctl provision pair/hosts.ini >&2 && sudo rm {SUDOERS} && "
        "! id -nG | grep -qw tfctl-admin && ! sudo -n true 2>/dev/null && "
        "tfctl start pair/job.yaml --wait --follow >log && tfctl status pair -o json"
    )
    status = json.loads(machine.ok(session, timeout=1000))
    assert status["state"] == "succeeded"
    places = {(task["host"], task["address"]) for task in status["tasks"]}
    assert places == {("localhost", node1), ("node2", node2)}, "the other host cannot reach a loopback address"
    assert re.search(r"^worker/0 .*accuracy", machine.ok("cat log"), re.MULTILINE)
    assert machine.lab.shell("node1", "sudo sh -c 'ls -d /root/.ansible/tmp/tfctl-ansible-* 2>/dev/null; true'") == ""


def test_a_job_on_this_machine_alone_uses_its_loopback_address(machine: Machine) -> None:
    """With commands of a new session, which has the group, and no ssh at all."""
    machine.ok("tfctl init alone --here --strategy multi_worker_mirrored && rm -f .ssh/id_lab")
    machine.ok("tfctl start alone/job.yaml --wait --follow >log", timeout=300)
    [first, *_] = json.loads(machine.ok("tfctl status alone -o json"))["tasks"]
    assert (first["host"], first["address"]) == ("localhost", "127.0.0.1")
    nodes = json.loads(machine.ok("tfctl nodes -i alone/hosts.ini -o json"))["nodes"]
    assert [(node["host"], node["state"], node["drifts"]) for node in nodes] == [("localhost", "ready", [])]
    machine.ok("tfctl pull alone results && test -s results/attempt-1/worker-0.log")
    machine.ok("tfctl top -i alone/hosts.ini --once")
    again = json.loads(machine.ok("tfctl nodes -i alone/hosts.ini -o json"))
    assert again["nodes"][0]["tasks"] == []
