"""Real builds on hosts: Open MPI from its source, and a build of Horovod during which tfctl is killed.

The tests take about ten minutes on two cores, most of it for the build of Open MPI.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.lab import expected_state
from tests.lab.jobs import wait_for
from tests.lab.labs import Lab
from tests.lab.test_provision_faults import with_descendants
from tfctl.provision import ansible

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(2400)]  # it compiles

#: Debian's source package contains this tarball. That of 4.1.8, which the stack names, is not available everywhere.
VERSION = "4.1.4"
FETCH = """
mkdir -p /srv/source/lists/partial; cd /srv/source
for each in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ ! -e "$each" ] || sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$each" > "$(basename "$each")"
done
options="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/srv/source -o Dir::State::Lists=/srv/source/lists"
apt-get -qq $options update; apt-get -qq $options source --download-only openmpi >&2
ls /srv/source/openmpi_*.orig.tar.?z*
"""


@dataclass(frozen=True)
class Builders:
    """Two nodes with tf2.15. ``checkout``: a tfctl whose stack names the Open MPI of the tarball ``source``, with its
    hash; ``cache``: an empty cache for the control machine."""

    lab: Lab
    checkout: Path
    source: Path
    sha256: str
    cache: Path

    @property
    def prefix(self) -> str:
        return f"/opt/tfctl/openmpi/{VERSION}-{self.sha256[:12]}"

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start `tfctl provision` with Horovod, and with Open MPI from source unless the tags include horovod."""
        openmpi = "distribution" if "openmpi,horovod" in words else "source"
        inventory = self.lab.folder / "builders.ini"
        more = f"[all:vars]\ntfctl_horovod=true\ntfctl_openmpi={openmpi}\ntfctl_openmpi_url=file://{self.source}\n"
        inventory.write_text(f"{self.lab.inventory.read_text()}\n{more}")
        environment = {**os.environ, "PYTHONPATH": str(self.checkout), "XDG_CACHE_HOME": str(self.cache)}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tfctl", "provision", str(inventory), "-o", "json", *words],
            cwd=self.lab.folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def provision(self, *words: str) -> tuple[int, str]:
        """Run it to its end; return the number of changes, and stderr."""
        done, stderr = (child := self.begin(*words)).communicate(timeout=2000)
        assert child.returncode == 0, done + stderr
        return int(json.loads(done)["changed"]), stderr

    def assert_unchanged(self, *words: str) -> None:
        """Assert that a second run and a run with --check change nothing."""
        assert [self.provision(*words)[0], self.provision(*words, "--check")[0]] == [0, 0]

    def left(self, node: str) -> str:
        """Return the files that a build has left on the node."""
        look = "ls -A /opt/tfctl/* /var/cache/tfctl-sent | grep -E 'build|part|^(openmpi|horovod)-'"
        return str(self.lab.testinfra(node).run(look).stdout)


def checkout_with_openmpi(folder: Path, sha256: str) -> Path:
    """Copy this checkout, and let its stack tf2.15 name the Open MPI with this hash."""
    root = ansible.data_dir()
    for name in ("tfctl", "tfctl_runtime", "playbooks", "roles"):
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    stack = folder / "tfctl/model/stacks/tf2.15.yaml"
    data = yaml.safe_load(stack.read_text())
    data["openmpi"] |= {"version": VERSION, "sha256": sha256, "verified": True}
    stack.write_text(yaml.safe_dump(data))
    return folder


@pytest.fixture(scope="module")
def builders(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builders]:
    lab = Lab(f"{run_name}-builds", tmp_path_factory.mktemp("builds"))
    lab.up("--nodes", 2)
    try:
        lab.tfctl("provision", lab.inventory, timeout=600)
        source = lab.folder / "openmpi.tar"
        path = lab.testinfra("node1").check_output("sh -ec %s", FETCH)
        with source.open("wb") as file:
            subprocess.run(lab.ssh("node1", f"cat {shlex.quote(path)}"), stdout=file, check=True, timeout=120)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        checkout = checkout_with_openmpi(tmp_path_factory.mktemp("checkout"), digest)
        yield Builders(lab, checkout, source, digest, tmp_path_factory.mktemp("cache"))
    finally:
        lab.down()


def test_openmpi_is_built_on_one_host_and_copied_to_the_other(builders: Builders) -> None:
    began = time.monotonic()
    _, stderr = builders.provision("--tags", "openmpi")
    print(f"Open MPI {VERSION}, built and handed on: {time.monotonic() - began:.0f} s")
    assert re.findall(r"(\w+)  changed  openmpi: Build Open MPI", stderr) == ["node1"]
    hosts = [builders.lab.testinfra(node) for node in ("node1", "node2")]
    for node, host in zip(("node1", "node2"), hosts, strict=True):
        expected_state.openmpi_source(host, VERSION, builders.prefix, "tf2.15")
        assert builders.left(node) == ""
    assert len({host.file(f"{builders.prefix}/lib/libmpi.so.40").sha256sum for host in hosts}) == 1
    assert not hosts[1].package("gcc").is_installed, "a host that gets a finished build needs no compiler"
    builders.assert_unchanged("--tags", "openmpi")


@pytest.mark.parametrize("harm", ["rm {prefix}/bin/mpirun", "rm {prefix}/lib/libmpi.so*", "rm {link}/bin/orted"])
def test_openmpi_is_repaired_without_a_build(builders: Builders, harm: str) -> None:
    spec = (builders.lab.testinfra("node2"), VERSION, builders.prefix, "tf2.15")
    spec[0].check_output(harm.format(prefix=builders.prefix, link="/opt/tfctl/stacks/tf2.15"))
    expected_state.is_violated(expected_state.openmpi_source, *spec)
    changed, stderr = builders.provision("--tags", "openmpi")
    assert (changed, "Build Open MPI" in stderr) == (1, False)
    builders.assert_unchanged("--tags", "openmpi")
    expected_state.openmpi_source(*spec)


def test_build_continues_when_provision_is_killed_and_the_next_run_waits_for_it(builders: Builders) -> None:
    """tfctl and all its children get SIGKILL while compilers run. The next run reports for which process it waits, and
    does not build again. The build runs at low priority."""
    node1 = builders.lab.testinfra("node1")
    child = builders.begin("--tags", "openmpi,horovod")
    # Wait for a compiler with nice value 10. Before the build, the role toolchain compiles a program with nice value 0.
    wait_for(lambda: "10" in compilers(builders) or child.poll() is not None, 300)
    assert child.poll() is None, child.communicate()
    for process in with_descendants(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.communicate(timeout=20)
    assert child.returncode == -signal.SIGKILL
    began = time.monotonic()
    wait_for(lambda: compilers(builders) == {"10"}, 30, lambda: "the build does not continue at low priority")
    _, stderr = builders.provision("--tags", "openmpi,horovod")
    print(f"Horovod, the end of a build that was broken off: {time.monotonic() - began:.0f} s")
    waits = r"node1: waits up to 15 min: another run builds Horovod on this host, for \d+ s now \(process (\d+)\)"
    assert len(set(re.findall(waits, stderr))) == 1, stderr
    for node in ("node1", "node2"):
        expected_state.horovod(builders.lab.testinfra(node), "tf2.15", "3.11")
        assert builders.left(node) == ""
    assert not node1.file("/opt/tfctl/horovod/.build").exists
    builders.assert_unchanged("--tags", "openmpi,horovod")


def compilers(builders: Builders) -> set[str]:
    """Return the nice values of the compilers that run on node1."""
    return {*builders.lab.testinfra("node1").run("ps -C cc1plus -o ni=").stdout.split()}
