"""TensorFlow on real nodes: every strategy's example learns, and so do programs written for no launcher at all.

Jobs run a few at a time, since they wait more than they compute; a test looks at how its own has ended.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from jobs import Jobs, said_by

pytestmark = pytest.mark.timeout(420)

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
PAGE = HERE.parents[1] / "docs/runtime.md"
IMAGES = """
import numpy
from sklearn.datasets import load_digits
images, labels = load_digits(return_X_y=True)
images = numpy.kron(images.reshape(-1, 8, 8) * 15.9, numpy.ones((3, 3)))
images = numpy.pad(images, ((0, 0), (2, 2), (2, 2))).astype("uint8")
numpy.savez("/srv/tfctl/mnist.npz", x_train=images, y_train=labels)
"""
AT_ONCE = 3
#: Of two starts at once that choose the same ports one is refused.
_starting = threading.Lock()
_FLAGS = "--job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"
_SERVED = "{replicas: 2, command: python -m tfctl_runtime}"
#: Of tests/lab/programs: strategy, words of the command, roles and what else its job file says. A name behind a colon
#: tells two jobs of one program apart.
PROGRAMS = {
    "localhost_cluster": (
        "tf1_ps", "--job_name={role} --task_index={index}",
        "{ps: {hosts: 'gpu[0]'}, worker: {replicas: 2, hosts: 'gpu[0]'}}", "ports: 2297-2299",
    ),
    "in_graph": ("tf1_ps", _FLAGS, "{ps: 1, worker: 2}", ""),
    "between_graph": (
        "tf1_ps", f"{_FLAGS} --train_dir={{output}}", "{ps: {per_host: 1, hosts: 'gpu[0:1]'}, worker: 3}", "",
    ),
    "model_parallel": ("tf1_ps", f"{_FLAGS} --chief_hosts={{chief_hosts}}", "{chief: 1, ps: 1, worker: 2}", ""),
    "replica": (
        "tf1_ps", f"{_FLAGS} --train_dir={{output}} --sync_replicas --train_steps 200", "{ps: 2, worker: 2}",
        "env: {GPU_FRACTION: '0.4', TF_FORCE_GPU_ALLOW_GROWTH: 'true'}",
    ),
    "coordinator_loop": ("parameter_server", "", "{chief: 1, ps: 2, worker: 2}", ""),
    "chief_alone": (
        "parameter_server", "{output}",
        f"{{chief: 1, ps: {_SERVED}, worker: {_SERVED}, "
        "evaluator: {replicas: 1, command: 'python chief_alone.py {output} --evaluate'}}", "",
    ),
    "runtime_page": ("parameter_server", "", "{chief: 1, ps: 1, worker: 2}", ""),
    "multi_worker_loop": ("multi_worker_mirrored", "", "{worker: 2}", ""),
    "shares": ("multi_worker_mirrored", "nccl", "{worker: 2}", ""),
    "train_and_save": ("multi_worker_mirrored", "", "{worker: 2}", ""),
    "estimator_shares": ("multi_worker_mirrored", "", "{chief: 1, worker: 1, evaluator: 1}", ""),
    "estimator_shares:ps": ("estimator", "", "{chief: 1, ps: 1, worker: 1, evaluator: 1}", ""),
    "canned_estimator": ("estimator", "--model_dir={output}", "{chief: 1, ps: 1, worker: 1, evaluator: 1}", ""),
}  # fmt: skip


@dataclass
class Trained:
    """A job that has ended well: what it printed, how its tasks ended, and what lies in its output."""

    name: str
    log: str
    states: dict[str, str]
    files: str

    def accuracy(self, task: str) -> float:
        """The last one that the task printed."""
        return float(re.findall(r"test[ -]accuracy:? ([01]\.\d+)", "\n".join(said_by(self.log, task)).lower())[-1])

    def learned(self, decider: str) -> None:
        """The decider says so, and checkpoints and summaries are in the shared output."""
        assert self.accuracy(decider) > 0.85
        assert "events.out.tfevents" in self.files
        assert ".index" in self.files

    def one_wrote(self, checkpoint: str) -> None:
        """Of ten epochs the output has a checkpoint each, and summaries, by one task alone."""
        names = [Path(file).name for file in self.files.splitlines()]
        wanted = sorted(checkpoint.format(epoch) for epoch in range(1, 11))
        assert sorted(name for name in names if ".index" in name) == wanted
        assert len([name for name in names if "tfevents" in name]) == 1
        assert "workertemp" not in self.files


def train(jobs: Jobs, name: str) -> Trained:
    """An example's job file, or a program with one that was written for it: from an empty output to the end."""
    file = EXAMPLES / name if "/" in name else job_file(jobs, name)
    job = begin(jobs, str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0]))
    with _starting:
        jobs.ok("start", file)
    done = jobs("wait", job, "--timeout", "5m", timeout=330)
    log = jobs("logs", "--job", job).stdout
    assert done.returncode == 0, done.stderr + log[-3000:]
    # The output is seen by a node that has the least to do with it.
    *_, last = jobs.lab.hosts()
    files = jobs.lab.said(last, f"sudo find /srv/tfctl/{job} -type f")
    return Trained(job, log, jobs.states(job), files)


