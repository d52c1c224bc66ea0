"""Failures of `tfctl provision`: it names host, cause and remedy, and finishes the other host."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.labs import TFCTL, Lab
from tfctl.model import stacks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: An address at which nothing listens.
DEAD = "http://127.0.0.1:9"
#: Variables that make provision install nfs-common, which the image of the nodes lacks.
NFS = {"tfctl_shared_storage": "nfs", "tfctl_shared_source": "nas:/all", "tfctl_shared_dir": "/mnt/all"}


@pytest.fixture(scope="module")
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes, provisioned without TensorFlow."""
    found = Lab(f"{run_name}-faults", tmp_path_factory.mktemp("faults"))
    found.up("--nodes", 2)
    found.tfctl("provision", found.inventory, "--stack", "none")
    try:
        yield found
    finally:
        found.down()


def inventory_of(lab: Lab, stack: str, **variables: str) -> Path:
    """Write an inventory: node1 without TensorFlow, node2 with this stack and these variables."""
    node1, node2 = (line for line in lab.inventory.read_text().splitlines() if line.startswith("node"))
    more = " ".join(f"{name}={value}" for name, value in variables.items())
    path = lab.folder / "faults.ini"
    path.write_text(f"{node1} tfctl_stack=none\n{node2} tfctl_stack={stack} {more}\n")
    return path


def provision(lab: Lab, inventory: Path, **environment: str) -> dict[str, Any]:
    """Run `tfctl provision`; return the object that -o json prints."""
    words = [str(TFCTL), "provision", str(inventory), "-o", "json"]
    variables = {**os.environ, **environment}
    done = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, timeout=300, env=variables)
    assert "Traceback" not in done.stderr, done.stderr
    return dict(json.loads(done.stdout))


def fault(report: dict[str, Any]) -> tuple[int, str, str]:
    """Assert that only node2 failed; return the exit code, and the reason and remedy of node2."""
    one, two = report["hosts"]
    assert (one["failed"], one["unreachable"], one["ok"] >= 2) == (False, False, True), report
    assert (two["host"], two["failed"]) == ("node2", True), report
    return report["exit"], two["reason"], two["remedy"]


@contextlib.contextmanager
def harmed(lab: Lab, harm: str, mend: str) -> Iterator[None]:
    """Damage node2 with a shell command, and repair it with another; root runs both."""
    lab.shell("node2", f"sudo sh -ec {shlex.quote(harm)}")
    try:
        yield
    finally:
        lab.shell("node2", f"sudo sh -ec {shlex.quote(mend)}")


def test_provision_refuses_an_unsupported_system(pair: Lab) -> None:
    arch = "{ echo PRETTY_NAME=Arch; echo ID=arch; } > /run/arch; mount --bind /run/arch /usr/lib/os-release"
    with harmed(pair, arch, "umount /usr/lib/os-release"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none")))
    assert (code, reason) == (8, "Arch is not supported")
    assert "supported systems: Debian 11, Debian 12" in remedy and "--limit '!node2'" in remedy


@pytest.mark.parametrize(
    ("mount", "directory"), [("/opt/tfctl", "/opt/tfctl"), ("/var/cache", "/var/cache/tfctl/wheels")]
)
def test_provision_refuses_a_host_with_a_full_disk(pair: Lab, mount: str, directory: str) -> None:
    with harmed(pair, f"mount -t tmpfs -o size=50m full {mount}", f"umount {mount}"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15")))
    assert (code, reason.startswith(f"50 MB are free for {directory}, ")) == (8, True), reason
    assert remedy.startswith("free some space there")


def test_provision_fails_with_a_remedy_when_a_disk_fills_up(pair: Lab) -> None:
    """A program fills /var/cache as soon as the wheels are being sent, which takes longer."""
    fill = "until [ -e /var/cache/tfctl/wheels/.upload ]; do sleep 0.1; done; dd if=/dev/zero of=/var/cache/fill bs=1M"
    harm = f"mount -t tmpfs -o size=1100m full /var/cache; systemd-run --unit=fill sh -c {shlex.quote(fill)}"
    with harmed(pair, harm, "systemctl stop fill || true; umount /var/cache"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15")))
    assert (code, reason) == (1, "no space left on device for /var/cache/tfctl/wheels")
    assert remedy == "free space on node2 (df -h shows where), then try again"


@pytest.mark.parametrize("target", ["hostname", "machine ID"])
def test_provision_refuses_two_hosts_that_look_like_one(pair: Lab, target: str) -> None:
    """node2 gets what node1 has. Both are reported, because tfctl cannot know which one is right."""
    there = pair.shell("node1", "hostname" if target == "hostname" else "cat /etc/machine-id").strip()
    before = pair.shell("node2", "hostname").strip()
    harm, mend = f"hostname {there}", f"hostname {before}"
    if target == "machine ID":
        harm = f"echo {there} >/run/other-id; mount --bind /run/other-id /etc/machine-id"
        mend = "umount /etc/machine-id"
    with harmed(pair, harm, mend):
        report = provision(pair, inventory_of(pair, "none"))
    assert report["exit"] == 8
    reasons = {host["host"]: host["reason"] for host in report["hosts"]}
    assert reasons == {
        "node1": f"the {target} {there} is also that of node2",
        "node2": f"the {target} {there} is also that of node1",
    }


def test_provision_refuses_a_name_that_resolves_to_loopback_on_its_host(pair: Lab) -> None:
    """Debian's installer writes such a line."""
    harm = "cp /etc/hosts /run/hosts; echo 127.0.1.1 gpu2 >>/run/hosts; mount --bind /run/hosts /etc/hosts"
    with harmed(pair, harm, "umount /etc/hosts"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none", tfctl_address="gpu2")))
    assert (code, reason) == (8, "gpu2 is 127.0.1.1 on the host itself, which other hosts cannot reach")
    assert remedy == "remove gpu2 from the line of 127.0.1.1 in its /etc/hosts, or set tfctl_address"


def test_provision_refuses_to_change_a_held_package(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold nfs-common", "apt-mark unhold nfs-common"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none", **NFS)))
    refused = "Held packages were changed and -y was used without --allow-change-held-packages."
    assert (code, reason.splitlines()[0]) == (1, refused)
    assert remedy == "list them on node2 (apt-mark showhold), apt-mark unhold, then try again"


def test_provision_explains_a_held_package_that_ansible_refused(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold make", "apt-mark unhold make"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15", tfctl_toolchain="true")))
    assert (code, reason.splitlines()[0]) == (
        1, "Held packages were changed and -y was used without --allow-change-held-packages.",
    )  # fmt: skip
    assert remedy == "list them on node2 (apt-mark showhold), apt-mark unhold, then try again"


