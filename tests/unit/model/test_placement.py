from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random

import pytest

from tests.unit.model.four_hosts import MakeJob
from tfctl.errors import BadFile, Busy, PreflightFailed
from tfctl.model import env, plan, unit
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.node import unitfile

TROUBLESHOOTING = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
HEAD = "name: digits\nstrategy: custom\ncommand: run\n"
PS = "name: digits\nstrategy: parameter_server\ncommand: run\nroles: {chief: 1, ps: 2, worker: 3}\n"


def places(job: Job) -> list[str]:
    return [f"{task} {task.host.name} {task.port}" for task in job.tasks]


def test_each_role_starts_at_the_first_host_and_takes_the_lowest_free_ports(make_job: MakeJob) -> None:
    assert places(make_job(PS)) == [
        "chief/0 node1 2222",
        "ps/0 node1 2223",
        "ps/1 node2 2222",
        "worker/0 node1 2224",
        "worker/1 node2 2223",
        "worker/2 node3 2222",
    ]


def test_limits_of_a_role_are_lines_of_its_units_which_hosts_accept(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: {limits: {memory: 16G, cpus: 0.29}}, other: {limits: {cpus: 4}}, free: 1}\n")
    limits = [
        [
            line
            for line in unit.text(job, task, env.environment(job, task)).splitlines()
            if line.startswith(("Memory", "CPU"))
        ]
        for task in job.tasks
    ]
    assert limits == [["MemoryMax=16G", "MemorySwapMax=0", "CPUQuota=29%"], ["CPUQuota=400%"], []]
    assert [task.memory for task in plan.record(job).tasks] == ["16G", None, None]
    for task in job.tasks:
        text = unit.text(job, task, env.environment(job, task))
        unitfile.check(
            text, job=job.name, attempt=1, run=job.run, role=task.role, index=0,
            output=job.layout.output, ports=[task.port],
        )  # fmt: skip


def test_more_replicas_than_hosts_are_distributed_round_robin(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: {replicas: 3, hosts: big}}\n")
    assert places(job) == ["worker/0 node3 2222", "worker/1 node4 2222", "worker/2 node3 2223"]


def test_assign_draws_different_free_ports_for_starts_that_compete(make_job: MakeJob) -> None:
    layout = make_job(PS).layout
    held = dict.fromkeys(range(2222, 2290), "job other")
    sites = {host.name: Site(host.address or "", held) for host in layout.hosts}
    drawn = [[task.port for task in assign(layout, sites, Random(seed))] for seed in range(20)]
    assert {port for ports in drawn for port in ports} == set(range(2290, 2300))
    assert len({tuple(ports) for ports in drawn}) == 20
    assert len({(task.host, task.port) for task in assign(layout, sites, Random(0))}) == len(layout.slots)
    chosen = make_job(HEAD + "ports: 3000-3009\nroles: {worker: {replicas: 4, hosts: 'node1:node2'}}\n").layout
    assert [task.port for task in assign(chosen, sites, Random(0))] == [3000, 3000, 3001, 3001]


def test_a_layout_knows_the_hosts_of_the_inventory_that_get_no_task(make_job: MakeJob) -> None:
    layout = make_job(HEAD + "roles: {worker: {replicas: 1, hosts: big}}\n").layout
    assert [host.name for host in layout.hosts] == ["node3"]
    assert [host.name for host in layout.others] == ["node1", "node2", "node4"]


def test_per_host_numbers_the_tasks_host_by_host(make_job: MakeJob) -> None:
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
def test_a_job_says_whether_several_tasks_write_to_its_output(text: str, shared: bool, make_job: MakeJob) -> None:
    assert make_job(text).layout.shares_output is shared


def test_ports_in_use_are_skipped(make_job: MakeJob) -> None:
    job = make_job(HEAD + "roles: {worker: 1}\n", held={2222: "sshd", 2223: "job a"})
    assert places(job) == ["worker/0 node1 2224"]


def test_a_held_port_range_is_busy_and_a_small_one_is_a_bad_file(make_job: MakeJob) -> None:
    text = HEAD + "ports: 3000-3001\nroles: {worker: {replicas: 2, hosts: node1}}\n"
    with pytest.raises(Busy, match=r"node1: 2 tasks.* 3000-3001 \(ports\); in use: 3000 job a"):
        make_job(text, held={3000: "job a"})
    with pytest.raises(BadFile, match="fewer free ports"):
        make_job(text.replace("3000-3001", "3000-3000"))