def job_file(jobs: Jobs, program: str) -> Path:
    strategy, words, roles, more = PROGRAMS[program]
    script = program.partition(":")[0]
    text = f"strategy: {strategy}\nstack: tf2.15\ncommand: python {script}.py {words}\nroles: {roles}\n{more}\n"
    file = jobs.file(re.sub("[_:]", "-", program), text)
    (file.parent / f"{script}.py").write_text(source(jobs, script))
    return file


def source(jobs: Jobs, program: str) -> str:
    """The program's text; that of docs/runtime.md's page wants images of 28x28 pixels in a file."""
    if program != "runtime_page":
        return (HERE / "programs" / f"{program}.py").read_text()
    python = "sudo -u tfctl /opt/tfctl/stacks/tf2.15/bin/python -c"
    jobs.lab.said("node1", f"{python} {shlex.quote(IMAGES)}")
    return re.findall(r"```python\n(# after.*?)```", PAGE.read_text(), re.DOTALL)[0]


def begin(jobs: Jobs, name: str) -> str:
    jobs.names.append(name)
    jobs.lab.said("node1", f"sudo rm -rf /srv/tfctl/{name}")
    return name


@pytest.fixture(scope="module")
def running(module_jobs: Jobs, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Trained]]]:
    """What the tests of this run want trained."""
    asked = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = dict.fromkeys(spec.params["trained"] for spec in asked if spec and "trained" in spec.params)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(train, module_jobs, name) for name in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def trained(running: dict[str, Future[Trained]], request: pytest.FixtureRequest) -> Trained:
    return running[request.param].result(timeout=400)


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("trained", names, indirect=True)


# Examples


@of("digits-tf1-ps/job.yaml", "digits-tf1-ps/job-sync.yaml", "digits-tf1-ps/job-flags.yaml")
def test_a_tensorflow_1_cluster(trained: Trained) -> None:
    trained.learned("worker/0")
    assert {trained.states[f"ps/{index}"] for index in range(2)} == {"stopped"}
    workers = [task for task in trained.states if task.startswith("worker")]
    assert {trained.states[task] for task in workers} == {"succeeded"}
    for task in workers:
        assert re.search(r"local step \d+, global step \d+", "\n".join(said_by(trained.log, task))), task
    assert set(re.findall(r"\.data-0000(\d)-of-00002", trained.files)) == {"0", "1"}, "each ps writes its own part"


@of("digits-estimator/job.yaml")
def test_an_estimator_whose_evaluator_sees_the_last_checkpoint(trained: Trained) -> None:
    trained.learned("chief/0")
    assert trained.accuracy("evaluator/0") == trained.accuracy("chief/0")
    assert trained.states == {
        "chief/0": "succeeded", "ps/0": "stopped", "ps/1": "stopped",
        "worker/0": "succeeded", "worker/1": "succeeded", "evaluator/0": "succeeded",
    }  # fmt: skip


