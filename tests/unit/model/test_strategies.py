"""Each strategy: its roles, what its tasks are told of each other, who decides, what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.model.four_hosts import INVENTORY, MakeJob
from tfctl.errors import BadFile, Busy
from tfctl.model import env, load, plan, stacks, strategies
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.layout import lay_out
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import TaskEnvironment
from tfctl.model.task import Task
from tfctl.node import wire

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(ROOT.glob("examples/*/*.yaml"))


def smallest(strategy: str) -> str:
    """Return the roles of the smallest job of a strategy."""
    found = STRATEGIES[strategy]
    needed = {role: rule.minimum for role, rule in found.roles.items() if rule.minimum}
    roles = needed or {"any" if found.other else next(iter(found.roles)): 1}
    return f"{{{', '.join(f'{role}: {count}' for role, count in roles.items())}}}"


def text(strategy: str, roles: str, more: str = "") -> str:
    return f"name: j\nstrategy: {strategy}\ncommand: run\nroles: {roles}\n{more}\n"


def told(job: Job) -> dict[str, str | None]:
    """Return the TF_CONFIG of each task, byte for byte."""
    return {str(task): env.tf_config(job, task) for task in job.tasks}


def deciders(job: Job) -> list[str]:
    return [f"{role}/{index}" for role, index in job.layout.rules.deciders]


def config(cluster: dict[str, list[str]], role: str, index: int = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_the_smallest_job_of_a_strategy_is_laid_out(strategy: str, make_job: MakeJob) -> None:
    assert make_job(text(strategy, smallest(strategy))).layout.strategy is STRATEGIES[strategy]


def test_each_file_of_a_strategy_is_found_by_its_name() -> None:
    files = {path.stem for path in Path(strategies.__file__).parent.glob("*.py")} - {"__init__", "base"}
    assert set(STRATEGIES) == files


# What tasks are told


def test_every_tf1_task_sees_the_full_cluster(make_job: MakeJob) -> None:
    cluster = {
        "ps": ["10.0.0.1:2222", "10.0.0.2:2222"],
        "worker": ["10.0.0.1:2223", "10.0.0.2:2223", "10.0.0.3:2222"],
    }
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2)]
    assert told(make_job(text("tf1_ps", "{ps: 2, worker: 3}"))) == {
        f"{role}/{index}": config(cluster, role, index) for role, index in tasks
    }


def test_an_estimators_cluster_lacks_the_evaluator_for_every_task(make_job: MakeJob) -> None:
    """RunConfig raises for a cluster without a chief, in the evaluator too."""
    cluster = {"chief": ["10.0.0.1:2222"], "ps": ["10.0.0.1:2223"], "worker": ["10.0.0.1:2224"]}
    assert told(make_job(text("estimator", "{chief: 1, ps: 1, worker: 1, evaluator: 1}"))) == {
        f"{role}/0": config(cluster, role) for role in ("chief", "ps", "worker", "evaluator")
    }


def test_the_tf_config_of_a_master_has_the_cloud_environment(make_job: MakeJob) -> None:
    job = make_job(text("estimator", "{master: 1, ps: 1, worker: 1}", "environment: cloud"))
    assert told(job)["master/0"] == (
        '{"cluster": {"master": ["10.0.0.1:2222"], "ps": ["10.0.0.1:2223"], "worker": ["10.0.0.1:2224"]}, '
        '"task": {"type": "master", "index": 0}, "environment": "cloud"}'
    )


@pytest.mark.parametrize(
    ("strategy", "trainers"),
    [("multi_worker_mirrored", ["chief", "worker"]), ("parameter_server", ["chief", "ps", "worker"])],
)
def test_an_evaluator_and_the_trainers_do_not_see_each_other(
    strategy: str, trainers: list[str], make_job: MakeJob
) -> None:
    roles = ", ".join(f"{role}: 1" for role in trainers)
    ports = {role: [f"10.0.0.1:{2222 + number}"] for number, role in enumerate([*trainers, "evaluator"])}
    cluster = {role: ports[role] for role in trainers}
    assert told(make_job(text(strategy, f"{{{roles}, evaluator: 1}}"))) == {
        **{f"{role}/0": config(cluster, role) for role in trainers},
        "evaluator/0": config({"evaluator": ports["evaluator"]}, "evaluator"),
    }


def test_a_multi_worker_cluster_has_no_chief_unless_the_job_has_one(make_job: MakeJob) -> None:
    cluster = {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}
    assert told(make_job(text("multi_worker_mirrored", "{worker: 2}"))) == {
        f"worker/{index}": config(cluster, "worker", index) for index in range(2)
    }


def test_a_mirrored_task_has_no_tf_config_and_inherits_none(make_job: MakeJob) -> None:
    job = make_job(text("mirrored", "{worker: 1}"))
    (task,) = job.tasks
    assert told(job) == {"worker/0": None}
    assert "TF_CONFIG" not in env.environment(job, task)
    assert "TF_CONFIG" in env.unset(env.environment(job, task))


def test_gloo_ranks_get_the_variables_that_horovodrun_sets(make_job: MakeJob) -> None:
    """Two ranks on node1, two on node2, one on node3, which therefore has no local rank 1."""
    job = make_job(text("horovod", "{worker: {replicas: 5, hosts: 'node1:node2:node3'}}"))
    assert set(told(job).values()) == {None}
    found = [env.environment(job, task) for task in job.tasks]
    names = ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
    assert [[one[f"HOROVOD_{name}"] for name in names] for one in found] == [
        ["0", "0", "2", "0", "3", "10.0.0.1"],
        ["1", "0", "2", "1", "3", "10.0.0.2"],
        ["2", "0", "1", "2", "3", "10.0.0.3"],
        ["3", "1", "2", "0", "2", "10.0.0.1"],
        ["4", "1", "2", "1", "2", "10.0.0.2"],
    ]
    for one in found:
        assert (one["HOROVOD_SIZE"], one["HOROVOD_CONTROLLER"]) == ("5", "gloo")
        assert (one["HOROVOD_GLOO_RENDEZVOUS_ADDR"], one["HOROVOD_GLOO_RENDEZVOUS_PORT"]) == ("10.0.0.1", "2222")
        assert json.loads(one["TFCTL_RANKS"])[3] == "10.0.0.1:2223"


def test_a_rank_runs_below_a_wrapper_that_every_python_finds(make_job: MakeJob) -> None:
    job = make_job(text("horovod", "{worker: 1}"))
    assert env.unit_words(job, job.tasks[0]) == ("python3", "-m", "tfctl_runtime.horovod.gloo", "run")
    assert "PYTHONPATH" not in env.environment(job, job.tasks[0])
    own = make_job(text("horovod", "{worker: 1}", "stack: none\nenv: {PYTHONPATH: /opt/ours}"))
    assert env.environment(own, own.tasks[0])["PYTHONPATH"] == "/opt/ours:/usr/local/lib/tfctl/current/runtime"


def test_mpi_ranks_leave_their_numbers_to_mpirun(make_job: MakeJob) -> None:
    job = replace(make_job(text("horovod", "{worker: 2}", "launcher: mpi\npolicy: {grace: 10m}")), secret="5ec2e7")
    found = env.environment(job, job.tasks[1])
    assert env.unit_words(job, job.tasks[1])[:3] == ("python3", "-m", "tfctl_runtime.horovod.mpi")
    assert (found["HOROVOD_CONTROLLER"], found["TFCTL_SECRET"], found["TFCTL_GRACE_S"]) == ("mpi", "5ec2e7", "600")
    assert json.loads(found["TFCTL_RANKS"]) == ["10.0.0.1:2222", "10.0.0.2:2222"]
    assert "HOROVOD_RANK" not in found
    assert "5ec2e7" not in str(plan.record(job))


def test_ranks_on_one_host_see_all_gpus_of_the_job_there(make_job: MakeJob) -> None:
    """A script takes gpus[hvd.local_rank()]."""
    job = make_job(text("horovod", "{worker: {per_host: 2, gpus: 1, hosts: node1}}"), gpus=("GPU-a", "GPU-b", "GPU-c"))
    assert [task.gpus for task in job.tasks] == [("GPU-a",), ("GPU-b",)]
    assert {env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks} == {"GPU-a,GPU-b"}


def test_ranks_with_mig_instances_see_only_their_own(make_job: MakeJob) -> None:
    """If a rank saw several, CUDA would show it only the first."""
    job = make_job(text("horovod", "{worker: {per_host: 2, gpus: 1, hosts: node1}}"), gpus=("MIG-a", "MIG-b", "GPU-c"))
    assert [env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks] == ["MIG-a", "MIG-b"]


# What they find set


@pytest.mark.parametrize(
    ("strategy", "roles", "fails_fast", "keeps_alive"),
    [
        ("tf1_ps", "{ps: 1, worker: 1}", True, True),
        ("estimator", "{chief: 1, ps: 1}", True, True),
        ("estimator", "{chief: 1}", False, False),
        ("parameter_server", "{chief: 1, ps: 1, worker: 1}", True, True),
        ("custom", "{ps: 1, worker: 1}", True, True),
        ("custom", "{worker: 2}", False, False),
        ("multi_worker_mirrored", "{worker: 2}", False, True),
        ("mirrored", "{worker: 1}", False, False),
    ],
)
def test_grpc_is_set_not_to_wait_for_a_frozen_peer(
    strategy: str, roles: str, fails_fast: bool, keeps_alive: bool, make_job: MakeJob
) -> None:
    job = make_job(text(strategy, roles))
    for found in (env.environment(job, task) for task in job.tasks):
        assert (found.get("GRPC_FAIL_FAST") == "use_caller") is fails_fast
        assert ("grpc.keepalive_time_ms=30000" in found.get("TF_GRPC_DEFAULT_OPTIONS", "")) is keeps_alive


def test_the_jobs_grpc_options_are_appended_to_tfctls(make_job: MakeJob) -> None:
    """If an option occurs twice, the last one counts."""
    job = make_job(text("tf1_ps", "{ps: 1, worker: 1}", "env: {TF_GRPC_DEFAULT_OPTIONS: 'grpc.keepalive_time_ms=9'}"))
    assert env.environment(job, job.tasks[0])["TF_GRPC_DEFAULT_OPTIONS"] == (
        "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=20000,grpc.keepalive_time_ms=9"
    )


@pytest.mark.parametrize(
    ("strategy", "roles", "seeing"),
    [
        ("tf1_ps", "{ps: 1, chief: 1, worker: 1}", ["chief/0", "worker/0"]),
        ("estimator", "{master: 1, ps: 1, worker: 1}", ["master/0", "worker/0"]),
        ("estimator", "{chief: 1, evaluator: 1}", ["chief/0"]),
        ("parameter_server", "{chief: 1, ps: 1, worker: 1, evaluator: 1}", ["worker/0"]),
        ("multi_worker_mirrored", "{chief: 1, worker: 1, evaluator: 1}", ["chief/0", "worker/0"]),
        ("mirrored", "{worker: 1}", ["worker/0"]),
    ],
)
def test_computing_tasks_share_the_gpus_and_the_others_see_none(
    strategy: str, roles: str, seeing: list[str], make_job: MakeJob
) -> None:
    job = make_job(text(strategy, roles), gpus=("GPU-a", "GPU-b"))
    given = {str(task): env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks}
    assert [name for name, gpus in given.items() if gpus != "-1"] == seeing
    assert [gpus for gpus in given.values() if gpus != "-1"] == (
        ["GPU-a", "GPU-b"] if len(seeing) == 2 else ["GPU-a,GPU-b"]
    )


# Who decides, who comes back


@pytest.mark.parametrize(
    ("strategy", "roles", "more", "expected"),
    [
        ("tf1_ps", "{ps: 1, worker: 2}", "", ["worker/0"]),
        ("tf1_ps", "{ps: 1, chief: 1, worker: 2}", "", ["chief/0"]),
        ("tf1_ps", "{ps: 1, worker: 2}", "policy: {success: all_workers}", ["worker/0", "worker/1"]),
        ("estimator", "{chief: 1, ps: 1, worker: 2, evaluator: 1}", "", ["chief/0"]),
        ("estimator", "{master: 1, ps: 1, worker: 2}", "", ["master/0"]),
        ("estimator", "{master: 1, ps: 1, worker: 1}", "policy: {success: chief}", ["master/0"]),
        ("parameter_server", "{chief: 1, ps: 1, worker: 2, evaluator: 1}", "", ["chief/0"]),
        ("multi_worker_mirrored", "{worker: 2, evaluator: 1}", "", ["worker/0", "worker/1"]),
        ("multi_worker_mirrored", "{worker: 1, chief: 1}", "", ["chief/0", "worker/0"]),
        ("multi_worker_mirrored", "{worker: 2}", "policy: {success: worker0}", ["worker/0"]),
        ("mirrored", "{worker: 1}", "", ["worker/0"]),
        ("horovod", "{worker: 2}", "", ["worker/0", "worker/1"]),
    ],
)
def test_success_depends_on_the_deciders_of_the_strategy(
    strategy: str, roles: str, more: str, expected: list[str], make_job: MakeJob
) -> None:
    assert deciders(make_job(text(strategy, roles, more))) == expected


@pytest.mark.parametrize(
    ("strategy", "roles", "vital", "leaves"),
    [
        ("tf1_ps", "{ps: 2, worker: 2}", ((("ps", 0),), (("ps", 1),)), ("worker",)),
        ("estimator", "{chief: 1, ps: 1, worker: 1, evaluator: 1}", ((("ps", 0),),), ("worker",)),
        ("parameter_server", "{chief: 1, ps: 1, worker: 2}", ((("ps", 0),), (("worker", 0), ("worker", 1))), ()),
        ("multi_worker_mirrored", "{worker: 2, evaluator: 1}", (), ()),
        ("custom", "{master: 1, evaluator: 1}", ((("master", 0),), (("evaluator", 0),)), ()),
    ],
)
def test_the_record_lists_the_groups_whose_loss_fails_the_job(
    strategy: str, roles: str, vital: tuple[Any, ...], leaves: tuple[str, ...], make_job: MakeJob
) -> None:
    record = plan.record(make_job(text(strategy, roles)))
    assert (record.vital, record.leaves) == (vital, leaves)


def test_on_failure_fail_makes_every_task_vital_without_restarts(make_job: MakeJob) -> None:
    record = plan.record(make_job(text("tf1_ps", "{ps: 1, worker: 2}", "policy: {on_failure: fail}")))
    assert record.vital == ((("ps", 0),), (("worker", 0),), (("worker", 1),))
    assert record.policy.max_restarts == 0


POLICY = """
policy:
  {clean: all, max_restarts: 5, deadline: 600, grace: 7, drain: 8, lease: 120, max_attempts: 4, start_timeout: 90,
   stall: 900, on_stall: fail, fail_exit_codes: [2], retry_exit_codes: [75, 137]}