def test_troubleshooting_quotes_the_message_about_held_ports_as_it_is_printed(make_job: MakeJob) -> None:
    text = HEAD + "ports: 2222-2222\nroles: {worker: {replicas: 1, hosts: node2}}\n"
    with pytest.raises(Busy) as caught:
        make_job(text, held={2222: "pid 246 (python3)"})
    assert f"`{caught.value.message}`" in TROUBLESHOOTING.read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD.replace("custom", "costum") + "roles: {worker: 1}", "'costum' is not known; did you mean `custom`?"),
        (PS.replace("ps: 2, ", ""), "parameter_server needs a ps: it holds the variables"),
        (PS.replace("chief: 1", "chief: 2"), "roles/chief: parameter_server has at most 1, not 2"),
        (PS.replace("worker: 3", "worker: 1, woker: 1"), "has no such role; did you mean `worker`?"),
        (HEAD + "roles: {worker: {replicas: 1, hosts: cpu}}", "roles/worker/hosts: 'cpu' matches no host"),
        (HEAD + "output: /etc\nroles: {worker: 1}", "node1 lets jobs write (tfctl_output_roots: /srv/tfctl)"),
        (HEAD + "policy: {success: chief}\nroles: {worker: 1}", "policy/success: chief, but the job has no such task"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused_with_its_place(text: str, sentence: str, make_job: MakeJob) -> None:
    with pytest.raises(BadFile) as caught:
        make_job(text)
    assert sentence in caught.value.message
    assert caught.value.message.startswith("job.yaml: ")


def test_gpus_are_disjoint_and_workers_without_a_number_share_the_rest(make_job: MakeJob) -> None:
    roles = "roles: {ps: 1, big: {replicas: 1, gpus: 1}, worker: {per_host: 2, hosts: node1}}\n"
    job = make_job(HEAD + roles, gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e"))
    given = {str(task): env.environment(job, task).get("CUDA_VISIBLE_DEVICES") for task in job.tasks}
    assert given == {"ps/0": "-1", "big/0": "GPU-a", "worker/0": "GPU-b,GPU-c", "worker/1": "GPU-d,GPU-e"}


def test_asking_for_more_gpus_than_exist_is_busy(make_job: MakeJob) -> None:
    with pytest.raises(Busy, match="node1: 2 GPUs requested, 1 free"):
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
def test_a_task_with_a_mig_instance_has_no_other_device(
    roles: str, expected: dict[str, str], make_job: MakeJob
) -> None:
    """CUDA shows a process one instance and nothing else."""
    job = make_job(f"{HEAD}roles: {roles}\n", gpus=MIG)
    assert {str(task): env.environment(job, task)["CUDA_VISIBLE_DEVICES"] for task in job.tasks} == expected


def test_mig_instances_do_not_replace_whole_gpus(make_job: MakeJob) -> None:
    with pytest.raises(Busy, match="node1: worker/0 requests 3 GPUs, and 2 whole ones are free; a process can"):
        make_job(HEAD + "roles: {worker: {replicas: 1, gpus: 3}}\n", gpus=MIG)


@pytest.mark.parametrize("roles", ["{worker: 1}", "{worker: {replicas: 1, gpus: 1}}"])
def test_a_start_fails_when_the_gpus_cannot_be_listed(roles: str, make_job: MakeJob) -> None:
    trouble = PreflightFailed("node1: nvidia-smi: Driver/library version mismatch", "restart the host")
    sites = {"node1": Site("10.0.0.1", {}, (), (), trouble)}
    with pytest.raises(PreflightFailed, match="Driver/library version mismatch") as caught:
        assign(make_job(f"{HEAD}roles: {roles}\n", gpus=("GPU-a",)).layout, sites)
    assert caught.value.remedy == "restart the host; `gpus: 0` computes without GPUs"
    assert assign(make_job(HEAD + "roles: {worker: {replicas: 1, gpus: 0}}\n").layout, sites)


def test_cuda_visible_devices_is_unset_on_hosts_without_gpus(make_job: MakeJob) -> None:
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


def test_tf_config_of_a_custom_job_has_every_role(make_job: MakeJob) -> None:
    job = make_job(HEAD + "environment: cloud\nroles: {evaluator: 1, ps: 1, any: 1}\n")
    config = json.loads(env.tf_config(job, job.tasks[0]) or "")
    assert list(config["cluster"]) == ["evaluator", "ps", "any"]
    assert config["environment"] == "cloud"


def test_the_deciders_follow_from_strategy_roles_and_policy(make_job: MakeJob) -> None:
    def deciders(text: str) -> list[str]:
        return [f"{role}/{index}" for role, index in make_job(text).layout.rules.deciders]

    assert deciders(PS) == ["chief/0"]
    assert deciders(HEAD + "roles: {ps: 1, worker: 2, evaluator: 1}\n") == ["worker/0", "worker/1"]
    assert deciders(HEAD + "roles: {master: 1, worker: 2}\n") == ["master/0"]
    assert deciders(HEAD + "roles: {ps: 2}\n") == ["ps/0", "ps/1"]
    assert deciders(HEAD + "roles: {worker: 2}\npolicy: {success: worker0}\n") == ["worker/0"]


def test_the_job_file_overrides_the_strategys_restarts(make_job: MakeJob) -> None:
    def restarts(text: str) -> int:
        return make_job(text).layout.rules.max_restarts

    custom = HEAD + "roles: {worker: 1}\n"
    assert (restarts(PS), restarts(custom)) == (3, 0)
    assert restarts(custom + "policy: {max_restarts: 5}\n") == 5
    assert restarts(custom + "policy: {on_failure: restart}\n") == 3
    assert restarts(PS + "policy: {on_failure: fail}\n") == 0


def test_placeholders_in_commands_and_variables_are_filled_in(make_job: MakeJob) -> None:
    job = make_job(
        HEAD.replace("command: run", "command: [run, '--ps={ps_hosts}', '--i={index}', '{\"json\": 1}', '{}']")
        + "env: {WHERE: '{output}/{role}'}\nroles: {ps: 2}\n"
    )
    task = job.tasks[1]
    assert env.words(job, task) == ("run", "--ps=10.0.0.1:2222,10.0.0.2:2222", "--i=1", '{"json": 1}', "{}")
    assert env.environment(job, task)["WHERE"] == "/srv/tfctl/digits/ps"


def test_a_role_overrides_command_env_and_stack(make_job: MakeJob) -> None:
    job = make_job(
        HEAD + "env: {A: 1, B: 2}\nstack: none\nroles: {ps: 1, worker: {command: other, env: {B: 3}, stack: tf9}}\n"
    )
    ps, worker = job.tasks
    assert (env.words(job, ps), env.words(job, worker)) == (("run",), ("other",))
    assert [env.environment(job, worker)[name] for name in "AB"] == ["1", "3"]
    assert env.environment(job, worker)["PATH"].startswith("/opt/tfctl/stacks/tf9/bin:/usr/local")
    assert env.environment(job, ps)["PATH"].startswith("/usr/local")


def test_a_path_of_the_job_comes_after_the_stacks_programs(make_job: MakeJob) -> None:
    job = make_job(HEAD + "env: {PATH: '/opt/ours:/usr/bin'}\nroles: {ps: 1, worker: {stack: none}}\n")
    stack, none = (env.environment(job, task)["PATH"] for task in job.tasks)
    assert stack == "/opt/tfctl/stacks/tf2.15/bin:/opt/ours:/usr/bin"
    assert none == "/opt/ours:/usr/bin"


def test_a_tf_config_that_is_longer_than_linux_takes_is_refused(make_job: MakeJob) -> None:
    job = make_job("name: big\nstrategy: custom\ncommand: run\nports: 2000-12000\nroles: {worker: 9000}\n")
    with pytest.raises(BadFile, match=r"worker/0: TF_CONFIG has \d+ bytes; Linux takes at most 130816"):
        plan.files(job)


def test_proxy_variables_are_unset_unless_the_job_sets_them(make_job: MakeJob) -> None:
    job = make_job(HEAD + "env: {https_proxy: 'http://p'}\nroles: {worker: 1}\n")
    assert "https_proxy" not in env.unset(env.environment(job, job.tasks[0]))
    assert {"http_proxy", "no_proxy", "HTTPS_PROXY"} <= set(env.unset(env.environment(job, job.tasks[0])))
    assert env.environment(job, job.tasks[0])["https_proxy"] == "http://p"


@pytest.mark.parametrize(("address", "allowed"), [("127.0.0.1", True), ("localhost", True), ("::1", False)])
def test_a_host_that_is_alone_may_have_a_loopback_address_of_ipv4(
    address: str, allowed: bool, make_job: MakeJob
) -> None:
    layout = make_job(HEAD + "roles: {worker: 1}\n").layout
    with contextlib.nullcontext() if allowed else pytest.raises(BadFile, match="IPv6"):
        assert assign(layout, {"node1": Site(address, {}, alone=True)})[0].address == address


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "localhost", "::1", "fe80::1"])
def test_addresses_that_other_hosts_cannot_reach_are_refused(address: str, make_job: MakeJob) -> None:
    layout = make_job(HEAD + "roles: {worker: 1}\n").layout
    with pytest.raises(BadFile, match="node1: "):
        assign(layout, {"node1": Site(address, {})})
