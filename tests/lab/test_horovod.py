"""Horovod on two nodes: built on one of them, cached, repaired from the cache, and removed.

The first use of the fixture builds Horovod if this machine has no wheel in its cache, which takes a few minutes on two
cores. So the time limit of a test excludes the fixture, which has its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from tests.lab import expected_state
from tests.lab.jobs import Jobs, lines_of_task, wait_for
from tests.lab.labs import LABS, Lab
from tests.lab.test_provision import by_name, edited, provision
from tests.lab.test_stacks import PROGRAMS

pytestmark = pytest.mark.alone  # it compiles

TWO = ("--limit", "node1,node2")
BUILDS = "changed  horovod: Build Horovod"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-horovod"
PTH = "/opt/tfctl/stacks/tf2.15/lib/python3.11/site-packages/tfctl-horovod.pth"
LIBRARY = "horovod/tensorflow/mpi_lib.*.so"
#: Three ranks on two hosts; only rank 0 writes checkpoints.
AVERAGING = """
    strategy: horovod
    launcher: {launcher}
    stack: {stack}
    command: python {program} {{output}}/checkpoints
    roles: {{worker: {{replicas: 3, hosts: 'node1:node2'}}}}
"""


@pytest.fixture(scope="module")
def inventory(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An inventory of the lab in which the first two nodes have Horovod, until the last test of a file."""
    setting = "tfctl_horovod=true"
    path = edited(cluster, tmp_path_factory.mktemp("horovod"), node1=setting, node2=setting)
    with (LABS.parent / "horovod.lock").open("w") as lock:
        # Of the two processes that run the suite, one builds Horovod. The other then finds the wheel in the cache.
        fcntl.flock(lock, fcntl.LOCK_EX)
        cluster.tfctl("provision", path, *TWO, timeout=1500)
    yield path
    cluster.tfctl("provision", cluster.inventory, *TWO, timeout=400)


@contextlib.contextmanager
def harmed(lab: Lab, node: str, harm: str, mend: str = "true") -> Iterator[None]:
    lab.shell(node, f'sudo sh -c "{harm}"', timeout=180)
    try:
        yield
    finally:
        lab.shell(node, f'sudo sh -c "{mend}"', timeout=60)


def test_horovod_is_installed_and_a_second_run_changes_nothing(cluster: Lab, inventory: Path) -> None:
    began = time.monotonic()
    code, report, stderr = provision(cluster, *TWO, inventory=inventory)
    print(f"second run: {time.monotonic() - began:.1f} s")
    assert (code, report["changed"]) == (0, 0)
    assert len([line for line in stderr.splitlines() if " s  " in line]) == 1, "remote tasks"
    code, report, _ = provision(cluster, "--check", *TWO, inventory=inventory)
    assert (code, report["changed"]) == (0, 0)
    for node in ("node1", "node2"):
        expected_state.openmpi(cluster.testinfra(node), "4.1.4")
        expected_state.horovod(cluster.testinfra(node), "tf2.15", "3.11")


def test_horovod_reduces_two_ranks_under_mpirun(cluster: Lab, inventory: Path) -> None:
    assert inventory.exists()
    program = (
        "import horovod.tensorflow as hvd, tensorflow as tf; hvd.init(); "
        "print(hvd.size(), float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum)), hvd.gloo_built())"
    )
    words = "mpirun -np 2 --oversubscribe --bind-to none -mca pml ob1 -mca btl self,tcp python -c"
    command = f"cd /; sudo -u tfctl env PATH=/opt/tfctl/stacks/tf2.15/bin:/usr/bin:/bin {words} '{program}' 2>&1"
    lines = cluster.shell("node2", command, timeout=120).splitlines()
    assert sorted(line for line in lines if line.startswith("2 ")) == ["2 3.0 True"] * 2


@pytest.mark.parametrize("name", ["job", "job-mpi"])
def test_horovod_example_learns(cluster: Lab, inventory: Path, tmp_path: Path, name: str) -> None:
    """The job has three ranks, two of them on one host, each in the unit of its worker."""
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
    assert [f"rank {rank} of 3, {local} on its host" in lines_of_task(log, f"worker/{rank}")
            for rank, local in ((0, 0), (1, 0), (2, 1))] == [True] * 3  # fmt: skip
    (accuracy,) = [
        line.rpartition(" ")[2] for line in lines_of_task(log, "worker/0") if line.startswith("test accuracy")
    ]
    assert float(accuracy) > 0.85


