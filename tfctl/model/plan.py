"""Build each host's plan: what to write, check and start there (wire.PLAN). `render` writes it as files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from tfctl.model import env, unit
from tfctl.model.host import Host
from tfctl.model.job import Job, Task
from tfctl.node import names
from tfctl.wording import devices, outline

#: Policy keys that are recorded under their own names.
_POLICY = ("clean", "max_restarts", "deadline", "grace", "drain")

DROP_IN = Path(names.__file__).parent / "10-tfctl.conf"


def plans(job: Job, code: str) -> dict[Host, dict[str, Any]]:
    """Return wire.PLAN for each host. ``code`` is the digest of the job's tarball."""
    found: dict[Host, dict[str, Any]] = {}
    same = {"job": job.name, "attempt": job.attempt, "run": job.run, "record": record(job, code), "code": code}
    for task in job.tasks:
        plan = {**same, "output": job.layout.output, "stack": task.slot.stack, "tasks": []}
        found.setdefault(task.host, plan)["tasks"].append(_task(job, task))
    return found


def record(job: Job, code: str = "") -> dict[str, Any]:
    """Return wire.RECORD: the job as started, the same on all its hosts, without the variables' values."""
    layout = job.layout
    return {
        "job": job.name,
        "attempt": job.attempt,
        "run": job.run,
        "strategy": layout.strategy.name,
        "stack": layout.slots[0].stack,
        "inventory": layout.inventory,
        "output": layout.output,
        "shared": layout.shares_output,
        "code": code,
        "started": job.started,
        "policy": {name: getattr(layout.policy, name) for name in _POLICY},
        "deciders": [list(name) for name in layout.policy.deciders],
        "vital": [[list(name) for name in group] for group in layout.policy.vital],
        "leaves": list(layout.policy.leaves),
        "tasks": [
            {
                "role": task.role,
                "index": task.index,
                "host": task.host.name,
                "address": task.address,
                "port": task.port,
                "unit": names.unit(job.name, task.role, task.index),
                "gpus": list(task.gpus or ()),
            }
            for task in job.tasks
        ],
        "env": sorted({name for task in job.tasks for name in env.environment(job, task)}),
    }


def text(job: Job) -> str:
    """Return the dry run: what `start` would do, one line per task."""
    layout = job.layout
    tasks = [
        (
            task.host.name,
            f"{task} at {task.dial}, stack {task.slot.stack}{devices(task.gpus or ())}: "
            f"{shlex.join(env.words(job, task))}",
        )
        for task in job.tasks
    ]
    head = f"{job.name}: attempt {job.attempt}, {layout.strategy.name}"
    return outline(head, layout.output, [host.name for host in layout.hosts], tasks)


def files(job: Job) -> dict[str, str]:
    """Map paths below the render directory to text: each host's units, environment files and drop-in."""
    found = {}
    for task in job.tasks:
        stem = names.stem(job.name, task.role, task.index)
        found[f"{task.host.name}/{stem}.service"] = unit.text(job, task)
        found[f"{task.host.name}/{stem}.env"] = env.environment_file(job, task)
        found[f"{task.host.name}/tfctl-.service.d/{DROP_IN.name}"] = DROP_IN.read_text()
    return dict(sorted(found.items()))


def _task(job: Job, task: Task) -> dict[str, Any]:
    return {
        "role": task.role,
        "index": task.index,
        "ports": [task.port],
        "gpus": list(task.gpus or ()),
        "program": env.words(job, task)[0],
        "unit": unit.text(job, task),
        "env": env.environment_file(job, task),
    }
