"""A job may not set the variables by which tfctl places its tasks, wherever it would do so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.model.four_hosts import INVENTORY, MakeJob
from tfctl.errors import BadFile
from tfctl.model import env
from tfctl.model.layout import lay_out
from tfctl.model.load import load
from tfctl.model.variables import ExternalVariables

HEAD = "name: j\ncommand: run\n"
HOROVOD = [
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
]  # fmt: skip
TWO = "roles: {worker: 2}\n"


def refused(folder: Path, text: str, given: dict[str, str] | None = None) -> tuple[str, str]:
    (folder / "job.yaml").write_text(HEAD + text)
    with pytest.raises(BadFile) as caught:
        lay_out(load(folder / "job.yaml"), INVENTORY, "job.yaml", outside=ExternalVariables(given or {}, given or {}))
    return caught.value.message, caught.value.remedy


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("env: {NAME: '0'}\nroles: {worker: {per_host: 4, gpus: 1}}", "env"),
        ("roles: {worker: {per_host: 4, gpus: 1, env: {NAME: '{index}'}}}", "roles/worker/env"),
        ("env_file: own.env\nroles: {worker: 1}", "env_file"),
        ("env: [NAME]\nroles: {worker: 1}", "-e"),
    ],
)
def test_devices_are_refused_with_the_place_that_sets_them(text: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("CUDA_VISIBLE_DEVICES=0,1\n")
    text = "strategy: custom\n" + text.replace("NAME", "CUDA_VISIBLE_DEVICES")
    given = {"CUDA_VISIBLE_DEVICES": "0"} if place == "-e" else {}
    message, remedy = refused(tmp_path, text, given)
    assert message == f"job.yaml: {place}: CUDA_VISIBLE_DEVICES is set by tfctl for each task"
    assert remedy == "remove it, and set `gpus` of the role"


@pytest.mark.parametrize("value", ["-1", ""])
def test_devices_may_be_hidden_from_roles_without_gpus_only(value: str, tmp_path: Path, make_job: MakeJob) -> None:
    own = f"strategy: parameter_server\nenv: {{CUDA_VISIBLE_DEVICES: '{value}'}}\n"
    for gpus in ("", ", gpus: 0"):
        job = make_job(HEAD + f"{own}roles: {{chief: 1, ps: 1, worker: {{replicas: 1{gpus}}}}}")
        assert {env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks} == {value}
    message, remedy = refused(tmp_path, f"{own}roles: {{chief: 1, ps: 1, worker: {{gpus: 2}}}}")
    assert message == "job.yaml: env: CUDA_VISIBLE_DEVICES hides the GPUs that `gpus: 2` requests for worker"
    assert remedy == "remove it, or set `gpus: 0`"


@pytest.mark.parametrize("launcher", ["gloo", "mpi"])
@pytest.mark.parametrize("name", HOROVOD)
def test_what_places_a_rank_is_refused_under_horovod_alone(
    name: str, launcher: str, tmp_path: Path, make_job: MakeJob
) -> None:
    own = f"env: {{{name}: '1'}}\n{TWO}"
    message, remedy = refused(tmp_path, f"strategy: horovod\nlauncher: {launcher}\n{own}")
    assert (message, remedy) == (f"job.yaml: env: {name} is set by tfctl for each task", "remove it")
    job = make_job(f"{HEAD}strategy: custom\n{own}")
    assert env.environment(job, job.tasks[0])[name] == "1"


@pytest.mark.parametrize(
    "name", ["HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_TIMELINE", "NCCL_DEBUG"]
)
def test_what_tunes_a_rank_may_be_set(name: str, make_job: MakeJob) -> None:
    job = make_job(f"{HEAD}strategy: horovod\nenv: {{{name}: '7'}}\n{TWO}")
    assert env.environment(job, job.tasks[0])[name] == "7"


@pytest.mark.parametrize("strategy", ["custom", "horovod", "mirrored"])
def test_tf_config_is_refused_in_a_file_of_variables(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "own.env").write_text("A=1\nTF_CONFIG={}\n")
    message, _ = refused(tmp_path, f"strategy: {strategy}\nenv_file: own.env\nroles: {{worker: 1}}")
    assert message.endswith("own.env, line 2: TF_CONFIG is set by tfctl itself; remove it")
