from __future__ import annotations

import json

import pytest
from four_hosts import MakeJob

from tfctl.errors import BadFile, Busy, PreflightFailed
from tfctl.model import env
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.placement import assign

HEAD = "name: digits\nstrategy: custom\ncommand: run\n"
PS = "name: digits\nstrategy: parameter_server\ncommand: run\nroles: {chief: 1, ps: 2, worker: 3}\n"


def places(job: Job) -> list[str]:
    return [f"{task} {task.host.name} {task.port}" for task in job.tasks]


def test_every_role_begins_at_the_first_host_and_ports_are_the_lowest_free(make_job: MakeJob) -> None:
    assert places(make_job(PS)) == [
        "chief/0 node1 2222",
        "ps/0 node1 2223",
        "ps/1 node2 2222",
        "worker/0 node1 2224",
        "worker/1 node2 2223",
        "worker/2 node3 2222",
    ]


def test_more_replicas_than_hosts_go_round(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: {replicas: 3, hosts: big}}\n")
    assert places(job) == ["worker/0 node3 2222", "worker/1 node4 2222", "worker/2 node3 2223"]


def test_per_host_counts_host_by_host(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: {per_host: 2, hosts: 'gpu[2:]'}}\n")
    assert places(job) == ["worker/0 node3 2222", "worker/1 node3 2223", "worker/2 node4 2222", "worker/3 node4 2223"]


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        (HEAD + "roles: {worker: 4}\n", False),
        (HEAD + "roles: {ps: 1, worker: 4}\n", False),
        (HEAD + "roles: {ps: 2, worker: 4}\n", True),
        (HEAD.replace("custom", "tf1_ps") + "roles: {ps: 1, worker: 4}\n", False),
        (HEAD.replace("custom", "tf1_ps") + "roles: {ps: 2, worker: 4}\n", True),
        (PS.replace("ps: 2", "ps: 1"), True),
        (HEAD.replace("custom", "estimator") + "roles: {chief: 1, worker: 1, ps: 1}\n", True),
        (HEAD.replace("custom", "multi_worker_mirrored") + "roles: {worker: 2}\n", True),
        (HEAD.replace("custom", "mirrored") + "roles: {worker: 1}\n", False),
    ],
)
def test_whose_output_several_tasks_write(text: str, shared: bool, make_job: MakeJob) -> None:
    assert make_job(text).layout.shares_output is shared


def test_held_ports_are_left_out(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: 1}\n", held={2222: "sshd", 2223: "job a"})
    assert places(job) == ["worker/0 node1 2224"]


