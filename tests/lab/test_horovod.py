"""Horovod on two nodes: built on one of them, kept, mended from what is kept, and taken away.

Where this machine keeps no wheel for them yet, the first test waits for the build: a minute and a half of two cores.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import made
import platformdirs
import pytest
from jobs import Jobs, said_by
from labs import Lab
from test_provision import by_name, edited, provision

TWO = ("--limit", "node1,node2")
BUILDS = "changed  horovod: Build Horovod"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-horovod"
PTH = "/opt/tfctl/stacks/tf2.15/lib/python3.11/site-packages/tfctl-horovod.pth"
LIBRARY = "horovod/tensorflow/mpi_lib.*.so"


@pytest.fixture(scope="module")
def inventory(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """In which the first two nodes have Horovod; as they do until the last test of a file."""
    wish = "tfctl_horovod=true"
    path = edited(cluster, tmp_path_factory.mktemp("horovod"), node1=wish, node2=wish)
    cluster.tfctl("provision", path, *TWO, timeout=1500)
    yield path
    cluster.tfctl("provision", cluster.inventory, *TWO, timeout=400)


@contextlib.contextmanager
def harmed(lab: Lab, node: str, harm: str, mend: str = "true") -> Iterator[None]:
    lab.said(node, f'sudo sh -c "{harm}"', timeout=60)
    try:
        yield
    finally:
        lab.said(node, f'sudo sh -c "{mend}"', timeout=60)


def test_a_second_run_changes_nothing(cluster: Lab, inventory: Path) -> None:
    began = time.monotonic()
    code, report, told = provision(cluster, *TWO, inventory=inventory)
    print(f"second run: {time.monotonic() - began:.1f} s")
    assert (code, report["changed"]) == (0, 0)
    assert len([line for line in told.splitlines() if " s  " in line]) == 4, "remote tasks"
    code, report, _ = provision(cluster, "--check", *TWO, inventory=inventory)
    assert (code, report["changed"]) == (0, 0)
    for node in ("node1", "node2"):
        made.openmpi(cluster.testinfra(node), "4.1.4")
        made.horovod(cluster.testinfra(node), "tf2.15", "3.11")


def test_two_ranks_reduce_under_mpirun(cluster: Lab, inventory: Path) -> None:
    assert inventory.exists()
    program = (
        "import horovod.tensorflow as hvd, tensorflow as tf; hvd.init(); "
        "print(hvd.size(), float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum)), hvd.gloo_built())"
    )
    words = "mpirun -np 2 --oversubscribe --bind-to none -mca pml ob1 -mca btl self,tcp python -c"
    command = f"cd /; sudo -u tfctl env PATH=/opt/tfctl/stacks/tf2.15/bin:/usr/bin:/bin {words} '{program}' 2>&1"
    lines = cluster.said("node2", command, timeout=120).splitlines()
    assert sorted(line for line in lines if line.startswith("2 ")) == ["2 3.0 True"] * 2


@pytest.mark.parametrize("name", ["job", "job-mpi"])
def test_the_example_learns(cluster: Lab, inventory: Path, tmp_path: Path, name: str) -> None:
    """Three ranks, two of them on one host, each in the unit of its worker."""
    shutil.copytree(EXAMPLE, tmp_path / "example")
    file = tmp_path / "example" / f"{name}.yaml"
    file.write_text(file.read_text().replace("worker: 3", "worker: {replicas: 3, hosts: 'node1:node2'}"))
    jobs = Jobs(cluster, tmp_path, ["digits-horovod", "digits-mpi"], inventory)
    try:
        job = jobs.ok("start", file).strip()
        done = jobs("wait", job, "--timeout", "3m", timeout=200)
        log = jobs("logs", "--job", job).stdout
    finally:
        jobs.clean()
    assert done.returncode == 0, done.stderr + log[-3000:]
    assert [f"rank {rank} of 3, {local} on its host" in said_by(log, f"worker/{rank}")
            for rank, local in ((0, 0), (1, 0), (2, 1))] == [True] * 3  # fmt: skip
    (accuracy,) = [line.rpartition(" ")[2] for line in said_by(log, "worker/0") if line.startswith("test accuracy")]
    assert float(accuracy) > 0.85


# What somebody may do to a node, and what of it the next run names.
HARMS = {
    f"rm /opt/tfctl/horovod/*/{LIBRARY}": ".so is missing",
    "echo '# mine' | tee -a /opt/tfctl/horovod/*/horovod/__init__.py": "horovod/__init__.py was changed",
    f"rm {PTH}": "tfctl-horovod.pth is not as it should be",
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_what_was_broken_is_mended_without_a_build(cluster: Lab, inventory: Path, harm: str) -> None:
    node2 = cluster.testinfra("node2")
    with harmed(cluster, "node2", harm):
        made.seen(made.horovod, node2, "tf2.15", "3.11")
        code, report, told = provision(cluster, "--limit", "node2", "--check", "--diff", inventory=inventory)
        assert (code, report["changed"]) == (0, 1)
        assert HARMS[harm] in told
    code, report, told = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"], BUILDS in told) == (0, 1, False)
    settled(cluster, inventory)
    made.horovod(node2, "tf2.15", "3.11")


def settled(cluster: Lab, inventory: Path) -> None:
    """A second run and a check find nothing to do on node2."""
    for words in ((), ("--check",)):
        code, report, _ = provision(cluster, "--limit", "node2", *words, inventory=inventory)
        assert (code, report["changed"]) == (0, 0)


@pytest.mark.slow
def test_an_open_mpi_that_does_not_run_is_installed_again(cluster: Lab, inventory: Path) -> None:
    node2 = cluster.testinfra("node2")
    with harmed(cluster, "node2", "rm /usr/lib/x86_64-linux-gnu/libopen-rte.so.40*"):
        made.seen(made.openmpi, node2, "4.1.4")
        code, report, _ = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"]) == (0, 1)
    settled(cluster, inventory)
    made.openmpi(node2, "4.1.4")


@pytest.mark.slow
def test_a_wheel_that_went_bad_is_named(cluster: Lab, inventory: Path) -> None:
    """Nothing else is: the host keeps what it has."""
    key = cluster.said("node2", "ls /opt/tfctl/horovod")
    kept = platformdirs.user_cache_path("tfctl") / f"built/horovod-{key}.whl"
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    try:
        with harmed(cluster, "node2", f"rm /opt/tfctl/horovod/*/{LIBRARY}"):
            code, report, _ = provision(cluster, "--limit", "node2", inventory=inventory)
    finally:
        kept.write_bytes(whole)
    host = by_name(report)["node2"]
    assert code == 1 and "is no whole wheel" in host["reason"]
    assert host["remedy"].startswith("remove")
    assert provision(cluster, "--limit", "node2", inventory=inventory)[0] == 0


@pytest.mark.slow
def test_a_host_can_be_without_it_again(cluster: Lab, inventory: Path) -> None:
    code, report, _ = provision(cluster, "--limit", "node2")
    assert (code, report["changed"]) == (0, 1)
    assert cluster.said("node2", f"ls -d {PTH} /opt/tfctl/horovod/* 2>/dev/null || true") == ""
    assert provision(cluster, "--limit", "node2")[1]["changed"] == 0
    code, report, told = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"], BUILDS in told) == (0, 1, False)


AWAY = "mv /opt/tfctl/horovod /opt/tfctl/horovod-away"
BACK = "rm -rf /opt/tfctl/horovod; mv /opt/tfctl/horovod-away /opt/tfctl/horovod"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_build_that_fails_ends_in_the_compilers_words(
    cluster: Lab, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the host that builds; the other is told that there is none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    header = "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"
    with (
        harmed(cluster, "node1", AWAY, BACK),
        harmed(cluster, "node2", AWAY, BACK),
        harmed(cluster, "node1", f"apt-get -qy install libopenmpi-dev; mv {header} {header}.away",
               f"mv {header}.away {header}"),
    ):  # fmt: skip
        code, report, _ = provision(cluster, "--tags", "horovod", *TWO, inventory=inventory)
        left = cluster.said("node1", "ls -A /opt/tfctl/horovod; ls /var/tmp | grep horovod || true")
    hosts = by_name(report)
    assert code == 1
    assert hosts["node1"]["reason"].startswith("Horovod could not be built\n"), hosts["node1"]["reason"]
    assert "MPI" in hosts["node1"]["reason"] and "tfctl_horovod=false" in hosts["node1"]["remedy"]
    assert "the host that was to build it did not" in hosts["node2"]["reason"]
    assert left == ".lock"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_host_builds_it_and_the_other_is_given_the_wheel(
    cluster: Lab, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with harmed(cluster, "node1", AWAY, BACK), harmed(cluster, "node2", AWAY, BACK):
        code, report, told = provision(cluster, "--tags", "horovod", *TWO, inventory=inventory)
        assert code == 0, report
        assert [line.split()[2] for line in told.splitlines() if BUILDS in line] == ["node1"]
        print(next(line for line in told.splitlines() if BUILDS in line))
        libraries = {
            cluster.said(node, f"cd /opt/tfctl/horovod/*/ && sha256sum {LIBRARY}") for node in ("node1", "node2")
        }
        assert len(libraries) == 1
        left = cluster.said("node1", "ls -A /opt/tfctl/horovod /var/tmp | grep -E 'build$|horovod-' || true")
        assert left == ""
    assert len(list(tmp_path.glob("tfctl/built/*"))) == 1
