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
    assert "there are: Debian 11, Debian 12" in remedy and "--limit '!node2'" in remedy


def test_provision_refuses_a_host_with_a_full_disk(pair: Lab) -> None:
    with harmed(pair, "mount -t tmpfs -o size=50m full /opt/tfctl", "umount /opt/tfctl"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15")))
    assert (code, reason.startswith("50 MB are free for /opt/tfctl, ")) == (8, True), reason
    assert remedy.startswith("free some space there")


def test_provision_fails_with_a_remedy_when_a_disk_fills_up(pair: Lab) -> None:
    with harmed(pair, "mount -t tmpfs -o size=50m full /var/tmp", "umount /var/tmp"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15")))
    assert (code, reason.startswith("no space left on device for /var/tmp/tf2.15-")) == (1, True), reason
    assert remedy == "free space on node2 (df -h says where), then run it again"


def test_provision_refuses_to_change_a_held_package(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold nfs-common", "apt-mark unhold nfs-common"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none", **NFS)))
    assert (code, reason) == (1, "on hold: nfs-common; to install nfs-common would change that")
    assert remedy == "apt-mark unhold nfs-common, then run it again"


def test_provision_explains_a_held_package_that_ansible_refused(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold make", "apt-mark unhold make"):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15", tfctl_toolchain="true")))
    assert (code, reason.splitlines()[0]) == (
        1, "Held packages were changed and -y was used without --allow-change-held-packages.",
    )  # fmt: skip
    assert remedy == "apt-mark showhold on node2 names them: apt-mark unhold, then run it again"


def test_provision_names_an_unreachable_package_mirror(pair: Lab) -> None:
    kill = (
        "mv /etc/apt/sources.list.d /etc/apt/was; mv /var/lib/apt/lists /var/lib/apt/was;"
        "mkdir /etc/apt/sources.list.d;"
        f"echo deb {DEAD}/debian bookworm main > /etc/apt/sources.list.d/dead.list"
    )
    mend = (
        "rm -r /etc/apt/sources.list.d /var/lib/apt/lists;"
        "mv /etc/apt/was /etc/apt/sources.list.d; mv /var/lib/apt/was /var/lib/apt/lists"
    )
    with harmed(pair, kill, mend):
        code, reason, remedy = fault(provision(pair, inventory_of(pair, "none", **NFS)))
    assert (code, reason.startswith("apt cannot install nfs-common")) == (1, True), reason
    assert f"Failed to fetch {DEAD}/debian/" in reason and "Connection refused" in reason
    assert remedy == "node2 does not reach its package sources: see its apt or dnf settings"


def test_provision_names_an_unreachable_python_package_index(pair: Lab, tmp_path: Path) -> None:
    dead = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{DEAD}/simple", "XDG_CACHE_HOME": str(tmp_path)}
    code, reason, remedy = fault(provision(pair, inventory_of(pair, "tf2.15"), **dead))
    assert (code, "connection broken to the package index" in reason) == (1, True), reason
    assert "Connection refused" in reason
    assert remedy == "this machine does not reach a package index that has the wheels: see `pip config list`"


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
    assert (code, reason.startswith(f"the bytes of {name}=={version} from {address}/")) == (1, True), reason
    assert reason.endswith("do not match the hash in the lock")
    assert remedy.startswith("other bytes came than the lock names")


@pytest.mark.parametrize(
    "task", ["Create the directories", "Switch to this version", "Send the wheels", "Install the environment"]
)
def test_provision_completes_after_tfctl_and_ansible_were_killed(pair: Lab, task: str) -> None:
    """tfctl and all its children get SIGKILL during a task. What they leave must not stop the next run."""
    pair.shell("node2", "sudo rm -rf /opt/tfctl/stacks /usr/local/lib/tfctl /etc/sudoers.d/tfctl")
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
    left = "sudo ls -A /opt/tfctl/stacks /var/tmp /usr/local/lib/tfctl | grep -E 'part|old|tar$' || true"
    assert pair.shell("node2", left) == ""


def test_ansible_ends_when_tfctl_is_killed(pair: Lab) -> None:
    """Only tfctl gets SIGKILL. Ansible must not keep working on the hosts while the user runs tfctl again."""
    pair.shell("node2", "sudo rm -rf /usr/local/lib/tfctl /etc/sudoers.d/tfctl")
    inventory = inventory_of(pair, "none")
    child = subprocess.Popen(
        [str(TFCTL), "provision", str(inventory)], cwd=pair.folder, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    with child.stderr as output:
        assert any("Install the node part" in line for line in output)
        processes = with_descendants(child.pid)[1:]
        child.kill()
    assert child.wait(20) == -signal.SIGKILL
    until = time.monotonic() + 20
    while any(command_of(process) for process in processes):
        assert time.monotonic() < until, [command_of(process) for process in processes]
        time.sleep(0.1)
    assert provision(pair, inventory)["exit"] == 0
    assert provision(pair, inventory)["changed"] == 0


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
