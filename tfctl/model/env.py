"""Build what a task is given: TF_CONFIG, its environment and the words of its command."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tfctl.errors import BadFile
from tfctl.model.gpus import is_instance
from tfctl.model.job import Job
from tfctl.model.masking import masked
from tfctl.model.strategies.base import PS_ENVIRONMENT
from tfctl.model.task import Task
from tfctl.model.text import LONGEST, PLACEHOLDER, PLACEHOLDERS_OF_JOB, Verbatim, env_line
from tfctl.node import names

#: Removed from systemd's environment unless the job sets them: gRPC would obey them and hang silently.
PROXY_VARIABLES = (
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "grpc_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY", "GRPC_PROXY",
)  # fmt: skip


def tf_config(job: Job, task: Task) -> str | None:
    """Return TF_CONFIG as JSON, or None if the strategy has none."""
    cluster = job.layout.strategy.cluster_of(job.cluster, task.role)
    if cluster is None:
        return None
    config: dict[str, object] = {
        "cluster": {role: list(addresses) for role, addresses in cluster.items()},
        "task": {"type": task.role, "index": task.index},
    }
    if job.layout.cloud:
        config["environment"] = "cloud"
    return json.dumps(config)


def environment(job: Job, task: Task) -> dict[str, str]:
    """Return all variables of the task. The job file overrides tfctl's defaults, but never TFCTL_* or TF_CONFIG.

    The stack's programs stay first on the PATH. Raise BadFile if a variable is longer than Linux takes.
    """
    known, config, output = placeholders(job, task), tf_config(job, task), job.layout.output
    packages = job.requirements.get((task.host.name, task.slot.stack), "")
    stack = f"{names.stack_dir(task.slot.stack)}/bin:" if task.slot.stack != "none" else ""
    stack += f"{packages}/bin:" if packages else ""
    own = {name: _beside(job, name, fill(value, known)) for name, value in task.slot.env.items()}
    own["PATH"] = stack + own.get("PATH", names.PATH)
    found = {
        "PATH": own["PATH"],
        "PYTHONUNBUFFERED": "1",
        **_defaults(job),
        **_devices(job, task),
        **job.strategy_environment(task),
        **_past_proxies(job, own),
        **own,
        "TFCTL_JOB": job.name,
        "TFCTL_RUN": job.run,
        "TFCTL_ATTEMPT": str(job.attempt),
        "TFCTL_ROLE": task.role,
        "TFCTL_INDEX": str(task.index),
        **({"TFCTL_OUTPUT": output} if output else {}),
        "TFCTL_STRATEGY": job.layout.strategy.name,
        **_for_runtime(job, task),
        **({"TFCTL_REQUIREMENTS": packages} if packages else {}),
        **_python_path(job, task),
        **({"TF_CONFIG": config} if config is not None else {}),
    }
    for name, value in found.items():
        if 4 * len(value) > LONGEST and len(value.encode()) > LONGEST:
            raise BadFile(
                f"{task}: {name} has {len(value.encode())} bytes; Linux takes at most {LONGEST} in a variable",
                "give the job fewer tasks" if name not in own else "shorten it, or put it in a file",
            )
    return found


def environment_file(own: Mapping[str, str]) -> str:
    """Return the text of the task's EnvironmentFile. ``own``: its `environment`."""
    return "".join(env_line(name, value) for name, value in own.items())


def shown_file(job: Job, task: Task) -> str:
    """Return the text of the task's EnvironmentFile with secrets masked."""
    return "".join(env_line(name, masked(name, value)) for name, value in environment(job, task).items())


def secret_names(job: Job, task: Task) -> tuple[str, ...]:
    """Return the variables whose values are masked, wholly or in part."""
    return tuple(name for name, value in environment(job, task).items() if masked(name, value) != value)