@of("digits-estimator/job-colocated.yaml")
def test_an_estimator_with_a_ps_and_a_worker_on_every_host_the_first_being_master(trained: Trained, jobs: Jobs) -> None:
    trained.learned("master/0")
    places: dict[str, list[str]] = {}
    for task in jobs.status(trained.name)["tasks"]:
        places.setdefault(task["host"], []).append(task["role"])
    assert places == {"node1": ["master", "ps"], **{f"node{number}": ["ps", "worker"] for number in (2, 3, 4)}}


@of("digits-multi-worker/job.yaml")
def test_workers_in_step(trained: Trained) -> None:
    trained.learned("worker/0")
    trained.one_wrote("ckpt-{}.index")
    assert set(trained.states.values()) == {"succeeded"}
    assert said_by(trained.log, "worker/2").count("worker 2: 3 replicas, batches of 96") == 1


@of("digits-multi-worker/job-chief.yaml")
def test_workers_in_step_with_a_chief_and_an_evaluator(trained: Trained) -> None:
    trained.learned("chief/0")
    trained.one_wrote("ckpt-{}.index")
    assert set(trained.states.values()) == {"succeeded"}
    assert re.search(r"loss.*accuracy", "\n".join(said_by(trained.log, "evaluator/0")))


@of("digits-mirrored/job.yaml")
def test_a_mirrored_worker_on_all_devices_of_its_host(trained: Trained) -> None:
    trained.learned("worker/0")
    assert "2 replicas, batches of 64" in said_by(trained.log, "worker/0")


@of("digits-custom/job.yaml")
def test_roles_of_ones_own(trained: Trained) -> None:
    assert trained.states["chief/0"] == "succeeded"
    rates = [found for found in (0.1, 0.01, 0.001) if f"rate-{found}.json" in trained.files]
    assert len(rates) == 3
    assert re.search(r"best of 3: rate 0\.0?1, test accuracy 0\.9", trained.log)


@of("digits-runtime/mirrored.yaml", "digits-runtime/multi-worker-mirrored.yaml", "digits-runtime/parameter-server.yaml")
def test_one_script_for_every_strategy(trained: Trained) -> None:
    served = "ps/0" in trained.states
    trained.learned("chief/0" if served else "worker/0")
    assert set(trained.states.values()) == ({"succeeded", "stopped"} if served else {"succeeded"})
    trained.one_wrote("ckpt-{:04}.index")


# Programs written for no launcher


@of("localhost_cluster", "in_graph", "between_graph", "model_parallel", "replica")
def test_tensorflow_1_programs(trained: Trained) -> None:
    decider = "chief/0" if "chief/0" in trained.states else "worker/0"
    assert trained.accuracy(decider) > 0.85
    assert trained.states[decider] == "succeeded"
    assert {state for task, state in trained.states.items() if task.startswith("ps")} == {"stopped"}
    said = said_by(trained.log, decider)
    if trained.name == "model-parallel":
        assert "the first layer on /job:worker/task:0 and the second on /job:worker/task:1" in said
    if trained.name == "replica":
        assert "GPU memory: 0.4, growing True" in said
        parts = {line for line in said if line.startswith("hid_w/part_")}
        assert parts == {f"hid_w/part_{part}:0 /job:ps/task:{1 - part}/device:CPU:0" for part in range(2)}


@of("coordinator_loop")
def test_a_coordinators_own_loop_over_variables_that_are_cut_in_parts(trained: Trained) -> None:
    assert trained.accuracy("chief/0") > 0.85
    assert ".index" in trained.files
    lies = re.findall(r"weights/part_(\d):0 (\(.*\)) on /job:ps/replica:0/task:(\d)/", trained.log)
    assert lies == [("0", "(32, 10)", "0"), ("1", "(32, 10)", "1")]


