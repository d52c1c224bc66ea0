"""What a task is told here, beside what a node would tell it; and what this machine has."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.local import machine
from tfctl.local.environment import environment
from tfctl.local.place import lay_out_here, place
from tfctl.local.runtimes import Runtime
from tfctl.model import env, load, stacks
from tfctl.model.job import Job

NONE = {"CUDA_VISIBLE_DEVICES": ""}
HERE = Runtime()
USER = {"HOME": "/home/me", "PATH": "/venv/bin:/bin", "http_proxy": "http://p", "TF_CONFIG": "{}", "TFCTL_JOB": "outer"}


def job_file(folder: Path, text: str) -> Path:
    (folder / "job.yaml").write_text("name: digits\n" + text)
    return folder / "job.yaml"


@contextmanager
def placed(file: Path, environ: Mapping[str, str], runtime: Runtime = HERE) -> Iterator[Job]:
    """Yield the job of a file on this machine, with this runtime for all roles."""
    job = load.load(file)
    runtimes = dict.fromkeys(job.roles, runtime)
    layout = lay_out_here(job, file, file.with_name("out"), environ, runtimes)
    with place(layout, environ, file.with_name("ports"), runtimes) as here:
        yield here


def test_a_local_task_has_the_users_environment_plus_the_jobs(tmp_path: Path) -> None:
    text = (
        "strategy: parameter_server\nstack: tf2.15\ncommand: run\nenv: {BATCH: 64, HOSTS: '{ps_hosts}'}\n"
        "roles: {chief: 1, ps: 2, worker: {replicas: 2, hosts: 'gpu[0]', gpus: 1, stack: tf1.15}}\n"
    )
    file = job_file(tmp_path, text)
    with placed(file, NONE) as job:
        for task in job.tasks:
            planned = env.environment(job, task)
            told = environment(job, task, USER, Path("/library"), HERE)
            assert {name for name in planned if told.get(name) != planned[name]} == {"PATH"}
            extra = {name: value for name, value in told.items() if name not in planned or name == "PATH"}
            assert extra == {"HOME": "/home/me", "PATH": "/venv/bin:/bin", "PYTHONPATH": "/library"}
            assert told["TFCTL_OUTPUT"] == str(tmp_path / "out")


def test_the_job_files_path_and_pythonpath_are_kept(tmp_path: Path) -> None:
    file = job_file(
        tmp_path, "strategy: custom\ncommand: run\nroles: {worker: 1}\nenv: {PATH: /mine, PYTHONPATH: lib}\n"
    )
    with placed(file, NONE) as job:
        told = environment(job, job.tasks[0], USER, Path("/library"), HERE)
    assert (told["PATH"], told["PYTHONPATH"]) == ("/mine", "/library:lib")


@pytest.mark.parametrize(
    ("gpus", "workers"),
    [
        (("GPU-a", "GPU-b"), ["GPU-a", "GPU-b"]),
        (("GPU-a", "GPU-b", "GPU-c"), ["GPU-a", "GPU-b"]),
        (("GPU-a",), ["-1", "-1"]),
        ((), ["", ""]),
        (("3", "1"), ["3", "1"]),
    ],
)
def test_gpus_are_disjoint_and_a_job_runs_with_too_few(
    tmp_path: Path, gpus: tuple[str, ...], workers: list[str]
) -> None:
    file = job_file(
        tmp_path, "strategy: parameter_server\ncommand: run\nroles: {chief: 1, ps: 1, worker: {replicas: 2, gpus: 1}}\n"
    )
    with placed(file, {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}) as job:
        told = {str(task): environment(job, task, {}, Path("/library"), HERE) for task in job.tasks}
    assert [told[f"worker/{index}"].get("CUDA_VISIBLE_DEVICES", "") for index in (0, 1)] == workers
    assert told["ps/0"]["CUDA_VISIBLE_DEVICES"] == "-1"
    # The user's own numbers count in the user's own order.
    assert ("CUDA_DEVICE_ORDER" in told["worker/0"]) == (workers[0].startswith("GPU"))


@pytest.mark.parametrize(
    ("own", "seen"),
    [("0,2", ("0", "2")), ("GPU-1a-2b, MIG-3", ("GPU-1a-2b", "MIG-3")), ("1,-1,2", ("1",)), ("", ()), ("none", ())],
)
def test_the_users_cuda_visible_devices_is_kept(own: str, seen: tuple[str, ...]) -> None:
    assert machine.visible_gpus({"CUDA_VISIBLE_DEVICES": own}) == seen


def program(folder: Path, name: str, text: str) -> dict[str, str]:
    """Return an environment with this program, a shell script, on its PATH."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_gpus_are_read_from_nvidia_smi(tmp_path: Path) -> None:
    """A GPU with MIG instances is represented by these."""
    listed = """cat <<'.'
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736)
  MIG 3g.20gb     Device  1: (UUID: MIG-a28ad590)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-d37e37ac)
."""
    found = machine.visible_gpus(program(tmp_path, "nvidia-smi", listed))
    assert found == ("MIG-c7384736", "MIG-a28ad590", "GPU-d37e37ac")
    assert machine.visible_gpus(program(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")) == ()
    assert machine.visible_gpus({"PATH": str(tmp_path / "nowhere")}) == ()


#: Driver and compute capability as nvidia-smi shows them, the edition of tf2.20, and why there is no other one.
@pytest.mark.parametrize(
    ("shown", "edition", "why"),
    [
        ("9.0, 570.86.10", "gpu", ""),
        ("9.0, 550.54.15", "cpu", "tf2.20 needs NVIDIA's driver 555 or newer, and this machine has 550.54.15"),
        ("8.0, 535.104.05\n3.5, 535.104.05", "gpu", ""),
        ("3.5, 470.82.01", "cpu", "tf2.20 uses GPUs of compute capability 6.0 to 9.0, and this machine's have 3.5"),
        ("12.0, 580.1", "cpu", "tf2.20 uses GPUs of compute capability 6.0 to 9.0, and this machine's have 12.0"),
        ("8.0, 470.82.01", "cpu", "tf2.20 needs NVIDIA's driver 525.60.13 or newer, and this machine has 470.82.01"),
        ("", "cpu", "tf2.20 uses GPUs of compute capability 6.0 to 9.0, and this machine's have unknown"),
    ],
)
def test_the_edition_is_for_gpus_where_the_stack_can_use_them(
    shown: str, edition: str, why: str, tmp_path: Path
) -> None:
    text = f"[ $1 = -L ] && echo 'GPU 0: A (UUID: GPU-5c89852c)' || printf '{shown}'"
    environ = program(tmp_path, "nvidia-smi", text)
    assert machine.edition(stacks.get("tf2.20"), environ) == (edition, why)
    assert machine.edition(stacks.get("tf2.20"), {**environ, "CUDA_VISIBLE_DEVICES": ""}) == ("cpu", "")


def printed(packages: dict[str, str]) -> str:
    """Return what the active Python prints when it has these packages."""
    return json.dumps({"python": "3.11.2", "packages": packages})


@pytest.mark.parametrize(
    ("packages", "strategy", "switch", "said"),
    [
        ({"tensorflow": "2.21.0", "keras": "3.15.1", "tf_keras": "2.21.0"}, "multi_worker_mirrored", "1", "is set"),
        ({"tensorflow": "2.21.0", "keras": "3.15.1"}, "multi_worker_mirrored", None, "has only Keras 3"),
        ({"tensorflow_cpu": "2.15.1", "keras": "2.15.0"}, "multi_worker_mirrored", None, ""),
        ({"tensorflow": "2.21.0rc1", "keras": "3.15.1", "tf_keras": "2.21.0"}, "mirrored", None, ""),
        ({}, "multi_worker_mirrored", None, ""),
    ],
)
def test_the_active_python_serves_as_the_stack(
    tmp_path: Path, packages: dict[str, str], strategy: str, switch: str | None, said: str
) -> None:
    """Keras 2 is switched on where the strategy needs it and it is there."""
    file = job_file(tmp_path, f"strategy: {strategy}\nstack: tf2.15\ncommand: run\nroles: {{worker: 1}}\n")
    environ = program(tmp_path, "python", f"echo of sitecustomize; echo '{printed(packages)}'")
    with placed(file, environ, Runtime(machine.python_stack(environ))) as job:
        told = environment(job, job.tasks[0], environ, Path("/library"), HERE)
    assert told.get("TF_USE_LEGACY_KERAS") == switch
    assert [said in note for note in job.layout.notes] == ([True] if said else [])


def test_a_broken_package_does_not_hide_others(tmp_path: Path) -> None:
    for name, text in (("tensorflow-2.15.1", "Name: tensorflow\nVersion: 2.15.1\n"), ("~ip-24.0", "")):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(text)
    environ = program(tmp_path, "python", f'PYTHONPATH={tmp_path} exec {sys.executable} -S "$@"')
    found = machine.python_stack(environ)
    assert found and found.tensorflow == "2.15.1"


def test_estimator_is_refused_when_the_active_tensorflow_lacks_it(tmp_path: Path) -> None:
    file = job_file(tmp_path, "strategy: estimator\ncommand: run\nroles: {chief: 1}\n")
    environ = program(tmp_path, "python", f"echo '{printed({'tensorflow': '2.21.0'})}'")
    active = Runtime(machine.python_stack(environ))
    with pytest.raises(BadFile, match="stack python has TensorFlow 2"), placed(file, environ, active):
        pass


def test_a_port_in_use_is_skipped(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with machine.free_ports(1, (port, port), tmp_path / "ports") as found:
            assert found == ()
    with machine.free_ports(1, (port, port), tmp_path / "ports") as found:
        assert found == (port,)


def test_ports_are_found_without_a_cache_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with machine.free_ports(2, (20000, 29999), tmp_path / "cache/local-ports") as ports:
        assert len(ports) == 2
