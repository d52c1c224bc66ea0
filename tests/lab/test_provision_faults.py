"""What goes wrong while a host is provisioned: host, cause and remedy are told, and the other host is finished."""

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
from labs import TFCTL, Lab

from tfctl.model import stacks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: Nobody listens there.
DEAD = "http://127.0.0.1:9"
#: A package that is in no node's image, and needs no server to be installed.
NFS = {"tfctl_shared_storage": "nfs", "tfctl_shared_source": "nas:/all", "tfctl_shared_dir": "/mnt/all"}


@pytest.fixture(scope="module")
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes, prepared for jobs without TensorFlow."""
    found = Lab(f"{run_name}-faults", tmp_path_factory.mktemp("faults"))
    found.up("--nodes", 2)
    found.tfctl("provision", found.inventory, "--stack", "none")
    try:
        yield found
    finally:
        found.down()


def told(lab: Lab, stack: str, **variables: str) -> Path:
    """An inventory: node1 is without TensorFlow; node2 has the stack and these variables."""
    node1, node2 = (line for line in lab.inventory.read_text().splitlines() if line.startswith("node"))
    more = " ".join(f"{name}={value}" for name, value in variables.items())
    path = lab.folder / "faults.ini"
    path.write_text(f"{node1} tfctl_stack=none\n{node2} tfctl_stack={stack} {more}\n")
    return path


def provision(lab: Lab, inventory: Path, **environment: str) -> dict[str, Any]:
    """The object of -o json."""
    words = [TFCTL, "provision", inventory, "-o", "json"]
    variables = {**os.environ, **environment}
    done = subprocess.run(words, cwd=lab.folder, capture_output=True, text=True, timeout=300, env=variables)
    assert "Traceback" not in done.stderr, done.stderr
    return dict(json.loads(done.stdout))


def fault(report: dict[str, Any]) -> tuple[int, str, str]:
    """Exit code, reason and remedy of node2; node1 has come to its end."""
    one, two = report["hosts"]
    assert (one["failed"], one["unreachable"], one["ok"] >= 2) == (False, False, True), report
    assert (two["host"], two["failed"]) == ("node2", True), report
    return report["exit"], two["reason"], two["remedy"]


@contextlib.contextmanager
def harmed(lab: Lab, harm: str, mend: str) -> Iterator[None]:
    """node2, by shell lines of root's."""
    lab.said("node2", f"sudo sh -ec {shlex.quote(harm)}")
    try:
        yield
    finally:
        lab.said("node2", f"sudo sh -ec {shlex.quote(mend)}")


def test_an_unsupported_system(pair: Lab) -> None:
    arch = "{ echo PRETTY_NAME=Arch; echo ID=arch; } > /run/arch; mount --bind /run/arch /usr/lib/os-release"
    with harmed(pair, arch, "umount /usr/lib/os-release"):
        code, reason, remedy = fault(provision(pair, told(pair, "none")))
    assert (code, reason) == (8, "Arch is not supported")
    assert "there are: Debian 11, Debian 12" in remedy and "--limit '!node2'" in remedy


def test_a_disk_that_is_full_before(pair: Lab) -> None:
    with harmed(pair, "mount -t tmpfs -o size=50m full /opt/tfctl", "umount /opt/tfctl"):
        code, reason, remedy = fault(provision(pair, told(pair, "tf2.15")))
    assert (code, reason.startswith("50 MB are free for /opt/tfctl, ")) == (8, True), reason
    assert remedy.startswith("free some space there")


def test_a_disk_that_gets_full(pair: Lab) -> None:
    with harmed(pair, "mount -t tmpfs -o size=50m full /var/tmp", "umount /var/tmp"):
        code, reason, remedy = fault(provision(pair, told(pair, "tf2.15")))
    assert (code, reason.startswith("no space left on device for /var/tmp/tf2.15-")) == (1, True), reason
    assert remedy == "free space on node2 (df -h says where), then run it again"