def assert_averages(jobs: Jobs, program: str, launcher: str, stack: str, versions: str) -> None:
    """Run a program of lab/programs whose ranks all find the same solution only if they average their gradients."""
    name = f"averages-{launcher}"
    file = jobs.file(name, AVERAGING.format(stack=stack, program=program, launcher=launcher))
    shutil.copy(PROGRAMS / program, file.parent)
    jobs.root("node1", f"rm -rf /srv/tfctl/{name}")
    try:
        done = jobs("start", file, "--wait", "--timeout", "3m", timeout=200)
        log = jobs.ok("logs", "--job", name)
    finally:
        jobs.clean()
    assert done.returncode == 0, done.stderr + log[-3000:]
    for rank, local in ((0, 0), (1, 0), (2, 1)):
        lines = {versions, f"rank {rank} of 3, {local} on its host", "w 3.000, b 2.000"}
        assert lines <= set(lines_of_task(log, f"worker/{rank}")), log[-3000:]
    assert jobs.root("node1", f"ls /srv/tfctl/{name}/checkpoints") != ""


@pytest.mark.parametrize("launcher", ["gloo", "mpi"])
def test_horovod_averages_the_gradients_of_keras(cluster: Lab, inventory: Path, tmp_path: Path, launcher: str) -> None:
    versions = "tensorflow 2.15.1 on python 3.11"
    assert_averages(Jobs(cluster, tmp_path, [], inventory), "horovod_keras.py", launcher, "tf2.15", versions)


def test_horovod_job_whose_client_was_killed_ends_by_itself(cluster: Lab, inventory: Path, tmp_path: Path) -> None:
    jobs = Jobs(cluster, tmp_path, [], inventory)
    text = "strategy: horovod\nstack: tf2.15\ncommand: [python, -c, 'import time; time.sleep(8)']\n"
    client = jobs.begin("start", jobs.file("alone", text + "roles: {worker: {replicas: 2, hosts: 'node1:node2'}}\n"))
    try:
        wait_for(lambda: jobs("status", "alone").returncode == 0 and jobs.status("alone")["state"] == "running", 60)
        client.kill()
        client.communicate(timeout=10)
        wait_for(lambda: jobs.status("alone")["state"] == "succeeded", 60, lambda: jobs.ok("status", "alone"))
        wait_for(lambda: not jobs.root("node1", "ls /run/systemd/system | grep guard; true"), 30)
    finally:
        jobs.clean()