"""


def test_the_record_has_the_keys_of_the_policy_where_all_versions_read_them(make_job: MakeJob) -> None:
    job = replace(make_job(text("tf1_ps", "{ps: 1, worker: 2}", POLICY)), guard_key="0" * 64, guard_port=2300)
    record = plan.record(job)
    encoded = wire.encode(record)
    policy = {"clean": "all", "max_restarts": 5, "deadline": 600, "grace": 7, "drain": 8}
    guard = {
        "head": "node1", "address": "10.0.0.1", "port": 2300, "origin": "00000000", "number": 1, "lease": 120,
        "max_attempts": 4, "deadline": 600, "start_timeout": 90, "fail_exit_codes": [2], "retry_exit_codes": [75, 137],
        "stall": 900, "on_stall": "fail", "servers": [["ps", 0], ["worker", 0], ["worker", 1]],
    }  # fmt: skip
    assert encoded["policy"].items() >= policy.items()
    assert encoded["guard"].items() >= guard.items()
    assert wire.decode(wire.Record, json.loads(json.dumps(encoded))) == record


def test_the_record_has_the_defaults_of_the_strategy_in_place_of_keys_that_the_policy_lacks(make_job: MakeJob) -> None:
    job = replace(make_job(text("tf1_ps", "{ps: 1, worker: 2}")), guard_key="0" * 64)
    policy, guard = plan.record(job).policy, plan.record(job).guard
    assert (policy.max_restarts, policy.grace, policy.deadline, policy.drain) == (3, 180, None, 1800)
    assert guard and (guard.lease, guard.start_timeout) == (600, None)


def test_the_command_of_notify_has_its_placeholders_filled_in(make_job: MakeJob) -> None:
    notify = "policy: {notify: {command: [run, '{output}/end.py', '{worker_hosts}', '${output}']}}"
    job = replace(make_job(text("tf1_ps", "{ps: 1, worker: 2}", notify)), guard_key="0" * 64)
    workers = ",".join(task.dial for task in job.tasks if task.role == "worker")
    for found in plan.plans(job, "").values():
        assert found.guard and found.guard.notify
        assert found.guard.notify.command == ("run", "/srv/tfctl/j/end.py", workers, "${output}")


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_each_strategy_has_its_restarts_and_grace(strategy: str, make_job: MakeJob) -> None:
    rules = make_job(text(strategy, smallest(strategy))).layout.rules
    assert rules.max_restarts == (0 if strategy == "custom" else 3)
    assert rules.grace == (180 if strategy in ("tf1_ps", "estimator") else 30)


@pytest.mark.parametrize(
    ("strategy", "roles", "shared"),
    [
        ("tf1_ps", "{ps: 1, worker: 2}", False),
        ("tf1_ps", "{ps: 2, worker: 2}", True),
        ("estimator", "{chief: 1, ps: 1, worker: 1}", True),
        ("parameter_server", "{chief: 1, ps: 1, worker: 1}", True),
        ("multi_worker_mirrored", "{worker: 2}", True),
        ("mirrored", "{worker: 1}", False),
        ("custom", "{worker: 2}", False),
    ],
)
def test_a_strategy_says_whether_its_output_must_be_shared(
    strategy: str, roles: str, shared: bool, make_job: MakeJob
) -> None:
    assert make_job(text(strategy, roles)).layout.shares_output is shared


def test_output_local_is_not_shared_and_has_the_default_directory(make_job: MakeJob) -> None:
    for strategy, roles in (("mirrored", "{worker: 1}"), ("horovod", "{worker: 4}"), ("custom", "{ps: 2, worker: 2}")):
        job = make_job(text(strategy, roles, "output: local"))
        assert (job.layout.output, job.layout.shares_output, plan.record(job).shared) == ("/srv/tfctl/j", False, False)
        assert env.environment(job, job.tasks[0])["TFCTL_OUTPUT"] == "/srv/tfctl/j"


@pytest.mark.parametrize("strategy", ["estimator", "multi_worker_mirrored", "parameter_server", "tf1_ps"])
def test_output_local_is_refused_with_the_reason_where_tasks_share_files(strategy: str, make_job: MakeJob) -> None:
    with pytest.raises(BadFile) as caught:
        make_job(text(strategy, smallest(strategy), "output: local"))
    assert f"output: local: {strategy} needs one directory that all hosts share, because " in caught.value.message
    assert caught.value.remedy.endswith("is enough for custom, horovod and mirrored")


# Wrong use


@pytest.mark.parametrize(
    ("strategy", "roles", "more", "sentence"),
    [
        ("tf1_ps", "{ps: 1, worker: 1, master: 1}", "", "no such role: only tf.estimator has a master"),
        ("tf1_ps", "{worker: 2}", "", "tf1_ps needs a ps: it holds the variables"),
        ("tf1_ps", "{ps: 1}", "", "tf1_ps needs a worker: it computes"),
        ("tf1_ps", "{ps: 1, worker: 1, chief: 2}", "", "roles/chief: tf1_ps has at most 1, not 2"),
        ("tf1_ps", "{ps: 1, worker: 1, evaluator: 1}", "", "roles/evaluator: tf1_ps has no such role"),
        ("tf1_ps", "{ps: 1, worker: 1}", "policy: {success: chief}", "success: chief, but the job has no such task"),
        ("estimator", "{ps: 1, worker: 1}", "", "estimator needs a chief (or a master): it initialises and saves"),
        ("estimator", "{chief: 1, master: 1}", "", "chief and master are two names for the same task"),
        ("estimator", "{master: 2}", "", "roles/master: estimator has at most 1, not 2"),
        ("estimator", "{master: 1, evaluator: 1}", "", "a master evaluates by itself"),
        ("estimator", "{chief: 1, worker: 1}", "", "without a ps each worker has its own variables"),
        ("estimator", "{chief: 1, evaluator: 2}", "", "roles/evaluator: estimator has at most 1, not 2"),
        ("parameter_server", "{master: 1, ps: 1, worker: 1}", "", "no such role: only tf.estimator has a master"),
        ("parameter_server", "{chief: 1, worker: 1}", "", "parameter_server needs a ps"),
        ("parameter_server", "{chief: 1, ps: 1}", "", "parameter_server needs a worker"),
        ("parameter_server", "{chief: 1, ps: 1, worker: 1}", "policy: {success: all_workers}",
         "policy/success: all_workers, but a worker of parameter_server runs until it is stopped"),
        ("multi_worker_mirrored", "{worker: 2, ps: 1}", "", "roles/ps: multi_worker_mirrored has no such role"),
        ("multi_worker_mirrored", "{chief: 1}", "", "multi_worker_mirrored needs a worker: it trains"),
        ("multi_worker_mirrored", "{chief: 2, worker: 1}", "", "multi_worker_mirrored has at most 1, not 2"),
        ("mirrored", "{worker: 2}", "", "roles/worker: mirrored has at most 1, not 2"),
        ("mirrored", "{worker: 1}", "environment: cloud", "environment: tasks of mirrored have no TF_CONFIG"),
        ("mirrored", "{worker: 0}", "", "roles/worker/replicas: "),
        ("horovod", "{chief: 1, worker: 2}", "", "roles/chief: horovod has no such role"),
        ("horovod", "{worker: 1}", "launcher: slurm", "launcher: should be 'gloo' or 'mpi', not 'slurm'"),
        ("mirrored", "{worker: 1}", "launcher: mpi", "launcher: mirrored has no launchers to choose from"),
        ("horovod", "{worker: 1}", "environment: cloud", "environment: tasks of horovod have no TF_CONFIG"),
    ],
)  # fmt: skip
def test_roles_that_tensorflow_would_not_run_are_refused(
    strategy: str, roles: str, more: str, sentence: str, make_job: MakeJob
) -> None:
    with pytest.raises(BadFile) as caught:
        make_job(text(strategy, roles, more))
    assert sentence in caught.value.message


def test_computing_tasks_of_one_group_must_have_equal_gpus(make_job: MakeJob) -> None:
    roles = "{chief: {replicas: 1, hosts: node1}, worker: {replicas: 1, hosts: node1, gpus: 1}}"
    with pytest.raises(
        BadFile, match="chief/0 on node1 has 2 GPUs and worker/0 on node1 1; multi_worker_mirrored needs"
    ):
        make_job(text("multi_worker_mirrored", roles), gpus=("GPU-a", "GPU-b", "GPU-c"))
    assert make_job(text("tf1_ps", f"{{ps: 1, {roles[1:]}"), gpus=("GPU-a", "GPU-b", "GPU-c"))


def test_a_task_without_a_gpu_number_takes_none_in_use(make_job: MakeJob) -> None:
    layout = make_job(text("mirrored", "{worker: 1}")).layout
    with pytest.raises(
        Busy, match=r"node1: 1 task that computes, 0 GPUs free; the others are held by tfctl-a-worker-0"
    ):
        assign(layout, {"node1": Site("10.0.0.1", {}, (), ("tfctl-a-worker-0.service",))})
    with pytest.raises(Busy, match="node1: 2 tasks that compute, 1 GPU free"):
        make_job(text("custom", "{worker: {per_host: 2, hosts: node1}}"), gpus=("GPU-a",))
    with pytest.raises(Busy, match="node1: 1 task that computes, 0 GPUs free"):
        make_job(text("custom", "{big: {replicas: 1, gpus: 1}, worker: 1}"), gpus=("GPU-a",))


# Strategy and stack


def new_stack(*, tf_keras: bool) -> stacks.Stack:
    """A stack with Keras 3, as it may ship one day."""
    imports = {"tensorflow": "2.21.0", "keras": "3.15.1", **({"tf_keras": "2.21.0"} if tf_keras else {})}
    return replace(stacks.get("tf2.15"), name="new", tensorflow="2.21.0", imports=imports)


def laid_out(tmp_path: Path, strategy: str, more: str, *known: stacks.Stack) -> Any:
    file = tmp_path / "job.yaml"
    file.write_text(text(strategy, smallest(strategy), more))
    return lay_out(load.load(file), INVENTORY, "job.yaml", {stack.name: stack for stack in known})


def test_estimator_is_refused_on_a_stack_without_tf_estimator(tmp_path: Path) -> None:
    known = (stacks.get("tf2.15"), new_stack(tf_keras=True))
    with pytest.raises(BadFile) as caught:
        laid_out(tmp_path, "estimator", "stack: new", *known)
    assert "stack new has TensorFlow 2.21.0, but tf.estimator was removed in 2.16" in caught.value.message
    assert caught.value.remedy == "use one of tf2.15"
    assert laid_out(tmp_path, "estimator", "stack: tf2.15", *known)
    assert laid_out(tmp_path, "estimator", "stack: our-own", *known), "the hosts may have it"


@pytest.mark.parametrize("stack", ["tf1.15", "tf2.0"])
def test_parameter_server_is_refused_on_an_older_tensorflow(stack: str, make_job: MakeJob) -> None:
    with pytest.raises(BadFile, match=r"has TensorFlow \S+, but 2.4 or newer is needed") as caught:
        make_job(text("parameter_server", smallest("parameter_server"), f"stack: {stack}"))
    assert (
        caught.value.remedy
        == "use one of tf2.4, tf2.11, tf2.15, tf2.17, tf2.18, tf2.20, tf2.21, or tf1_ps for a TensorFlow 1 program"
    )
    assert make_job(text("tf1_ps", smallest("tf1_ps"), f"stack: {stack}"))


def test_horovod_is_refused_on_a_stack_without_it(tmp_path: Path) -> None:
    known = (stacks.get("tf2.15"), replace(new_stack(tf_keras=True), horovod=None))
    with pytest.raises(BadFile) as caught:
        laid_out(tmp_path, "horovod", "stack: new", *known)
    assert "stack new has no Horovod for its TensorFlow 2.21.0" in caught.value.message
    assert caught.value.remedy == "use one of tf2.15, or the strategy multi_worker_mirrored"
    assert laid_out(tmp_path, "horovod", "stack: tf2.15", *known)
    assert laid_out(tmp_path, "horovod", "stack: our-own", *known), "the hosts may have it"


@pytest.mark.parametrize(
    ("strategy", "tf_keras", "switched"),
    [
        ("multi_worker_mirrored", True, True),
        ("parameter_server", True, True),
        ("parameter_server", False, False),
        ("mirrored", True, False),
        ("tf1_ps", True, False),
    ],
)
def test_keras_2_is_switched_on_where_the_strategy_needs_it(
    tmp_path: Path, strategy: str, tf_keras: bool, switched: bool
) -> None:
    layout = laid_out(tmp_path, strategy, "stack: new", new_stack(tf_keras=tf_keras))
    assert [slot.env.get("TF_USE_LEGACY_KERAS") for slot in layout.slots] == ["1" if switched else None] * len(
        layout.slots
    )
    if switched:
        assert layout.notes == (f"TF_USE_LEGACY_KERAS=1 is set: {strategy} needs Keras 2 of stack new",)
    elif strategy == "parameter_server":
        assert len(layout.notes) == 1
        assert layout.notes[0].startswith(f"{strategy}: `fit` needs Keras 2, but stack new has only Keras 3: install")
    else:
        assert layout.notes == ()


def test_the_job_overrides_the_keras_switch_and_keras_2_alone_has_none(tmp_path: Path) -> None:
    said = laid_out(
        tmp_path, "multi_worker_mirrored", "stack: new\nenv: {TF_USE_LEGACY_KERAS: 0}", new_stack(tf_keras=True)
    )
    assert (said.slots[0].env["TF_USE_LEGACY_KERAS"], said.notes) == ("0", ())
    old = laid_out(tmp_path, "multi_worker_mirrored", "stack: tf2.15", stacks.get("tf2.15"))
    assert "TF_USE_LEGACY_KERAS" not in old.slots[0].env


# Examples and documentation


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_example_renders_on_four_hosts(file: Path) -> None:
    job = load.load(file)
    layout = lay_out(job, INVENTORY, str(file))
    sites = {host.name: Site(host.address or "", {}) for host in layout.hosts}
    files = plan.files(Job(layout, 1, "00000000", 0.0, assign(layout, sites)))
    assert sum(path.endswith(".env") for path in files) == len(layout.slots)
    assert (file.parent / layout.slots[0].command[1]).is_file(), "the script that it names"


def test_plans_compute_the_environment_of_the_job_and_of_each_task_once(make_job: MakeJob) -> None:
    asked: list[str] = []

    def count(tasks: Sequence[Task], _secret: str) -> TaskEnvironment:
        asked.append(f"{len(tasks)} tasks")

        def of_task(task: Task) -> dict[str, str]:
            asked.append(str(task))
            return {}

        return of_task

    job = make_job(text("horovod", "{worker: 3}"))
    strategy = replace(job.layout.strategy, task_environment=count)
    plan.plans(replace(job, layout=replace(job.layout, strategy=strategy)), "")
    assert asked == ["3 tasks", "worker/0", "worker/1", "worker/2"]
