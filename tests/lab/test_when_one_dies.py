"""docs/strategies.md's table of that name, tried: a task of a training job is killed; who goes on, and from where."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from jobs import Jobs, said_by, wait_for

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
slow = pytest.mark.slow


@dataclass
class Training:
    """A job that is under way."""

    jobs: Jobs
    name: str

    def kill(self, task: str) -> None:
        tasks = self.jobs.status(self.name)["tasks"]
        node = next(one["host"] for one in tasks if f"{one['role']}/{one['index']}" == task)
        self.jobs.lab.said(node, f"sudo systemctl kill -s KILL tfctl-{self.name}-{task.replace('/', '-')}")

    def said(self, task: str) -> list[str]:
        return said_by(self.jobs.ok("logs", task, "--job", self.name), task)

    def numbers(self, pattern: str, task: str) -> list[int]:
        """The first group of the pattern in each line of the task, in their order."""
        return [int(found[1]) for line in self.said(task) if (found := re.search(pattern, line))]

    def reaches(self, pattern: str, task: str, more_than: int, seconds: float = 120) -> None:
        """Until the task has told a number above that, beyond what it has said so far."""
        before = len(self.numbers(pattern, task))
        wait_for(
            lambda: any(number > more_than for number in self.numbers(pattern, task)[before:]),
            seconds, lambda: "\n".join(self.said(task)[-20:]),
        )  # fmt: skip

    def restarts(self) -> dict[str, int]:
        """Of those that have come back."""
        tasks = self.jobs.status(self.name)["tasks"]
        return {f"{task['role']}/{task['index']}": task["restarts"] for task in tasks if task["restarts"]}

    def ends_well(self) -> None:
        done = self.jobs("wait", self.name, "--timeout", "3m", timeout=210)
        assert done.returncode == 0, done.stderr + self.jobs.ok("logs", "--job", self.name)[-3000:]


def example(jobs: Jobs, tmp_path: Path, name: str, old: str, new: str, job: str = "job") -> Training:
    """An example, started with other words in its command."""
    file = Path(shutil.copytree(EXAMPLES / name, tmp_path / name)) / f"{job}.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return begun(jobs, file)


def program(jobs: Jobs, name: str, text: str) -> Training:
    file = jobs.file(name.replace("_", "-"), f"stack: tf2.15\ncommand: python {name}.py\n{text}")
    shutil.copy(HERE / "programs" / f"{name}.py", file.parent)
    return begun(jobs, file)


def begun(jobs: Jobs, file: Path) -> Training:
    name = str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0])
    jobs.names.append(name)
    jobs.lab.said("node1", f"sudo rm -rf /srv/tfctl/{name}")
    jobs.ok("start", file)
    return Training(jobs, name)


EPOCH = r"Epoch (\d+)/"
STEP = r"global step (\d+)"


@pytest.mark.parametrize(
    ("name", "logs", "killed", "fallen"),
    [
        ("digits-multi-worker", "worker/0", "worker/1", {"worker/0": 1, "worker/1": 1, "worker/2": 1}),
        ("digits-ps", "chief/0", "ps/1", {"chief/0": 1, "ps/1": 1}),
        pytest.param("digits-ps", "chief/0", "worker/1", {"worker/1": 1}, marks=slow),
        pytest.param("digits-ps", "chief/0", "chief/0", {"chief/0": 1}, marks=slow),
        pytest.param("digits-mirrored", "worker/0", "worker/0", {"worker/0": 1}, marks=slow),
    ],
)
def test_who_falls_with_another_comes_back_and_goes_on_from_the_backup(
    name: str, logs: str, killed: str, fallen: dict[str, int], jobs: Jobs, tmp_path: Path
) -> None:
    """A worker of a coordinator falls alone, and the others take its steps; of a group all fall."""
    training = example(jobs, tmp_path, name, "--epochs 10", "--epochs 30")
    training.reaches(EPOCH, logs, 1)
    training.kill(killed)
    training.ends_well()
    assert training.restarts() == fallen
    epochs = training.numbers(EPOCH, logs)
    assert (epochs.count(1), epochs[-1]) == (1, 30), "it began from nothing"


def test_a_group_goes_on_from_the_step_that_it_had_reached(jobs: Jobs) -> None:
    """A loop with checkpoints of its own, and a fit of one long epoch with a backup every ten steps."""
    text = "strategy: multi_worker_mirrored\nroles: {worker: 2}\n"
    loop = program(jobs, "steps_resumed", text + "env: {STEPS: 300, PAUSE: '0.05'}\n")
    fit = program(jobs, "steps_backed_up", text)
    loop.reaches(r"^step (\d+)", "worker/0", 39)
    loop.kill("worker/1")
    fit.reaches(r"^step (\d+)", "worker/0", 39)
    fit.kill("worker/0")
    for training in (loop, fit):
        training.ends_well()
        assert training.restarts() == {"worker/0": 1, "worker/1": 1}
        for task in ("worker/0", "worker/1"):
            first, second = training.numbers(r"begins at step (\d+)", task)
            assert first == 0
            assert 30 <= second < 300


@slow
def test_a_tensorflow_1_cluster_at_its_own_pace(jobs: Jobs, tmp_path: Path) -> None:
    training = example(jobs, tmp_path, "digits-tf1-ps", "python train.py", "python train.py --steps 100000000")
    # A worker: the others go on, and it joins them again.
    training.reaches(STEP, "worker/1", 0)
    training.kill("worker/1")
    training.reaches(STEP, "worker/2", 0)
    training.reaches(STEP, "worker/1", 0)
    assert training.restarts() == {"worker/1": 1}
    # A ps: all wait until it is back, then the chief restores what was saved last.
    training.reaches(STEP, "worker/0", 1000)
    training.kill("ps/1")
    for worker in range(3):
        training.reaches(STEP, f"worker/{worker}", 0)
    assert training.restarts() == {"worker/1": 1, "ps/1": 1}
    restored = training.numbers(r"Restoring parameters from \S+ckpt-(\d+)", "worker/0")
    assert restored, "it began from nothing"
    # The chief: it restores too, and rolls the others back.
    training.reaches(STEP, "worker/2", restored[-1] + 1000)
    training.kill("worker/0")
    training.reaches(STEP, "worker/0", 0)
    assert training.restarts() == {"worker/0": 1, "worker/1": 1, "ps/1": 1}
    steps = training.numbers(STEP, "worker/2")
    falls = [(before, after) for before, after in pairwise(steps) if after < before]
    assert len(falls) == 2, falls


@slow
def test_a_tensorflow_1_cluster_in_step_waits_for_a_worker(jobs: Jobs, tmp_path: Path) -> None:
    training = example(jobs, tmp_path, "digits-tf1-ps", "--steps 600", "--steps 1500", "job-sync")
    training.reaches(STEP, "worker/0", 100)
    training.kill("worker/1")
    stalled = training.numbers(STEP, "worker/0")[-1]
    training.ends_well()
    assert training.restarts() == {"worker/1": 1}
    _, back = training.numbers(r"local step 1, global step (\d+)", "worker/1")
    assert back - stalled < 150, "the others went on without it"  # they tell every hundredth step


@slow
def test_an_estimators_tasks_come_back_one_by_one(jobs: Jobs, tmp_path: Path) -> None:
    step = r"step = (\d+)"
    training = example(jobs, tmp_path, "digits-estimator", "python train.py", "python train.py --steps 30000")
    for task in ("worker/1", "ps/0", "chief/0"):
        training.reaches(step, "chief/0", 0)
        training.kill(task)
    training.reaches(step, "chief/0", 0)
    training.ends_well()
    # When a ps goes, a worker may wait, or fail with a CancelledError and come back.
    assert {"worker/1", "ps/0", "chief/0"} <= training.restarts().keys()
    assert training.numbers(r"Restoring parameters from \S+ckpt-(\d+)", "chief/0"), "it began from nothing"
    assert training.numbers(r"accuracy \d\.\d+ at step (\d+)", "evaluator/0")[-1] >= 30000