# Each damage to a node, and what the next run prints about it.
DAMAGES = {
    f"rm /opt/tfctl/horovod/*/{LIBRARY}": ".so is missing",
    "echo '# mine' | tee -a /opt/tfctl/horovod/*/horovod/__init__.py": "horovod/__init__.py was changed",
    f"rm {PTH}": "tfctl-horovod.pth does not name /opt/tfctl/horovod/",
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", DAMAGES)
def test_horovod_is_repaired_without_a_build(cluster: Lab, inventory: Path, harm: str) -> None:
    node2 = cluster.testinfra("node2")
    with harmed(cluster, "node2", harm):
        expected_state.is_violated(expected_state.horovod, node2, "tf2.15", "3.11")
        code, report, stderr = provision(cluster, "--limit", "node2", "--check", "--diff", inventory=inventory)
        assert (code, report["changed"]) == (0, 1)
        assert DAMAGES[harm] in stderr
    code, report, stderr = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"], BUILDS in stderr) == (0, 1, False)
    settled(cluster, inventory)
    expected_state.horovod(node2, "tf2.15", "3.11")


def settled(cluster: Lab, inventory: Path) -> None:
    """A second run and a check find nothing to do on node2."""
    for words in ((), ("--check",)):
        code, report, _ = provision(cluster, "--limit", "node2", *words, inventory=inventory)
        assert (code, report["changed"]) == (0, 0)


@pytest.mark.slow
def test_openmpi_is_reinstalled_when_mpirun_fails(cluster: Lab, inventory: Path) -> None:
    node2 = cluster.testinfra("node2")
    with harmed(cluster, "node2", "rm /usr/lib/x86_64-linux-gnu/libopen-rte.so.40*"):
        expected_state.is_violated(expected_state.openmpi, node2, "4.1.4")
        code, report, _ = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"]) == (0, 1)
    settled(cluster, inventory)
    expected_state.openmpi(node2, "4.1.4")


@pytest.mark.slow
def test_damaged_cached_wheel_is_named_and_not_installed(cluster: Lab, inventory: Path) -> None:
    """The host keeps the Horovod that it has."""
    key = cluster.shell("node2", "ls /opt/tfctl/horovod")
    kept = platformdirs.user_cache_path("tfctl") / f"built/horovod-{key}.whl"
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    try:
        with harmed(cluster, "node2", f"rm /opt/tfctl/horovod/*/{LIBRARY}"):
            code, report, _ = provision(cluster, "--limit", "node2", inventory=inventory)
    finally:
        kept.write_bytes(whole)
    host = by_name(report)["node2"]
    assert code == 1 and f"horovod-{key}.whl is damaged" in host["reason"]
    assert host["remedy"].startswith("delete this wheel")
    assert provision(cluster, "--limit", "node2", inventory=inventory)[0] == 0


@pytest.mark.slow
def test_horovod_is_removed_and_installed_again_without_a_build(cluster: Lab, inventory: Path) -> None:
    code, report, _ = provision(cluster, "--limit", "node2")
    assert (code, report["changed"]) == (0, 1)
    assert cluster.shell("node2", f"ls -d {PTH} /opt/tfctl/horovod/* 2>/dev/null || true") == ""
    code, report, _ = provision(cluster, "--limit", "node2")
    assert (code, report["changed"]) == (0, 0)
    code, report, stderr = provision(cluster, "--limit", "node2", inventory=inventory)
    assert (code, report["changed"], BUILDS in stderr) == (0, 1, False)


AWAY = "mv /opt/tfctl/horovod /opt/tfctl/horovod-away"
BACK = "rm -rf /opt/tfctl/horovod; mv /opt/tfctl/horovod-away /opt/tfctl/horovod"


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_failed_horovod_build_quotes_the_compiler(
    cluster: Lab, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the other host says that no build arrived."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    header = "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"
    with (
        harmed(cluster, "node1", AWAY, BACK),
        harmed(cluster, "node2", AWAY, BACK),
        harmed(cluster, "node1", f"apt-get -qy install libopenmpi-dev; mv {header} {header}.away",
               f"mv {header}.away {header}"),
    ):  # fmt: skip
        code, report, _ = provision(cluster, "--tags", "horovod", *TWO, inventory=inventory, timeout=900)
        left = cluster.shell("node1", "ls -A /opt/tfctl/horovod; sudo ls -A /var/cache/tfctl-sent")
    hosts = by_name(report)
    assert code == 1
    assert hosts["node1"]["reason"].startswith("Horovod could not be built\n"), hosts["node1"]["reason"]
    assert "MPI" in hosts["node1"]["reason"] and "tfctl_horovod=false" in hosts["node1"]["remedy"]
    assert "the build on another host has failed" in hosts["node2"]["reason"]
    assert left == ".lock"


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_horovod_is_built_on_one_host_and_copied_to_the_other(
    cluster: Lab, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with harmed(cluster, "node1", AWAY, BACK), harmed(cluster, "node2", AWAY, BACK):
        code, report, stderr = provision(cluster, "--tags", "horovod", *TWO, inventory=inventory, timeout=900)
        assert code == 0, report
        assert [line.split()[2] for line in stderr.splitlines() if BUILDS in line] == ["node1"]
        print(next(line for line in stderr.splitlines() if BUILDS in line))
        libraries = {
            cluster.shell(node, f"cd /opt/tfctl/horovod/*/ && sha256sum {LIBRARY}") for node in ("node1", "node2")
        }
        assert len(libraries) == 1
        left = cluster.shell(
            "node1", "sudo ls -A /opt/tfctl/horovod /var/cache/tfctl-sent | grep -E 'build$|horovod-' || true"
        )
        assert left == ""
    assert len(list(tmp_path.glob("tfctl/built/*"))) == 1
