"""TensorFlow on real nodes: every strategy's example learns, and so do programs written for no launcher at all."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import Jobs, said_by, wait_for

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
_FLAGS = "--job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"


@dataclass
class Trained:
    """A job that has ended well: what it printed, how its tasks ended, and what lies in its output."""

    log: str
    states: dict[str, str]
    files: str

    def accuracy(self, task: str) -> float:
        """The last one that the task printed."""
        return float(re.findall(r"test[ -]accuracy:? ([01]\.\d+)", "\n".join(said_by(self.log, task)).lower())[-1])


def train(jobs: Jobs, file: Path) -> Trained:
    """From an empty output to the end; afterwards no process and no port of it is left on any node."""
    name = str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0])
    begin(jobs, name)
    done = jobs("start", file, "--wait", "--timeout", "3m", timeout=200)
    log = jobs.ok("logs", "--job", name)
    assert done.returncode == 0, done.stderr + log[-3000:]
    # The units of tasks that ended by themselves stay, to be looked at.
    left = [line for lines in jobs.traces().values() for line in lines if not line.startswith("tfctl-")]
    assert left == []
    # Seen by a node that has the least to do with it.
    return Trained(log, jobs.states(name), jobs.lab.said("node4", f"sudo find /srv/tfctl/{name} -type f"))


def begin(jobs: Jobs, name: str) -> None:
    jobs.names.append(name)
    jobs.lab.said("node1", f"sudo rm -rf /srv/tfctl/{name}")


def learned(trained: Trained, decider: str) -> None:
    """The decider says so, and checkpoints and summaries are in the shared output."""
    assert trained.accuracy(decider) > 0.85
    assert "events.out.tfevents" in trained.files
    assert ".index" in trained.files


@pytest.mark.parametrize("variant", ["job", "job-sync", "job-flags"])
def test_a_tensorflow_1_cluster(variant: str, jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-tf1-ps" / f"{variant}.yaml")
    learned(trained, "worker/0")
    assert {trained.states[f"ps/{index}"] for index in range(2)} == {"stopped"}
    workers = [task for task in trained.states if task.startswith("worker")]
    assert {trained.states[task] for task in workers} == {"succeeded"}
    for task in workers:
        assert re.search(r"local step \d+, global step \d+", "\n".join(said_by(trained.log, task))), task
    assert set(re.findall(r"\.data-0000(\d)-of-00002", trained.files)) == {"0", "1"}, "each ps writes its own part"


def test_an_estimator_whose_evaluator_sees_the_last_checkpoint(jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-estimator" / "job.yaml")
    learned(trained, "chief/0")
    assert trained.accuracy("evaluator/0") == trained.accuracy("chief/0")
    assert trained.states == {
        "chief/0": "succeeded", "ps/0": "stopped", "ps/1": "stopped",
        "worker/0": "succeeded", "worker/1": "succeeded", "evaluator/0": "succeeded",
    }  # fmt: skip


def test_an_estimator_with_a_ps_and_a_worker_on_every_host_the_first_being_master(jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-estimator" / "job-colocated.yaml")
    learned(trained, "master/0")
    places: dict[str, list[str]] = {}
    for task in jobs.status("digits-colocated")["tasks"]:
        places.setdefault(task["host"], []).append(task["role"])
    assert places == {"node1": ["master", "ps"], **{f"node{number}": ["ps", "worker"] for number in (2, 3, 4)}}


def test_workers_in_step(jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-multi-worker" / "job.yaml")
    learned(trained, "worker/0")
    assert set(trained.states.values()) == {"succeeded"}
    assert said_by(trained.log, "worker/2").count("worker 2: 3 replicas, batches of 96") == 1


def test_workers_in_step_with_a_chief_and_an_evaluator(jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-multi-worker" / "job-chief.yaml")
    learned(trained, "chief/0")
    assert set(trained.states.values()) == {"succeeded"}
    assert re.search(r"loss.*accuracy", "\n".join(said_by(trained.log, "evaluator/0")))


def test_a_mirrored_worker_on_all_devices_of_its_host(jobs: Jobs) -> None:
    trained = train(jobs, EXAMPLES / "digits-mirrored" / "job.yaml")
    learned(trained, "worker/0")
    assert "2 replicas, batches of 64" in said_by(trained.log, "worker/0")


def program(jobs: Jobs, name: str, strategy: str, roles: str, words: str = "") -> Trained:
    """A program of tests/lab/programs, trained by a job file that was written for it."""
    text = f"strategy: {strategy}\nstack: tf2.15\nports: 2222-2224\ncommand: python {name}.py {words}\nroles: {roles}\n"
    file = jobs.file(name.replace("_", "-"), text)
    shutil.copy(HERE / "programs" / f"{name}.py", file.parent)
    return train(jobs, file)


@pytest.mark.parametrize(
    ("name", "words", "roles", "decider"),
    [
        ("localhost_cluster", "--job_name={role} --task_index={index}",
         "{ps: {hosts: 'gpu[0]'}, worker: {replicas: 2, hosts: 'gpu[0]'}}", "worker/0"),
        ("in_graph", _FLAGS, "{ps: 1, worker: 2}", "worker/0"),
        ("between_graph", f"{_FLAGS} --train_dir={{output}}",
         "{ps: {per_host: 1, hosts: 'gpu[0:1]'}, worker: 3}", "worker/0"),
        ("model_parallel", f"{_FLAGS} --chief_hosts={{chief_hosts}}", "{chief: 1, ps: 1, worker: 2}", "chief/0"),
    ],
)  # fmt: skip
def test_tensorflow_1_programs_written_for_no_launcher(
    name: str, words: str, roles: str, decider: str, jobs: Jobs
) -> None:
    trained = program(jobs, name, "tf1_ps", roles, words)
    assert trained.accuracy(decider) > 0.85
    assert trained.states[decider] == "succeeded"
    assert {state for task, state in trained.states.items() if task.startswith("ps")} == {"stopped"}
    if name == "model_parallel":
        told = "the first layer on /job:worker/task:0 and the second on /job:worker/task:1"
        assert told in said_by(trained.log, decider)


def test_a_coordinators_own_loop_over_variables_that_are_cut_in_parts(jobs: Jobs) -> None:
    trained = program(jobs, "coordinator_loop", "parameter_server", "{chief: 1, ps: 2, worker: 2}")
    assert trained.accuracy("chief/0") > 0.85
    assert ".index" in trained.files
    lies = re.findall(r"weights/part_(\d):0 (\(.*\)) on /job:ps/replica:0/task:(\d)/", trained.log)
    assert lies == [("0", "(32, 10)", "0"), ("1", "(32, 10)", "1")]


def test_a_groups_own_loop_over_files_of_each_worker(jobs: Jobs) -> None:
    trained = program(jobs, "multi_worker_loop", "multi_worker_mirrored", "{worker: 2}")
    assert set(trained.states.values()) == {"succeeded"}
    losses = [[line for line in said_by(trained.log, f"worker/{index}") if line[:4] == "loss"] for index in range(2)]
    assert losses[0] == losses[1] != [], "one model on both"
    assert trained.accuracy("worker/1") == trained.accuracy("worker/0") > 0.85


@pytest.mark.parametrize(
    ("example", "logs", "killed", "fallen"),
    [
        ("digits-multi-worker", "worker/0", "worker/1", ["worker/0", "worker/1", "worker/2"]),
        ("digits-ps", "chief/0", "ps/1", ["chief/0", "ps/1"]),
    ],
)
def test_who_falls_with_another_comes_back_and_goes_on_from_the_backup(
    example: str, logs: str, killed: str, fallen: list[str], jobs: Jobs, tmp_path: Path
) -> None:
    file = Path(shutil.copytree(EXAMPLES / example, tmp_path / example)) / "job.yaml"
    file.write_text(file.read_text().replace("--epochs 10", "--epochs 20"))
    begin(jobs, example)
    jobs.ok("start", file)

    def epochs() -> list[int]:
        return [int(number) for number in re.findall(r"Epoch (\d+)/20", jobs.ok("logs", logs, "--job", example))]

    wait_for(lambda: 2 in epochs(), 90)
    node = next(task["host"] for task in jobs.status(example)["tasks"] if f"{task['role']}/{task['index']}" == killed)
    jobs.lab.said(node, f"sudo systemctl kill -s KILL tfctl-{example}-{killed.replace('/', '-')}")
    done = jobs("wait", example, "--timeout", "2m", timeout=150)
    assert done.returncode == 0, done.stderr + jobs.ok("logs", "--job", example)[-3000:]
    restarted = [f"{task['role']}/{task['index']}" for task in jobs.status(example)["tasks"] if task["restarts"]]
    assert sorted(restarted) == fallen
    assert (epochs().count(1), epochs()[-1]) == (1, 20), "it began from nothing"
