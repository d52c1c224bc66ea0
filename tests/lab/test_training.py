"""TensorFlow on real nodes: the example of every strategy learns, and so do programs that know nothing of tfctl.

A few jobs run at the same time, since they wait more than they compute. Each test checks how its own job has ended.
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

from tests.lab.jobs import Jobs, lines_of_task

pytestmark = [pytest.mark.alone, pytest.mark.timeout(420)]

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
#: When two starts choose the same ports at the same time, one of them is refused.
_starting = threading.Lock()
_FLAGS = "--job_name={role} --task_index={index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"
_SERVED = "{replicas: 2, command: python -m tfctl_runtime}"
#: For each program in tests/lab/programs: strategy, arguments, roles and further lines of its job file. The part of a
#: name after a colon distinguishes two jobs of one program.
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
    """A job that has succeeded: its log, the states of its tasks, and the files in its output directory."""

    name: str
    log: str
    states: dict[str, str]
    files: str

    def accuracy(self, task: str) -> float:
        """Return the last test accuracy that the task printed."""
        return float(
            re.findall(r"test[ -]accuracy:? ([01]\.\d+)", "\n".join(lines_of_task(self.log, task)).lower())[-1]
        )

    def assert_learned(self, decider: str) -> None:
        """Assert that the decider reports a good accuracy, and that the output has checkpoints and summaries."""
        assert self.accuracy(decider) > 0.85
        assert "events.out.tfevents" in self.files
        assert ".index" in self.files or ".weights.h5" in self.files

    def assert_one_task_wrote(self, checkpoint: str) -> None:
        """Assert that one task alone wrote a checkpoint for each of ten epochs, and summaries."""
        names = [Path(file).name for file in self.files.splitlines()]
        wanted = sorted(checkpoint.format(epoch) for epoch in range(1, 11))
        assert sorted(name for name in names if ".index" in name) == wanted
        assert len([name for name in names if "tfevents" in name]) == 1
        assert "workertemp" not in self.files


def train(jobs: Jobs, name: str) -> Trained:
    """Run an example, or a program of tests/lab/programs, from an empty output directory to its end."""
    file = EXAMPLES / name if "/" in name else job_file(jobs, name)
    job = begin(jobs, str(re.findall(r"^name: (\S+)", file.read_text(), re.MULTILINE)[0]))
    with _starting:
        jobs.ok("start", file)
    done = jobs("wait", job, "--timeout", "5m", timeout=330)
    log = jobs("logs", "--job", job).stdout
    assert done.returncode == 0, done.stderr + log[-3000:]
    # List the output directory on the node that runs the fewest tasks.
    *_, last = jobs.lab.hosts()
    files = jobs.lab.shell(last, f"sudo find /srv/tfctl/{job} -type f")
    return Trained(job, log, jobs.states(job), files)


def job_file(jobs: Jobs, program: str) -> Path:
    strategy, words, roles, more = PROGRAMS[program]
    script = program.partition(":")[0]
    text = f"strategy: {strategy}\nstack: tf2.15\ncommand: python {script}.py {words}\nroles: {roles}\n{more}\n"
    file = jobs.file(re.sub("[_:]", "-", program), text)
    (file.parent / f"{script}.py").write_text(source(jobs, script))
    return file


def source(jobs: Jobs, program: str) -> str:
    """Return the source of a program. The one in docs/runtime.md reads images of 28x28 pixels from a file."""
    if program != "runtime_page":
        return (HERE / "programs" / f"{program}.py").read_text()
    python = "sudo -u tfctl /opt/tfctl/stacks/tf2.15/bin/python -c"
    jobs.lab.shell("node1", f"{python} {shlex.quote(IMAGES)}")
    found = re.search(r"```python\n(# after.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found[1]


def begin(jobs: Jobs, name: str) -> str:
    jobs.names.append(name)
    jobs.lab.shell("node1", f"sudo rm -rf /srv/tfctl/{name}")
    return name


@pytest.fixture(scope="module")
def running(module_jobs: Jobs, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Trained]]]:
    """The jobs that the selected tests need, by name."""
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
def test_tensorflow_1_example_learns_with_parameter_servers(trained: Trained) -> None:
    trained.assert_learned("worker/0")
    assert {trained.states[f"ps/{index}"] for index in range(2)} == {"stopped"}
    workers = [task for task in trained.states if task.startswith("worker")]
    assert {trained.states[task] for task in workers} == {"succeeded"}
    for task in workers:
        assert re.search(r"local step \d+, global step \d+", "\n".join(lines_of_task(trained.log, task))), task
    assert set(re.findall(r"\.data-0000(\d)-of-00002", trained.files)) == {"0", "1"}, "each ps writes its own part"


@of("digits-estimator/job.yaml")
def test_estimator_example_evaluates_the_last_checkpoint(trained: Trained) -> None:
    trained.assert_learned("chief/0")
    assert trained.accuracy("evaluator/0") == trained.accuracy("chief/0")
    assert trained.states == {
        "chief/0": "succeeded", "ps/0": "stopped", "ps/1": "stopped",
        "worker/0": "succeeded", "worker/1": "succeeded", "evaluator/0": "succeeded",
    }  # fmt: skip


@of("digits-estimator/job-colocated.yaml")
def test_colocated_estimator_example_runs_ps_and_worker_on_every_host(trained: Trained, jobs: Jobs) -> None:
    trained.assert_learned("master/0")
    places: dict[str, list[str]] = {}
    for task in jobs.status(trained.name)["tasks"]:
        places.setdefault(task["host"], []).append(task["role"])
    assert places == {"node1": ["master", "ps"], **{f"node{number}": ["ps", "worker"] for number in (2, 3, 4)}}


@of("digits-multi-worker/job.yaml")
def test_multi_worker_example_learns_and_one_worker_writes(trained: Trained) -> None:
    trained.assert_learned("worker/0")
    trained.assert_one_task_wrote("ckpt-{}.index")
    assert set(trained.states.values()) == {"succeeded"}
    assert lines_of_task(trained.log, "worker/2").count("worker 2: 3 replicas, batches of 96") == 1


@of("digits-multi-worker/job-chief.yaml")
def test_multi_worker_example_learns_with_a_chief_and_an_evaluator(trained: Trained) -> None:
    trained.assert_learned("chief/0")
    trained.assert_one_task_wrote("ckpt-{}.index")
    assert set(trained.states.values()) == {"succeeded"}
    assert re.search(r"loss.*accuracy", "\n".join(lines_of_task(trained.log, "evaluator/0")))


@of("digits-mirrored/job.yaml")
def test_mirrored_example_uses_all_devices_of_its_host(trained: Trained) -> None:
    trained.assert_learned("worker/0")
    assert "2 replicas, batches of 64" in lines_of_task(trained.log, "worker/0")


@of("digits-custom/job.yaml")
def test_custom_example_runs_roles_of_the_users_own(trained: Trained) -> None:
    assert trained.states["chief/0"] == "succeeded"
    rates = [found for found in (0.1, 0.01, 0.001) if f"rate-{found}.json" in trained.files]
    assert len(rates) == 3
    assert re.search(r"best of 3: rate 0\.0?1, test accuracy 0\.9", trained.log)


@of("digits-runtime/mirrored.yaml", "digits-runtime/multi-worker-mirrored.yaml", "digits-runtime/parameter-server.yaml")
def test_runtime_example_learns_with_every_strategy(trained: Trained) -> None:
    served = "ps/0" in trained.states
    trained.assert_learned("chief/0" if served else "worker/0")
    assert set(trained.states.values()) == ({"succeeded", "stopped"} if served else {"succeeded"})
    trained.assert_one_task_wrote("ckpt-{:04}.index")


# Programs written for no launcher


@of("localhost_cluster", "in_graph", "between_graph", "model_parallel", "replica")
def test_third_party_tensorflow_1_programs_learn(trained: Trained) -> None:
    decider = "chief/0" if "chief/0" in trained.states else "worker/0"
    assert trained.accuracy(decider) > 0.85
    assert trained.states[decider] == "succeeded"
    assert {state for task, state in trained.states.items() if task.startswith("ps")} == {"stopped"}
    lines = lines_of_task(trained.log, decider)
    if trained.name == "model-parallel":
        assert "the first layer on /job:worker/task:0 and the second on /job:worker/task:1" in lines
    if trained.name == "replica":
        assert "GPU memory: 0.4, growing True" in lines
        parts = {line for line in lines if line.startswith("hid_w/part_")}
        assert parts == {f"hid_w/part_{part}:0 /job:ps/task:{1 - part}/device:CPU:0" for part in range(2)}


@of("coordinator_loop")
def test_coordinator_loop_learns_with_partitioned_variables(trained: Trained) -> None:
    assert trained.accuracy("chief/0") > 0.85
    assert ".index" in trained.files
    lies = re.findall(r"weights/part_(\d):0 (\(.*\)) on /job:ps/replica:0/task:(\d)/", trained.log)
    assert lies == [("0", "(32, 10)", "0"), ("1", "(32, 10)", "1")]


@of("chief_alone")
def test_script_on_the_chief_alone_learns_beside_an_evaluator(trained: Trained) -> None:
    assert trained.states == {
        "chief/0": "succeeded", "evaluator/0": "succeeded",
        **{f"{role}/{index}": "stopped" for role in ("ps", "worker") for index in range(2)},
    }  # fmt: skip
    scores = re.findall(r"accuracy: (\d\.\d+)", "\n".join(lines_of_task(trained.log, "evaluator/0")))
    assert float(scores[-1]) > 0.85
    lies = re.findall(r"kernel/part_(\d):0 (\(.*\)) on /job:ps/replica:0/task:(\d)/", trained.log)
    assert [part[:2] for part in lies] == [("0", "(32, 64)"), ("1", "(32, 64)")]
    assert {part[2] for part in lies} == {"0", "1"}, "each on a ps of its own"


@of("runtime_page")
def test_script_in_the_runtime_page_learns(trained: Trained) -> None:
    assert trained.states["chief/0"] == "succeeded"
    losses = re.findall(r"loss: (\d+\.\d+) - accuracy: (\d\.\d+)", trained.log)
    assert float(losses[-1][1]) > 0.85
    assert trained.files.count("ckpt-0005.index") == 1


@of("multi_worker_loop")
def test_custom_worker_loop_learns_with_files_of_each_worker(trained: Trained) -> None:
    assert set(trained.states.values()) == {"succeeded"}
    losses = [
        [line for line in lines_of_task(trained.log, f"worker/{index}") if line[:4] == "loss"] for index in range(2)
    ]
    assert losses[0] == losses[1] != [], "one model on both"
    assert trained.accuracy("worker/1") == trained.accuracy("worker/0") > 0.85


@of("shares")
def test_shard_divides_data_by_file_by_element_or_not_at_all(trained: Trained) -> None:
    """TensorFlow itself warns when NCCL is requested without a GPU."""
    logs = [lines_of_task(trained.log, f"worker/{index}") for index in range(2)]
    for lines in logs:
        assert "nccl: 2 replicas, batches of 64" in lines
        assert [line for line in lines if "Enabled NCCL communication but no GPUs detected" in line]
    steps = [[line for line in lines if " 21 steps, loss " in line] for lines in logs]
    assert [line.partition(":")[0] for line in steps[0]] == ["file", "data", "off"]
    assert steps[0] == steps[1], "one model on both"
    warned = [line for line in logs[0] if "shard(): 1 files for 2 workers" in line]
    assert (len(warned), [line for line in logs[1] if "shard():" in line]) == (1, [])
    assert trained.accuracy("worker/1") > 0.85


@of("train_and_save")
def test_workers_all_save_and_the_model_of_the_chief_is_kept(trained: Trained) -> None:
    assert set(trained.states.values()) == {"succeeded"}
    assert trained.accuracy("worker/0") > 0.85


@of("estimator_shares", "estimator_shares:ps")
def test_estimator_workers_read_their_share_from_the_input_context(trained: Trained) -> None:
    """The program runs with MultiWorkerMirroredStrategy and with a parameter server."""
    ends = {task: "stopped" if task == "ps/0" else "succeeded" for task in trained.states}
    assert trained.states == ends, trained.log
    assert trained.accuracy("evaluator/0") > 0.85
    assert "share 0 of 2" in lines_of_task(trained.log, "chief/0")
    assert "share 1 of 2" in lines_of_task(trained.log, "worker/0")


@of("canned_estimator")
def test_canned_estimator_learns(trained: Trained) -> None:
    states = {task: state for task, state in trained.states.items() if state != "succeeded"}
    assert states == {"ps/0": "stopped"}
    assert trained.accuracy("evaluator/0") > 0.85


def test_trained_jobs_leave_no_process_and_no_port(running: dict[str, Future[Trained]], module_jobs: Jobs) -> None:
    """Only the units of tasks that ended by themselves stay, for inspection."""
    for each in running.values():
        each.result(timeout=400)
    left = [line for lines in module_jobs.traces().values() for line in lines if not line.startswith("tfctl-")]
    assert left == []
