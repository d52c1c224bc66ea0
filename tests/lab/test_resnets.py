"""The ResNet examples on small made-up images: each strategy trains by the job file alone, and resumes after a kill."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.jobs import Jobs, lines_of_task
from tests.lab.labs import Lab
from tests.lab.test_horovod import inventory  # noqa: F401
from tests.lab.test_when_one_dies import EPOCH, EXAMPLES, HERE, Training, begun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PYTHON = "/opt/tfctl/stacks/tf2.15/bin/python"
#: A directory that all nodes share.
DATA = "/srv/tfctl/resnet-data"
UNEVEN = f"{DATA}/uneven"
EPOCHS, STEPS, BACKUP = 8, 8, 4
SHORT = f"--epochs {EPOCHS} --steps-per-epoch {STEPS} --warmup-epochs 1 --backup-steps {BACKUP}"
BEGINS = r"training begins at step (\d+)"
#: For each example: the arguments of its script, and what it prints at its end.
ARGUMENTS = {
    "resnet-cifar": (f"--depth 20 --data {DATA}/cifar-10-batches-bin --batch-size 16 {SHORT}", "test accuracy"),
    "resnet-cifar:56": (f"--depth 56 --data {DATA}/cifar-10-batches-bin --batch-size 16 {SHORT}", "test accuracy"),
    "resnet-imagenet": (f"--data {DATA}/records --image-size 64 --batch-size 8 {SHORT}", "validation accuracy"),
}
STRATEGIES = ("mirrored", "multi-worker-mirrored", "parameter-server", "horovod")
CASES = [(name, strategy) for name in ("resnet-cifar", "resnet-imagenet") for strategy in STRATEGIES]
CASES.append(("resnet-cifar:56", "mirrored"))


@pytest.fixture(scope="module")
def jobs(cluster: Lab, inventory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:  # noqa: F811
    """Jobs on nodes with the data. The first two nodes have Horovod."""
    make_data(cluster)
    found = Jobs(cluster, tmp_path_factory.mktemp("resnets"), inventory=inventory)
    yield found
    found.clean()
    cluster.shell("node1", f"sudo rm -rf {DATA}")


def make_data(lab: Lab) -> None:
    """Run the data programs of the examples on a node, as a user would.

    UNEVEN has 193 images for validation, so that one of two ranks has a batch more than the other: 97 and 96 images are
    7 and 6 batches of 16.
    """
    lab.shell("node1", f"sudo install -d -o tfctl -g tfctl {DATA}")
    for program in (
        EXAMPLES / "resnet-cifar/data.py",
        EXAMPLES / "resnet-imagenet/make_tfrecords.py",
        HERE / "programs/imagenet_files.py",
    ):
        send(lab, program, program.name)
    for words in (
        f"data.py generate {DATA} --images 200",
        f"data.py generate {UNEVEN} --images 193",
        f"make_tfrecords.py generate {DATA}/images --classes 4 --images 40",
        f"make_tfrecords.py folder {DATA}/images/train --to {DATA}/records --split train --shards 4",
        f"make_tfrecords.py folder {DATA}/images/validation --to {DATA}/records --split validation --shards 2",
    ):
        ran(lab, words)


def send(lab: Lab, file: Path, name: str) -> None:
    """Copy a file to the directory of the data."""
    text = base64.b64encode(file.read_bytes()).decode()
    lab.shell("node1", f"echo {text} | base64 -d | sudo -u tfctl tee {DATA}/{name} > /dev/null")


def ran(lab: Lab, words: str, fails: bool = False) -> str:
    """Run a program in the directory of the data, and return what it prints."""
    return lab.shell("node1", f"cd / && {'! ' * fails}sudo -u tfctl {PYTHON} {DATA}/{words} 2>&1", timeout=300)


def started(jobs: Jobs, folder: Path, name: str, strategy: str) -> Training:
    """Start an example with other arguments; the ranks of Horovod on the nodes that have it."""
    example = name.partition(":")[0]
    file = Path(shutil.copytree(EXAMPLES / example, folder / example)) / f"{strategy}.yaml"
    text = re.sub(r"python train.py.*", f"python train.py {ARGUMENTS[name][0]}", file.read_text())
    if strategy == "horovod":
        text = text.replace(f"--data {DATA}/cifar", f"--data {UNEVEN}/cifar")
        text = text.replace("worker: 2", "worker: {replicas: 2, hosts: 'node1:node2'}")
    file.write_text(text)
    return begun(jobs, file)


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_resnet_learns_and_resumes_at_the_step_it_had_reached(
    jobs: Jobs, tmp_path: Path, name: str, strategy: str
) -> None:
    """The deciding task is killed after the first epoch, and restarts. The report shows how fast the job trains."""
    training = started(jobs, tmp_path, name, strategy)
    decider = "chief/0" if strategy == "parameter-server" else "worker/0"
    training.wait_for_number(EPOCH, decider, 1, seconds=400)
    training.kill(decider)
    done = jobs("wait", training.name, "--timeout", "8m", timeout=500)
    log = jobs.ok("logs", "--job", training.name)
    assert done.returncode == 0, done.stderr + log[-3000:]

    # parameter_server backs up after epochs only. All have saved the last step of the first epoch.
    saved = STEPS if strategy == "parameter-server" else BACKUP
    first, *_, last = training.numbers(BEGINS, decider)
    reached = max(STEPS, steps_before_resuming(training, decider) - saved)
    assert (first, last % saved, last >= reached) == (0, 0, True), (first, last, reached)
    losses = [float(loss) for loss in re.findall(r" loss: (\d+\.\d+)", "\n".join(lines_of_task(log, decider)))]
    assert losses[-1] < losses[0], losses
    assert re.search(rf"^{ARGUMENTS[name][1]} [01]\.\d+$", "\n".join(lines_of_task(log, decider)), re.MULTILINE)
    assert_files(jobs, training.name, decider, resumed_at=last)
    assert_reported(jobs, training.name, knows_wait=strategy != "parameter-server")
    if strategy == "horovod":
        assert training.numbers(BEGINS, "worker/1")[-1] == last, "the other rank resumed alike"


def steps_before_resuming(training: Training, task: str) -> int:
    """Return the steps of the epochs that the task had completed when it began for the last time."""
    lines = training.lines(task)
    begun = max(number for number, line in enumerate(lines) if re.search(BEGINS, line))
    return STEPS * max(int(found[1]) - 1 for line in lines[:begun] if (found := re.search(EPOCH, line)))


def assert_files(jobs: Jobs, job: str, decider: str, resumed_at: int) -> None:
    """Assert that one task wrote a checkpoint for each epoch, and summaries, and that the backup is gone.

    An epoch has none if the task was killed after its last step, which had been backed up.
    """
    host = next(task["host"] for task in jobs.status(job)["tasks"] if f"{task['role']}/{task['index']}" == decider)
    files = jobs.lab.shell(host, f"sudo find /srv/tfctl/{job} -type f").splitlines()
    names = {Path(file).name for file in files}
    epoch, step = divmod(resumed_at, STEPS)
    resumed = set() if step or epoch == 1 else {f"ckpt-{epoch:04}.index"}
    assert {f"ckpt-{epoch:04}.index" for epoch in range(1, EPOCHS + 1)} <= names | resumed
    assert any("tfevents" in name for name in names)
    assert not [file for file in files if "/backup/" in file]


def assert_reported(jobs: Jobs, job: str, knows_wait: bool) -> None:
    """Assert that the report shows the examples per second and the wait for input that the tasks have recorded."""
    [run] = json.loads(jobs.ok("report", job, "-o", "json"))["runs"]
    assert run["examples_per_second"] > 0, run
    if knows_wait:
        assert {task["source"] for task in run["tasks"]} == {"timings"}
        assert all(task["examples_per_second"] > 0 and 0 <= task["input_wait"] <= 1 for task in run["tasks"]), run


@pytest.mark.parametrize("example", ["resnet-cifar", "resnet-imagenet"])
def test_resnet_refuses_a_batch_that_is_larger_than_the_data(jobs: Jobs, example: str) -> None:
    send(jobs.lab, EXAMPLES / example / "train.py", f"{example}.py")
    data, images = (f"{DATA}/cifar-10-batches-bin", 1000) if example == "resnet-cifar" else (f"{DATA}/records", 160)
    said = ran(jobs.lab, f"{example}.py --data {data} --batch-size 1001", fails=True)
    assert f"{images} images are fewer than a batch of 1001: use a smaller --batch-size" in said


READ = """
import sys
import tensorflow as tf
for file in tf.io.gfile.glob(sys.argv[1]):
    for record in tf.data.TFRecordDataset(file):
        found = tf.train.Example.FromString(record.numpy()).features.feature
        name, synset = (found["image/" + key].bytes_list.value[0].decode() for key in ("filename", "class/synset"))
        print(name, synset, found["image/class/label"].int64_list.value[0])