def test_a_held_package(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold nfs-common", "apt-mark unhold nfs-common"):
        code, reason, remedy = fault(provision(pair, told(pair, "none", **NFS)))
    assert (code, reason) == (1, "on hold: nfs-common; to install nfs-common would change that")
    assert remedy == "apt-mark unhold nfs-common, then run it again"


def test_a_held_package_of_ansibles_own_installing(pair: Lab) -> None:
    with harmed(pair, "apt-mark hold make", "apt-mark unhold make"):
        code, reason, remedy = fault(provision(pair, told(pair, "tf2.15", tfctl_toolchain="true")))
    assert (code, reason.splitlines()[0]) == (
        1, "Held packages were changed and -y was used without --allow-change-held-packages.",
    )  # fmt: skip
    assert remedy == "apt-mark showhold on node2 names them: apt-mark unhold, then run it again"


def test_a_dead_mirror(pair: Lab) -> None:
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
        code, reason, remedy = fault(provision(pair, told(pair, "none", **NFS)))
    assert (code, reason.startswith("apt cannot install nfs-common")) == (1, True), reason
    assert f"Failed to fetch {DEAD}/debian/" in reason and "Connection refused" in reason
    assert remedy == "node2 does not reach its package sources: see its apt or dnf settings"


def test_a_dead_package_index(pair: Lab, tmp_path: Path) -> None:
    dead = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"{DEAD}/simple", "XDG_CACHE_HOME": str(tmp_path)}
    code, reason, remedy = fault(provision(pair, told(pair, "tf2.15"), **dead))
    assert (code, "connection broken to the package index" in reason) == (1, True), reason
    assert "Connection refused" in reason
    assert remedy == "this machine does not reach a package index that has the wheels: see `pip config list`"


def test_a_wheel_with_other_bytes(pair: Lab, tmp_path: Path) -> None:
    """An index that has the right name and version of the first wheel, and somebody else's content."""
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
        code, reason, remedy = fault(provision(pair, told(pair, "tf2.15"), **other))
        index.shutdown()
    assert (code, reason.startswith(f"the bytes of {name}=={version} from {address}/")) == (1, True), reason
    assert reason.endswith("do not match the hash in the lock")
    assert remedy.startswith("other bytes came than the lock names")


@pytest.mark.parametrize("task", ["Prepare the host", "Send the wheels", "Install the environment"])
def test_a_killed_control_machine_goes_on_from_where_it_was(pair: Lab, task: str) -> None:
    """SIGKILL to tfctl and all below it, in the middle of a task. What it left does not stop the next run."""
    pair.said("node2", "sudo rm -rf /opt/tfctl/stacks /usr/local/lib/tfctl /etc/sudoers.d/tfctl")
    inventory = told(pair, "tf2.15")
    words = [TFCTL, "provision", inventory]
    child = subprocess.Popen(words, cwd=pair.folder, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr as said:
        assert any(task in line for line in said)
        for process in below(child.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert child.wait(20) == -signal.SIGKILL
    report = provision(pair, inventory)
    assert report["exit"] == 0 and report["changed"] > 0, report
    assert provision(pair, inventory)["changed"] == 0
    pair.said("node2", "sudo -u tfctl /opt/tfctl/stacks/tf2.15/bin/python -c 'import tensorflow' 2>&1", timeout=60)
    left = "sudo ls -A /opt/tfctl/stacks /var/tmp /usr/local/lib/tfctl | grep -E 'part|old|tar$' || true"
    assert pair.said("node2", left) == ""


def test_a_killed_tfctl_takes_its_ansible_with_it(pair: Lab) -> None:
    """SIGKILL to tfctl alone: who runs it again does not meet the first run at work on the hosts."""
    pair.said("node2", "sudo rm -rf /usr/local/lib/tfctl /etc/sudoers.d/tfctl")
    inventory = told(pair, "none")
    child = subprocess.Popen([TFCTL, "provision", inventory], cwd=pair.folder, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    with child.stderr as said:
        assert any("Prepare the host" in line for line in said)
        processes = below(child.pid)[1:]
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


def below(process: int) -> list[int]:
    """It and all its descendants, the eldest first: none may start another meanwhile."""
    found = [process]
    for each in found:
        with contextlib.suppress(OSError):
            found += [int(word) for word in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found