def unset(own: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that the task must not inherit from systemd's environment. ``own``: its `environment`."""
    return tuple(name for name in (*PROXY_VARIABLES, "TF_CONFIG") if name not in own)


def words(job: Job, task: Task) -> tuple[str, ...]:
    """Return the task's command with its placeholders filled in."""
    known = placeholders(job, task)
    return tuple(fill(word, known) for word in task.slot.command)


def unit_words(job: Job, task: Task) -> tuple[str, ...]:
    """Return the unit's full command line: the strategy's wrapper, if any, then the task's command."""
    return (*job.layout.strategy.wrapper, *words(job, task))


def placeholders(job: Job, task: Task) -> dict[str, str]:
    """Return the value of each of PLACEHOLDERS. Host lists are ``address:port``, joined by commas."""
    return {"role": task.role, "index": str(task.index), **placeholders_of_job(job)}


def placeholders_of_job(job: Job) -> dict[str, str]:
    """Return the value of each of PLACEHOLDERS_OF_JOB, and the hosts of each role."""
    return {**dict.fromkeys(PLACEHOLDERS_OF_JOB, ""), **job.host_lists, "output": job.layout.output}


def fill(text: str, known: Mapping[str, str]) -> str:
    """Fill in the placeholders. Reading the job file has already checked that each one is known."""
    return text if isinstance(text, Verbatim) else PLACEHOLDER.sub(lambda match: known[match[1]], text)


def _defaults(job: Job) -> dict[str, str]:
    return {**job.layout.strategy.environment, **(PS_ENVIRONMENT if "ps" in job.cluster else {})}


def _past_proxies(job: Job, own: Mapping[str, str]) -> dict[str, str]:
    """Return what keeps gRPC between the tasks off the proxies that the job sets; ``own``: its variables.

    Where no_grpc_proxy is set, gRPC does not read no_proxy, so its hosts are in the value too.
    """
    proxies = {name for name in PROXY_VARIABLES if own.get(name) and name.lower() != "no_proxy"}
    if not proxies or not job.layout.strategy.clustered:
        return {}
    direct = [*dict.fromkeys(task.address for task in job.tasks), own.get("no_proxy") or own.get("NO_PROXY")]
    return {"no_grpc_proxy": ",".join(filter(None, direct))}


def _beside(job: Job, name: str, value: str) -> str:
    """Return the job's value. gRPC options are appended to tfctl's: of a repeated option, the last one counts."""
    own = _defaults(job).get(name) if name == "TF_GRPC_DEFAULT_OPTIONS" else None
    return f"{own},{value}" if own else value


def _for_runtime(job: Job, task: Task) -> dict[str, str]:
    """Return what tfctl_runtime needs to know about the strategy: 1 for yes, 0 for no. The program that runs the task's
    command needs the grace period."""
    strategy = job.layout.strategy
    rule = strategy.rule(task.role)
    return {
        "TFCTL_CLUSTERED": "1" if strategy.clustered else "0",
        "TFCTL_SERVES": "1" if rule and rule.serves else "0",
        **({"TFCTL_GRACE_S": str(job.layout.rules.grace)} if strategy.wrapper else {}),
    }


def _python_path(job: Job, task: Task) -> dict[str, str]:
    """Return the PYTHONPATH on which the strategy's wrapper finds tfctl_runtime in a Python that no stack installed."""
    if not job.layout.strategy.wrapper or task.slot.stack != "none":
        return {}
    own = task.slot.env.get("PYTHONPATH")
    return {"PYTHONPATH": f"{own}:{names.RUNTIME}" if own else names.RUNTIME}


def _devices(job: Job, task: Task) -> dict[str, str]:
    if task.gpus is None:
        return {}
    if not task.gpus:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    visible = list(task.gpus)
    if job.layout.strategy.host_gpus:
        all_of_them = job.gpus_of_role[task.role, task.host.name]
        if not any(map(is_instance, all_of_them)):  # CUDA would give every rank the first instance
            visible = all_of_them
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(visible)}