def test_a_range_that_is_held_is_busy_and_one_that_is_small_is_wrong(make_job: MakeJob) -> None:
    text = HEAD + "ports: 3000-3001\nroles: {worker: {replicas: 2, hosts: node1}}\n"
    with pytest.raises(Busy, match=r"node1: 2 tasks.* 3000-3001 \(ports\); held are 3000 job a"):
        make_job(text, held={3000: "job a"})
    with pytest.raises(BadFile, match="fewer free ports"):
        make_job(text.replace("3000-3001", "3000-3000"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD.replace("custom", "costum") + "roles: {worker: 1}", "'costum' is not known; did you mean `custom`?"),
        (PS.replace("ps: 2, ", ""), "parameter_server needs a ps: it holds the variables"),
        (PS.replace("chief: 1", "chief: 2"), "roles/chief: parameter_server has at most 1, not 2"),
        (PS.replace("worker: 3", "worker: 1, woker: 1"), "has no such role; did you mean `worker`?"),
        (HEAD + "roles: {worker: {replicas: 1, hosts: cpu}}", "roles/worker/hosts: 'cpu' matches no host"),
        (HEAD + "output: /etc\nroles: {worker: 1}", "output: /etc is not below /srv/tfctl, which node1 allows"),
        (HEAD + "policy: {success: chief}\nroles: {worker: 1}", "policy/success: chief, but the job has no such task"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, sentence: str, make_job: MakeJob) -> None:
    with pytest.raises(BadFile) as caught:
        make_job(text)
    assert sentence in caught.value.message
    assert caught.value.message.startswith("job.yaml: ")


def test_gpus_are_disjoint_and_unsaid_workers_share_what_is_left(make_job: MakeJob) -> None:
    roles = "roles: {ps: 1, big: {replicas: 1, gpus: 1}, worker: {per_host: 2, hosts: node1}}\n"
    job = make_job(HEAD + roles, gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e"))
    given = {str(task): env.environment(job, task).get("CUDA_VISIBLE_DEVICES") for task in job.tasks}
    assert given == {"ps/0": "-1", "big/0": "GPU-a", "worker/0": "GPU-b,GPU-c", "worker/1": "GPU-d,GPU-e"}


def test_more_gpus_than_there_are_is_busy(make_job: MakeJob) -> None:
    with pytest.raises(Busy, match="node1: 2 GPUs wanted, 1 free"):
        make_job(HEAD + "roles: {worker: {replicas: 1, gpus: 2}}\n", gpus=("GPU-a",))


MIG = ("MIG-a", "MIG-b", "GPU-c", "GPU-d")


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("{one: {replicas: 1, gpus: 1}, two: {replicas: 1, gpus: 2}}", {"one/0": "MIG-a", "two/0": "GPU-c,GPU-d"}),
        ("{worker: {per_host: 2, hosts: node1}}", {"worker/0": "MIG-a", "worker/1": "MIG-b"}),
        ("{worker: {per_host: 4, hosts: node1, gpus: 1}}", {f"worker/{n}": gpu for n, gpu in enumerate(MIG)}),
    ],
)
def test_nobody_has_a_mig_instance_beside_another_device(
    roles: str, expected: dict[str, str], make_job: MakeJob
) -> None:
    """CUDA shows a process one instance and nothing else."""
    job = make_job(f"{HEAD}roles: {roles}\n", gpus=MIG)
    assert {str(task): env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks} == expected


def test_instances_do_not_make_up_for_whole_gpus(make_job: MakeJob) -> None:
    with pytest.raises(Busy, match="node1: worker/0 wants 3 GPUs, and 2 whole ones are free; a process can compute on"):
        make_job(HEAD + "roles: {worker: {replicas: 1, gpus: 3}}\n", gpus=MIG)


@pytest.mark.parametrize("roles", ["{worker: 1}", "{worker: {replicas: 1, gpus: 1}}"])
def test_gpus_that_cannot_be_told_are_no_reason_to_compute_without(roles: str, make_job: MakeJob) -> None:
    trouble = PreflightFailed("node1: nvidia-smi: Driver/library version mismatch", "restart the host")
    sites = {"node1": Site("10.0.0.1", {}, (), (), trouble)}
    with pytest.raises(PreflightFailed, match="Driver/library version mismatch") as caught:
        assign(make_job(f"{HEAD}roles: {roles}\n", gpus=("GPU-a",)).layout, sites)
    assert caught.value.remedy == "restart the host; `gpus: 0` computes without GPUs"
    assert assign(make_job(HEAD + "roles: {worker: {replicas: 1, gpus: 0}}\n").layout, sites)


def test_hosts_without_gpus_leave_the_variable_alone(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: 1}\n", gpus=())
    assert "CUDA_VISIBLE_DEVICES" not in env.environment(job, job.tasks[0])