def test_provision_names_a_package_mirror_that_cannot_be_reached(pair: Lab) -> None:
    kill = (
        "mv /etc/apt/sources.list.d /etc/apt/was; mv /var/lib/apt/lists /var/lib/apt/was;"
        "mkdir /etc/apt/sources.list.d /var/lib/apt/lists;"
        f"echo deb {DEAD}/debian bookworm main > /etc/apt/sources.list.d/dead.list"
    )
    mend = (
        "rm -r /etc/apt/sources.list.d /var/lib/apt/lists;"
        "mv /etc/apt/was /etc/apt/sources.list.d; mv /var/lib/apt/was /var/lib/apt/lists"
    )
    with harmed(pair, kill, mend):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none", **NFS)))
    assert (code, f"Failed to fetch {DEAD}/debian/dists/bookworm/InRelease" in reason) == (1, True), reason
    assert remedy == "node2 cannot reach its package sources: `apt-get update` or `dnf makecache` there shows why"


def test_provision_names_an_unreachable_python_package_index(pair: Lab, tmp_path: Path) -> None:
    dead = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{DEAD}/simple", "XDG_CACHE_HOME": str(tmp_path)}
    code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15"), **dead))
    assert (code, "connection broken to the package index" in reason) == (1, True), reason
    assert "Connection refused" in reason
    assert remedy == "this machine cannot reach a package index that has the wheels: check `pip config list`"


def test_provision_refuses_a_wheel_with_a_wrong_hash(pair: Lab, tmp_path: Path) -> None:
    """The package index has the first wheel of the lock under its name and version, but with other content."""
    lock = stacks.get("tf2.15").lock("cpu", "3.11").read_text()
    name, version = next(line for line in lock.splitlines() if "==" in line).split()[0].split("==")
    page = tmp_path / "simple" / name
    page.mkdir(parents=True)
    wheel = page / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    wheel.write_bytes(b"not what the lock says")
    (page / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as index:
        threading.Thread(target=index.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{index.server_port}/simple"
        other = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": address, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15"), **other))
        index.shutdown()
    assert (code, reason.startswith(f"the download of {name}=={version} from {address}/")) == (1, True), reason
    assert reason.endswith("does not match the hash in the lock file")
    assert remedy.startswith("the download does not match the lock file's hash")