"""


def test_files_of_imagenet_are_converted_with_the_classes_of_the_development_kit(jobs: Jobs, tmp_path: Path) -> None:
    source, to = f"{DATA}/imagenet", f"{DATA}/imagenet-records"
    expected = ran(jobs.lab, f"imagenet_files.py {DATA}/images {source}").splitlines()
    files = f"--train {source}/train.tar --validation {source}/validation.tar --devkit {source}/devkit.tar.gz"
    ran(jobs.lab, f"make_tfrecords.py imagenet {files} --to {to} --shards 3 --validation-shards 2")
    (tmp_path / "read.py").write_text(READ)
    send(jobs.lab, tmp_path / "read.py", "read.py")
    found = [line for line in ran(jobs.lab, f"read.py '{to}/validation-*'").splitlines() if line.startswith("ILSVRC")]
    assert len(expected) == 40
    assert sorted(found) == expected
    assert ran(jobs.lab, f"read.py '{to}/train-*'").count(".JPEG n0000000") == 160


def test_conversion_to_tfrecords_continues_after_an_interruption(jobs: Jobs) -> None:
    """Files that exist are not written again, and an image that is damaged or truncated is named."""
    work = f"{DATA}/make_tfrecords.py folder {DATA}/images/validation --to {DATA}/records --split validation"
    lab = jobs.lab
    stamp = f"sudo stat -c %y {DATA}/records/validation-00000-of-00002"
    before = lab.shell("node1", stamp)
    assert "2 of 2 files exist" in lab.shell("node1", f"cd / && sudo -u tfctl {PYTHON} {work} --shards 2 2>&1", 120)
    assert lab.shell("node1", stamp) == before
    lab.shell("node1", f"sudo -u tfctl mkdir -p {DATA}/bad/cats")
    whole = f"{DATA}/images/train/n00000000/n00000000_0.JPEG"
    for name, content in (("text", "echo no"), ("truncated", f"sudo -u tfctl head -c -1000 {whole}")):
        lab.shell("node1", f"{content} | sudo -u tfctl tee {DATA}/bad/cats/a.jpg > /dev/null")
        bad = f"{DATA}/make_tfrecords.py folder {DATA}/bad --to {DATA}/none/{name} --shards 1"
        said = lab.shell("node1", f"cd / && sudo -u tfctl {PYTHON} {bad} 2>&1; true", 120)
        assert "a.jpg cannot be decoded" in said and "Traceback" not in said, (name, said)
        assert lab.shell("node1", f"sudo ls {DATA}/none/{name} | grep '^train-.*1$' || true") == "", name
