"""The page about TF_CONFIG by strategy, as tfctl sets it for a small job of each strategy."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from scripts.reference_pages.markdown import code, fenced, paragraphs, table
from tfctl.model import env
from tfctl.model.assign import draft
from tfctl.model.host import Host, Inventory, Ssh
from tfctl.model.job import Job
from tfctl.model.jobfile import JobFile
from tfctl.model.layout import lay_out
from tfctl.model.strategies import STRATEGIES
from tfctl.model.task import Task

#: The job of each strategy. Another strategy gets one task of each role that it requires.
_ROLES: dict[str, dict[str, int]] = {
    "custom": {"chief": 1, "worker": 2},
    "estimator": {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    "horovod": {"worker": 2},
    "mirrored": {"worker": 1},
    "multi_worker_mirrored": {"worker": 2, "evaluator": 1},
    "parameter_server": {"chief": 1, "worker": 2, "ps": 1},
    "tf1_ps": {"worker": 2, "ps": 1},
}
#: Those that differ between any two jobs, or follow from the host.
_HOST_VARIABLES = ("PATH", "TF_CONFIG", "CUDA_VISIBLE_DEVICES")


def page() -> str:
    return paragraphs(
        "# TF_CONFIG by strategy",
        "The following is what tfctl sets for a small job of each strategy on two hosts, node1 (10.0.0.11) and node2 "
        "(10.0.0.12). `tfctl render JOBFILE` prints it for your job. [Strategies](../strategies.md) explains the "
        "roles, and which GPUs a task gets.",
        *(part for name in sorted(STRATEGIES) for part in _strategy(name)),
    )


def _strategy(name: str) -> list[str]:
    job = _job(name)
    text = yaml.safe_dump(_file(name), sort_keys=False, default_flow_style=None, width=100)
    return [f"## {name}", fenced("yaml", text), _configs(job), _variables(job)]


def _file(name: str) -> dict[str, object]:
    required = {role: 1 for role, rule in STRATEGIES[name].roles.items() if rule.minimum}
    roles = _ROLES.get(name, required)
    return {"name": name.replace("_", "-"), "strategy": name, "command": "python train.py", "roles": roles}


def _job(name: str) -> Job:
    hosts = tuple(
        Host(f"node{number}", Ssh(f"10.0.0.{10 + number}"), address=f"10.0.0.{10 + number}") for number in (1, 2)
    )
    file = JobFile.model_validate({**_file(name), "stack": "none"}, context=Path("/"))
    return draft(lay_out(file, Inventory("/hosts.ini", hosts), "job.yaml"))


def _configs(job: Job) -> str:
    """Return the value of TF_CONFIG of each task. Tasks of a role differ only in their index, so the last one stands
    for the others."""
    last = {task.role: task for task in job.tasks}
    found = [_config(task, value) for task in last.values() if (value := env.tf_config(job, task))]
    return paragraphs(*found) or "TF_CONFIG is not set."


def _config(task: Task, value: str) -> str:
    cluster = json.loads(value)
    lines = [f"  {json.dumps(role)}: {json.dumps(tasks)}" for role, tasks in cluster["cluster"].items()]
    text = '{"cluster": {\n' + ",\n".join(lines) + f'}},\n "task": {json.dumps(cluster["task"])}}}'
    return paragraphs(f"TF_CONFIG of {task}, on {task.host.name}:", fenced("json", text))


def _variables(job: Job) -> str:
    task = job.tasks[-1]
    rows = [
        [code(name), code(value)] for name, value in env.environment(job, task).items() if name not in _HOST_VARIABLES
    ]
    return paragraphs(f"Other variables of {task}:", table(["variable", "value"], rows))
