"""Programs on other stacks than tf2.15: of TensorFlow 1 itself, and on Keras 3, which tfctl takes Keras 2 for."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from jobs import Jobs, said_by
from labs import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
#: Where this machine has CPython trees, as pyenv keeps them.
TREES = Path(os.environ.get("TFCTL_TEST_PYTHONS", "~/.pyenv/versions")).expanduser()


def bring(lab: Lab, stack: str, *words: object) -> None:
    """To node1 and node2."""
    lab.tfctl("provision", lab.inventory, "--stack", stack, "--limit", "node1,node2", *words, timeout=800)


@pytest.fixture(scope="module")
def newest(cluster: Lab) -> None:
    bring(cluster, "tf2.21")


def trained(jobs: Jobs, file: Path) -> str:
    """The log of a job that must end well."""
    name = str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0])
    jobs.names.append(name)
    jobs.lab.said("node1", f"sudo rm -rf /srv/tfctl/{name}")
    done = jobs("start", file, "--wait", "--timeout", "3m", timeout=200)
    log = jobs.ok("logs", "--job", name)
    assert done.returncode == 0, done.stderr + log[-3000:]
    return done.stderr + log


@pytest.mark.parametrize("program", ["contrib_cluster", "replica"])
def test_programs_of_tensorflow_1_itself_run_unchanged(program: str, jobs: Jobs) -> None:
    """tf.contrib, tf.app.flags, tf.layers, variables dealt to two ps tasks by their size; and under a Supervisor."""
    trees = sorted(TREES.glob("3.7.*"))
    if not trees:
        pytest.skip(f"no CPython 3.7 in {TREES} (TFCTL_TEST_PYTHONS)")
    bring(jobs.lab, "tf1.15", "--python-tree", trees[0])
    words = "--job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"
    file = jobs.file(
        program.replace("_", "-"),
        f"strategy: tf1_ps\nstack: tf1.15\ncommand: python {program}.py {words} --train_dir={{output}}\n"
        "roles: {ps: {replicas: 2, hosts: 'node1:node2'}, worker: {replicas: 2, hosts: 'node1:node2'}}\n",
    )
    shutil.copy(HERE / f"programs/{program}.py", file.parent)
    log = trained(jobs, file)
    said = "\n".join(said_by(log, "worker/0"))
    assert "TensorFlow 1.15.5" in said
    assert {"/job:ps/task:0", "/job:ps/task:1"} <= set(re.findall(r"/job:ps/task:\d", said))
    assert float(re.findall(r"test accuracy ([01]\.\d+)", said)[-1]) > 0.85


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("example", ["multi-worker-mirrored", "parameter-server", "mirrored"])
def test_keras_3_steps_back_for_keras_2_where_it_would_fail(example: str, jobs: Jobs, tmp_path: Path) -> None:
    file = Path(shutil.copytree(EXAMPLES / "digits-runtime", tmp_path / "digits")) / f"{example}.yaml"
    text = re.sub("^inventory: .*\n", "", file.read_text(), flags=re.MULTILINE).replace("tf2.15", "tf2.21")
    file.write_text(text)
    log = trained(jobs, file)
    assert ("TF_USE_LEGACY_KERAS=1 is set: " in log) == (example != "mirrored")
    assert float(re.findall(r"test accuracy ([01]\.\d+)", log)[-1]) > 0.85