def test_tf_config_of_a_parameter_server_job(make_job: MakeJob) -> None:
    job = make_job(PS.replace("worker: 3", "worker: 1, evaluator: 1"))
    told = {str(task): json.loads(env.tf_config(job, task) or "") for task in job.tasks}
    cluster = {"chief": ["10.0.0.1:2222"], "ps": ["10.0.0.1:2223", "10.0.0.2:2222"], "worker": ["10.0.0.1:2224"]}
    assert told["ps/1"] == {"cluster": cluster, "task": {"type": "ps", "index": 1}}
    assert told["evaluator/0"] == {
        "cluster": {"evaluator": ["10.0.0.1:2225"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_tf_config_of_a_custom_job_is_dense(make_job: MakeJob) -> None:
    job = make_job(HEAD + "environment: cloud\nroles: {evaluator: 1, ps: 1, any: 1}\n")
    config = json.loads(env.tf_config(job, job.tasks[0]) or "")
    assert list(config["cluster"]) == ["evaluator", "ps", "any"]
    assert config["environment"] == "cloud"


def test_deciders(make_job: MakeJob) -> None:
    def deciders(text: str) -> list[str]:
        return [f"{role}/{index}" for role, index in make_job(text).layout.policy.deciders]

    assert deciders(PS) == ["chief/0"]
    assert deciders(HEAD + "roles: {ps: 1, worker: 2, evaluator: 1}\n") == ["worker/0", "worker/1"]
    assert deciders(HEAD + "roles: {master: 1, worker: 2}\n") == ["master/0"]
    assert deciders(HEAD + "roles: {ps: 2}\n") == ["ps/0", "ps/1"]
    assert deciders(HEAD + "roles: {worker: 2}\npolicy: {success: worker0}\n") == ["worker/0"]


def test_restarts_are_the_strategys_unless_the_job_says(make_job: MakeJob) -> None:
    def restarts(text: str) -> int:
        return make_job(text).layout.policy.max_restarts

    custom = HEAD + "roles: {worker: 1}\n"
    assert (restarts(PS), restarts(custom)) == (3, 0)
    assert restarts(custom + "policy: {max_restarts: 5}\n") == 5
    assert restarts(custom + "policy: {on_failure: restart}\n") == 3
    assert restarts(PS + "policy: {on_failure: fail}\n") == 0


def test_words_and_values_are_filled_in(make_job: MakeJob) -> None:
    job = make_job(
        HEAD.replace("command: run", "command: [run, '--ps={ps_hosts}', '--i={index}', '{\"json\": 1}', '{}']")
        + "env: {WHERE: '{output}/{role}'}\nroles: {ps: 2}\n"
    )
    task = job.tasks[1]
    assert env.words(job, task) == ("run", "--ps=10.0.0.1:2222,10.0.0.2:2222", "--i=1", '{"json": 1}', "{}")
    assert env.environment(job, task)["WHERE"] == "/srv/tfctl/digits/ps"


def test_a_role_says_its_own(make_job: MakeJob) -> None:
    job = make_job(
        HEAD + "env: {A: 1, B: 2}\nstack: none\nroles: {ps: 1, worker: {command: other, env: {B: 3}, stack: tf9}}\n"
    )
    ps, worker = job.tasks
    assert (env.words(job, ps), env.words(job, worker)) == (("run",), ("other",))
    assert [env.environment(job, worker)[name] for name in "AB"] == ["1", "3"]
    assert env.environment(job, worker)["PATH"].startswith("/opt/tfctl/stacks/tf9/bin:/usr/local")
    assert env.environment(job, ps)["PATH"].startswith("/usr/local")


def test_no_proxy_comes_down_but_what_the_job_names(make_job: MakeJob) -> None:
    job = make_job(HEAD + "env: {https_proxy: 'http://p'}\nroles: {worker: 1}\n")
    assert "https_proxy" not in env.unset(job, job.tasks[0])
    assert {"http_proxy", "no_proxy", "HTTPS_PROXY"} <= set(env.unset(job, job.tasks[0]))
    assert env.environment(job, job.tasks[0])["https_proxy"] == "http://p"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "localhost", "::1", "fe80::1"])
def test_addresses_that_peers_cannot_dial_are_refused(address: str, make_job: MakeJob) -> None:
    layout = make_job(HEAD + "roles: {worker: 1}\n").layout
    with pytest.raises(BadFile, match="node1: "):
        assign(layout, {"node1": Site(address, {})})
