"""Programs on other stacks than tf2.15: TensorFlow 1 itself, and stacks with Keras 3, where tfctl selects Keras 2."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.lab.jobs import Jobs, lines_of_task
from tests.lab.labs import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
#: The directory of CPython trees on this machine, as pyenv creates them.
TREES = Path(os.environ.get("TFCTL_TEST_PYTHONS", "~/.pyenv/versions")).expanduser()


def install(lab: Lab, stack: str, *words: object) -> None:
    """Provision node1 and node2 with a stack."""
    lab.tfctl("provision", lab.inventory, "--stack", stack, "--limit", "node1,node2", *words, timeout=800)


@pytest.fixture(scope="module")
def newest(cluster: Lab) -> None:
    install(cluster, "tf2.21")


def log_of(jobs: Jobs, file: Path) -> str:
    """Run a job, which must succeed; return its log."""
    name = str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0])
    jobs.names.append(name)
    jobs.lab.shell("node1", f"sudo rm -rf /srv/tfctl/{name}")
    done = jobs("start", file, "--wait", "--timeout", "3m", timeout=200)
    log = jobs.ok("logs", "--job", name)
    assert done.returncode == 0, done.stderr + log[-3000:]
    return done.stderr + log


@pytest.mark.parametrize("program", ["contrib_cluster", "replica"])
def test_tensorflow_1_programs_run_unchanged_on_their_own_stack(program: str, jobs: Jobs) -> None:
    """They use tf.contrib, tf.app.flags, tf.layers, a Supervisor, and variables balanced over two ps tasks by size."""
    trees = sorted(TREES.glob("3.7.*"))
    if not trees:
        pytest.skip(f"no CPython 3.7 in {TREES} (TFCTL_TEST_PYTHONS)")
    install(jobs.lab, "tf1.15", "--python-tree", trees[0])
    words = "--job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"
    file = jobs.file(
        program.replace("_", "-"),
        f"strategy: tf1_ps\nstack: tf1.15\ncommand: python {program}.py {words} --train_dir={{output}}\n"
        "roles: {ps: {replicas: 2, hosts: 'node1:node2'}, worker: {replicas: 2, hosts: 'node1:node2'}}\n",
    )
    shutil.copy(HERE / f"programs/{program}.py", file.parent)
    log = log_of(jobs, file)
    output = "\n".join(lines_of_task(log, "worker/0"))
    assert "TensorFlow 1.15.5" in output
    assert {"/job:ps/task:0", "/job:ps/task:1"} <= set(re.findall(r"/job:ps/task:\d", output))
    assert float(re.findall(r"test accuracy ([01]\.\d+)", output)[-1]) > 0.85


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("example", ["multi-worker-mirrored", "parameter-server", "mirrored"])
def test_runtime_selects_keras_2_when_keras_3_would_fail(example: str, jobs: Jobs, tmp_path: Path) -> None:
    file = Path(shutil.copytree(EXAMPLES / "digits-runtime", tmp_path / "digits")) / f"{example}.yaml"
    text = re.sub("^inventory: .*\n", "", file.read_text(), flags=re.MULTILINE).replace("tf2.15", "tf2.21")
    file.write_text(text)
    log = log_of(jobs, file)
    assert ("TF_USE_LEGACY_KERAS=1 is set: " in log) == (example != "mirrored")
    assert float(re.findall(r"test accuracy ([01]\.\d+)", log)[-1]) > 0.85


@pytest.mark.usefixtures("newest")
def test_script_that_init_writes_trains_with_keras_3(jobs: Jobs, tmp_path: Path) -> None:
    jobs.lab.tfctl("init", tmp_path / "newest")
    file = tmp_path / "newest/job.yaml"
    file.write_text(re.sub("^inventory: .*\n", "", file.read_text(), flags=re.MULTILINE).replace("tf2.15", "tf2.21"))
    log = log_of(jobs, file)
    assert float(re.findall(r"test accuracy ([01]\.\d+)", log)[-1]) > 0.85
    assert "ckpt-10.weights.h5" in jobs.lab.shell("node1", "sudo ls /srv/tfctl/newest/checkpoints")
