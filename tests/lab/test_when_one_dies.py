"""A task of a training job is killed: which tasks restart, and from where training continues (docs/strategies.md)."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.lab.jobs import Jobs, lines_of_task, wait_for

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
slow = pytest.mark.slow


@dataclass
class Training:
    """A running training job."""

    jobs: Jobs
    name: str

    def kill(self, task: str) -> None:
        tasks = self.jobs.status(self.name)["tasks"]
        node = next(one["host"] for one in tasks if f"{one['role']}/{one['index']}" == task)
        self.jobs.lab.shell(
            node, f"sudo systemctl kill --kill-who=main -s KILL tfctl-{self.name}-{task.replace('/', '-')}"
        )

    def lines(self, task: str) -> list[str]:
        return lines_of_task(self.jobs.ok("logs", task, "--job", self.name), task)

    def numbers(self, pattern: str, task: str) -> list[int]:
        """Return the number that the pattern finds in each line of the task, in order."""
        return [int(found[1]) for line in self.lines(task) if (found := re.search(pattern, line))]

    def wait_for_number(self, pattern: str, task: str, more_than: int, seconds: float = 120) -> None:
        """Wait until the task prints, from now on, a number greater than this."""
        before = len(self.numbers(pattern, task))
        wait_for(
            lambda: any(number > more_than for number in self.numbers(pattern, task)[before:]),
            seconds, lambda: "\n".join(self.lines(task)[-20:]),
        )  # fmt: skip

    def restarts(self) -> dict[str, int]:
        """Return the number of restarts of each task that has restarted."""
        tasks = self.jobs.status(self.name)["tasks"]
        return {f"{task['role']}/{task['index']}": task["restarts"] for task in tasks if task["restarts"]}

    def assert_succeeds(self) -> None:
        """Wait for the end of the job, which must succeed."""
        done = self.jobs("wait", self.name, "--timeout", "3m", timeout=210)
        assert done.returncode == 0, done.stderr + self.jobs.ok("logs", "--job", self.name)[-3000:]


def example(jobs: Jobs, tmp_path: Path, name: str, old: str, new: str, job: str = "job") -> Training:
    """Start an example with a part of its command replaced."""
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
    jobs.lab.shell("node1", f"sudo rm -rf /srv/tfctl/{name}")
    jobs.ok("start", file)
    return Training(jobs, name)


EPOCH = r"Epoch (\d+)/"
STEP = r"global step (\d+)"


@pytest.mark.parametrize(
    ("name", "logs", "killed", "restarted"),
    [
        ("digits-multi-worker", "worker/0", "worker/1", [{"worker/0": 1, "worker/1": 1, "worker/2": 1}]),
        # The chief fails again if the workers are slow to connect to the ps again (TF_COORDINATOR_IGNORE_...).
        ("digits-ps", "chief/0", "ps/1", [{"chief/0": 1, "ps/1": 1}, {"chief/0": 2, "ps/1": 1}]),
        pytest.param("digits-ps", "chief/0", "worker/1", [{"worker/1": 1}], marks=slow),
        pytest.param("digits-ps", "chief/0", "chief/0", [{"chief/0": 1}], marks=slow),
        pytest.param("digits-mirrored", "worker/0", "worker/0", [{"worker/0": 1}], marks=slow),
    ],
)
def test_training_continues_from_its_backup_when_a_task_is_killed(
    name: str, logs: str, killed: str, restarted: list[dict[str, int]], jobs: Jobs, tmp_path: Path
) -> None:
    """With a coordinator only the killed worker restarts; in a group of workers all of them restart.

    ``restarted``: the numbers of restarts that may be seen, by task.
    """
    training = example(jobs, tmp_path, name, "--epochs 10", "--epochs 30")
    training.wait_for_number(EPOCH, logs, 1)
    training.kill(killed)
    training.assert_succeeds()
    assert training.restarts() in restarted
    epochs = training.numbers(EPOCH, logs)
    assert (epochs.count(1), epochs[-1]) == (1, 30), "it did not restore anything"


def test_worker_group_continues_from_the_step_it_reached(jobs: Jobs) -> None:
    """One job has a loop with its own checkpoints, the other a fit of one long epoch with a backup every ten steps."""
    text = "strategy: multi_worker_mirrored\nroles: {worker: 2}\n"
    loop = program(jobs, "steps_resumed", text + "env: {STEPS: 300, PAUSE: '0.05'}\n")
    fit = program(jobs, "steps_backed_up", text)
    loop.wait_for_number(r"^step (\d+)", "worker/0", 39)
    loop.kill("worker/1")
    fit.wait_for_number(r"^step (\d+)", "worker/0", 39)
    fit.kill("worker/0")
    for training in (loop, fit):
        training.assert_succeeds()
        assert training.restarts() == {"worker/0": 1, "worker/1": 1}
        for task in ("worker/0", "worker/1"):
            first, second = training.numbers(r"begins at step (\d+)", task)
            assert first == 0
            assert 30 <= second < 300


@slow
def test_asynchronous_tensorflow_1_training_survives_each_killed_task(jobs: Jobs, tmp_path: Path) -> None:
    training = example(jobs, tmp_path, "digits-tf1-ps", "python train.py", "python train.py --steps 100000000")
    # A worker: the others continue, and it joins them again.
    training.wait_for_number(STEP, "worker/1", 0)
    training.kill("worker/1")
    training.wait_for_number(STEP, "worker/2", 0)
    training.wait_for_number(STEP, "worker/1", 0)
    assert training.restarts() == {"worker/1": 1}
    # A ps: all wait until it is back, then the chief restores what was saved last.
    training.wait_for_number(STEP, "worker/0", 1000)
    training.kill("ps/1")
    for worker in range(3):
        training.wait_for_number(STEP, f"worker/{worker}", 0)
    assert training.restarts() == {"worker/1": 1, "ps/1": 1}
    restored = training.numbers(r"Restoring parameters from \S+ckpt-(\d+)", "worker/0")
    assert restored, "it did not restore anything"
    # The chief: it restores too, and rolls the others back.
    training.wait_for_number(STEP, "worker/2", restored[-1] + 1000)
    training.kill("worker/0")
    training.wait_for_number(STEP, "worker/0", 0)
    assert training.restarts() == {"worker/0": 1, "worker/1": 1, "ps/1": 1}
    steps = training.numbers(STEP, "worker/2")
    rollbacks = [(before, after) for before, after in pairwise(steps) if after < before]
    assert len(rollbacks) == 2, rollbacks


@slow
def test_synchronous_tensorflow_1_training_waits_for_a_killed_worker(jobs: Jobs, tmp_path: Path) -> None:
    training = example(jobs, tmp_path, "digits-tf1-ps", "--steps 600", "--steps 1500", "job-sync")
    training.wait_for_number(STEP, "worker/0", 100)
    training.kill("worker/1")
    stalled = training.numbers(STEP, "worker/0")[-1]
    training.assert_succeeds()
    assert training.restarts() == {"worker/1": 1}
    _, back = training.numbers(r"local step 1, global step (\d+)", "worker/1")
    assert back - stalled < 150, "the others went on without it"  # workers print every hundredth step


@slow
def test_estimator_training_survives_each_killed_task(jobs: Jobs, tmp_path: Path) -> None:
    step = r"step = (\d+)"
    training = example(jobs, tmp_path, "digits-estimator", "python train.py", "python train.py --steps 30000")
    for task in ("worker/1", "ps/0", "chief/0"):
        training.wait_for_number(step, "chief/0", 0)
        training.kill(task)
    training.wait_for_number(step, "chief/0", 0)
    training.assert_succeeds()
    # When a ps goes, a worker may wait, or fail with a CancelledError and come back.
    assert {"worker/1", "ps/0", "chief/0"} <= training.restarts().keys()
    assert training.numbers(r"Restoring parameters from \S+ckpt-(\d+)", "chief/0"), "it did not restore anything"
    assert training.numbers(r"accuracy \d\.\d+ at step (\d+)", "evaluator/0")[-1] >= 30000