@of("chief_alone")
def test_a_script_that_runs_on_the_chief_alone_beside_a_sidecar_evaluator(trained: Trained) -> None:
    assert trained.states == {
        "chief/0": "succeeded", "evaluator/0": "succeeded",
        **{f"{role}/{index}": "stopped" for role in ("ps", "worker") for index in range(2)},
    }  # fmt: skip
    scores = re.findall(r"accuracy: (\d\.\d+)", "\n".join(said_by(trained.log, "evaluator/0")))
    assert float(scores[-1]) > 0.85
    lies = re.findall(r"kernel/part_(\d):0 (\(.*\)) on /job:ps/replica:0/task:(\d)/", trained.log)
    assert [part[:2] for part in lies] == [("0", "(32, 64)"), ("1", "(32, 64)")]
    assert {part[2] for part in lies} == {"0", "1"}, "each on a ps of its own"


@of("runtime_page")
def test_the_script_that_the_page_of_the_runtime_shows(trained: Trained) -> None:
    assert trained.states["chief/0"] == "succeeded"
    losses = re.findall(r"loss: (\d+\.\d+) - accuracy: (\d\.\d+)", trained.log)
    assert float(losses[-1][1]) > 0.85
    assert trained.files.count("ckpt-0005.index") == 1


@of("multi_worker_loop")
def test_a_groups_own_loop_over_files_of_each_worker(trained: Trained) -> None:
    assert set(trained.states.values()) == {"succeeded"}
    losses = [[line for line in said_by(trained.log, f"worker/{index}") if line[:4] == "loss"] for index in range(2)]
    assert losses[0] == losses[1] != [], "one model on both"
    assert trained.accuracy("worker/1") == trained.accuracy("worker/0") > 0.85


@of("shares")
def test_a_group_has_files_or_shares_or_everything_with_an_end_or_without(trained: Trained) -> None:
    """NCCL where there is no GPU is TensorFlow's to say."""
    said = [said_by(trained.log, f"worker/{index}") for index in range(2)]
    for lines in said:
        assert "nccl: 2 replicas, batches of 64" in lines
        assert [line for line in lines if "Enabled NCCL communication but no GPUs detected" in line]
    steps = [[line for line in lines if " 21 steps, loss " in line] for lines in said]
    assert [line.partition(":")[0] for line in steps[0]] == ["file", "data", "off"]
    assert steps[0] == steps[1], "one model on both"
    warned = [line for line in said[0] if "shard(): 1 files for 2 workers" in line]
    assert (len(warned), [line for line in said[1] if "shard():" in line]) == (1, [])
    assert trained.accuracy("worker/1") > 0.85


@of("train_and_save")
def test_a_group_of_which_each_saves_and_one_is_kept(trained: Trained) -> None:
    assert set(trained.states.values()) == {"succeeded"}
    assert trained.accuracy("worker/0") > 0.85


@of("estimator_shares", "estimator_shares:ps")
def test_an_estimators_workers_are_told_their_share_by_context(trained: Trained) -> None:
    """In step, and on a parameter server."""
    ends = {task: "stopped" if task == "ps/0" else "succeeded" for task in trained.states}
    assert trained.states == ends
    assert trained.accuracy("evaluator/0") > 0.85
    assert "share 0 of 2" in said_by(trained.log, "chief/0")
    assert "share 1 of 2" in said_by(trained.log, "worker/0")


@of("canned_estimator")
def test_a_canned_estimator(trained: Trained) -> None:
    states = {task: state for task, state in trained.states.items() if state != "succeeded"}
    assert states == {"ps/0": "stopped"}
    assert trained.accuracy("evaluator/0") > 0.85


def test_nothing_of_what_has_ended_is_left(running: dict[str, Future[Trained]], module_jobs: Jobs) -> None:
    """The units of tasks that ended by themselves stay, to be looked at."""
    for each in running.values():
        each.result(timeout=400)
    left = [line for lines in module_jobs.traces().values() for line in lines if not line.startswith("tfctl-")]
    assert left == []