def test_provision_begins_no_further_batch_after_a_failure(pair: Lab) -> None:
    """Five names for two nodes, which both lack a file. "second" fails in the batch after the canary, whose other host
    is completed."""
    node1, node2 = (line.partition(" ")[2] for line in pair.inventory.read_text().splitlines() if line[:4] == "node")
    nfs = " ".join(f"{name}={value}" for name, value in NFS.items())
    hosts = (("canary", node1), ("second", f"{node2} {nfs}"), ("third", node1), ("fourth", node2), ("fifth", node1))
    inventory = pair.folder / "batches.ini"
    lines = [f"{name} {variables} tfctl_stack=none" for name, variables in hosts]
    inventory.write_text("\n".join([*lines, "[all:vars]", "tfctl_batch=2", ""]))
    with harmed(pair, "apt-mark hold nfs-common", "apt-mark unhold nfs-common"):
        for node in ("node1", "node2"):
            pair.shell(node, "sudo rm -f /etc/sudoers.d/tfctl")
        report = provision(pair, inventory)
    assert report["exit"] == 1, report
    begun = [(host["host"], host["failed"], host["begun"]) for host in report["hosts"]]
    assert begun == [
        ("canary", False, True), ("second", True, True), ("third", False, True),
        ("fourth", False, False), ("fifth", False, False),
    ]  # fmt: skip
    assert report["hosts"][0]["changed"] > 0 and report["hosts"][2]["changed"] == 0
    assert report["hosts"][3]["reason"] == "not begun, because second failed in batch 1 of 2"
    pair.shell("node1", "sudo test -f /etc/sudoers.d/tfctl")


@pytest.mark.parametrize(
    "task", ["Create the directories", "Switch to this version", "Send the wheels", "Install the environment"]
)
def test_provision_completes_after_tfctl_and_ansible_were_killed(pair: Lab, task: str) -> None:
    """tfctl and all its children get SIGKILL during a task. What they leave must not stop the next run."""
    gone = "/opt/tfctl/stacks /var/cache/tfctl/wheels /usr/local/lib/tfctl /etc/sudoers.d/tfctl"
    pair.shell("node2", f"sudo rm -rf {gone}")
    inventory = inventory_of(pair, "tf2.15")
    words = [str(TFCTL), "provision", str(inventory)]
    child = subprocess.Popen(words, cwd=pair.folder, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr as output:
        assert any(task in line for line in output)
        for process in with_descendants(child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert child.wait(20) == -signal.SIGKILL
    report = provision(pair, inventory)
    assert report["exit"] == 0 and report["changed"] > 0, report
    assert provision(pair, inventory)["changed"] == 0
    pair.shell("node2", "sudo -u tfctl /opt/tfctl/stacks/tf2.15/bin/python -c 'import tensorflow' 2>&1", timeout=60)
    listed = "sudo ls -A /opt/tfctl/stacks /var/cache/tfctl/wheels /usr/local/lib/tfctl"
    assert pair.shell("node2", rf"{listed} | grep -E 'part|old|^\.upload|^\.[0-9a-f]{{64}}' || true") == ""


def test_ansible_ends_when_tfctl_is_killed(pair: Lab) -> None:
    """Only tfctl gets SIGKILL. Ansible must not keep working on the hosts while the user runs tfctl again.

    Its temporary files disappear from this machine and from the host, to which 0.4 GB are being sent.
    """
    pair.shell("node2", "sudo rm -rf /opt/tfctl/stacks /var/cache/tfctl/wheels /etc/sudoers.d/tfctl")
    inventory = inventory_of(pair, "tf2.15")
    with tempfile.TemporaryDirectory() as name:  # a short name, since it contains sockets
        kill_while_wheels_are_sent(pair, inventory, Path(name))
    assert provision(pair, inventory)["exit"] == 0
    assert provision(pair, inventory)["changed"] == 0


def kill_while_wheels_are_sent(pair: Lab, inventory: Path, temporary: Path) -> None:
    """Kill tfctl, and wait until Ansible and the files of both have disappeared here and on node2."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    child = subprocess.Popen(
        [str(TFCTL), "provision", str(inventory)], cwd=pair.folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    with child.stderr as output:
        assert any("Send the wheels" in line for line in output)
        [folder] = temporary.glob("tfctl-ansible-*")
        # A run that was killed with Ansible, as in the test before, may have left its own for a day.
        paths = f".ansible/tmp/{folder.name} /root/.ansible/tmp/{folder.name}"
        directories = f"sudo sh -c 'ls -d {paths} || true'"
        until = time.monotonic() + 20
        while not pair.shell("node2", f"{directories} 2>/dev/null"):
            assert time.monotonic() < until
        processes = with_descendants(child.pid)[1:]
        child.kill()
    assert child.wait(20) == -signal.SIGKILL
    until = time.monotonic() + 20
    while any(command_of(process) for process in processes) or [*temporary.iterdir()]:
        assert time.monotonic() < until, [*map(command_of, processes), *temporary.iterdir()]
        time.sleep(0.1)
    shared = subprocess.run(["pgrep", "-af", f"ssh: {temporary}/"], capture_output=True, text=True, timeout=20)
    assert shared.stdout == "", "connections that ssh shares"
    assert pair.shell("node2", f"{directories} 2>/dev/null") == ""


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def with_descendants(process: int) -> list[int]:
    """Return the process and its descendants, parents first, so that killing them in order leaves none."""
    found = [process]
    for each in found:
        with contextlib.suppress(OSError):
            found += [int(word) for word in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found
