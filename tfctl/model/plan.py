"""Build each host's plan: what to write, check and start there (wire.Plan). `render` writes it as files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tfctl.model import env, masking, unit
from tfctl.model.host import Host
from tfctl.model.job import Job
from tfctl.model.task import Task
from tfctl.node import names, wire
from tfctl.wording import devices, outline

#: Up to so many hosts, each tries to reach all others.
_ALL_PAIRS = 16
DROP_IN = Path(names.__file__).parent / "10-tfctl.conf"
T = TypeVar("T", wire.RecordedPolicy, wire.RecordedGuard)


def plans(job: Job, code: str) -> dict[Host, wire.Plan]:
    """Return each host's plan. ``code`` is the digest of the job's tarball."""
    recorded = record(job, code)
    tasks: dict[Host, list[Task]] = {}
    for task in job.tasks:
        tasks.setdefault(task.host, []).append(task)
    reach = dict.fromkeys(tasks, ()) if job.layout.tests_network else peers(tasks)
    return {
        host: wire.Plan(
            job=job.name,
            attempt=job.attempt,
            run=job.run,
            record=recorded,
            code=code,
            output=job.layout.output,
            stack=here[0].slot.stack,
            tasks=tuple(_task(job, task) for task in here),
            guard=wire.PlannedGuard(job.guard_key, _notify(job)) if job.guard_key else None,
            reach=reach[host],
        )
        for host, here in tasks.items()
    }


def peers(tasks: Mapping[Host, Sequence[Task]]) -> dict[Host, tuple[wire.Peer, ...]]:
    """Return to which others each host tries to connect before the start: to the first task of all or, if there are
    many hosts, of the next one, so that each is tried by one."""
    hosts = list(tasks)
    if len(hosts) == 1:
        return {hosts[0]: ()}
    first = [wire.Peer(host.name, here[0].address, here[0].port) for host, here in tasks.items()]
    if len(hosts) > _ALL_PAIRS:
        return {host: (after,) for host, after in zip(hosts, [*first[1:], first[0]], strict=True)}
    return {host: tuple(peer for peer in first if peer.host != host.name) for host in hosts}


def record(job: Job, code: str = "") -> wire.Record:
    """Return the job as started, the same on all its hosts, without the variables' values."""
    layout, rules = job.layout, job.layout.rules
    return wire.Record(
        job=job.name,
        attempt=job.attempt,
        run=job.run,
        strategy=layout.strategy.name,
        stack=layout.slots[0].stack,
        inventory=layout.inventory,
        output=layout.output,
        started=job.started,
        policy=_recorded(wire.RecordedPolicy, job),
        deciders=rules.deciders,
        tasks=tuple(
            wire.RecordedTask(
                role=task.role,
                index=task.index,
                host=task.host.name,
                address=task.address,
                port=task.port,
                unit=names.unit(job.name, task.role, task.index),
                gpus=task.gpus or (),
                memory=task.slot.memory,
            )
            for task in job.tasks
        ),
        shared=layout.shares_output,
        code=code,
        vital=rules.vital,
        leaves=rules.leaves,
        guard=_guard(job) if job.guard_key else None,
        progress=layout.progress,
        progress_total=layout.progress_total,
    )


def _guard(job: Job) -> wire.RecordedGuard:
    cluster_of = job.layout.strategy.cluster_of
    # An evaluator is alone in its cluster, and starts no server.
    served = {role for of in job.cluster if of != "evaluator" for role in cluster_of(job.cluster, of) or ()}
    head = next(task for task in job.tasks if task.slot == job.layout.head)
    return _recorded(
        wire.RecordedGuard,
        job,
        head=head.host.name,
        address=head.address,
        port=job.guard_port,
        origin=job.run,
        number=1,
        servers=tuple((task.role, task.index) for task in job.tasks if task.role in served),
    )


def _recorded(kind: type[T], job: Job, **others: object) -> T:
    """Return a ``kind`` whose fields are ``others`` and, by their names, keys of the policy.

    Where a default depends on the strategy, the rules have the value of the key.
    """
    found = {**dict(job.layout.policy), **vars(job.layout.rules), **others}
    return kind._make(found[name] for name in kind._fields)


def _notify(job: Job) -> wire.Notify | None:
    notify = job.layout.policy.notify
    if notify is None:
        return None
    known = env.placeholders_of_job(job)
    return wire.Notify(tuple(env.fill(word, known) for word in notify.command or ()), notify.url)


def text(job: Job) -> str:
    """Return the dry run: what `start` would do, one line per task. Passwords are masked."""
    layout = job.layout
    tasks = [
        (
            task.host.name,
            f"{task} at {task.dial}, stack {task.slot.stack}{devices(task.gpus or ())}: "
            f"{shlex.join(masking.command(env.words(job, task)))}",
        )
        for task in job.tasks
    ]
    head = f"{job.name}: attempt {job.attempt}, {layout.strategy.name}"
    return outline(head, layout.output, [host.name for host in layout.hosts], tasks)


def files(job: Job) -> dict[str, str]:
    """Map paths below the render directory to text: each host's units, environment files and drop-in.

    Values that look like secrets are masked (model/masking.py).
    """
    found = {}
    for task in job.tasks:
        stem = names.stem(job.name, task.role, task.index)
        found[f"{task.host.name}/{stem}.service"] = unit.text(job, task, env.environment(job, task), masked=True)
        found[f"{task.host.name}/{stem}.env"] = env.shown_file(job, task)
        found[f"{task.host.name}/tfctl-.service.d/{DROP_IN.name}"] = DROP_IN.read_text()
    return dict(sorted(found.items()))


def _task(job: Job, task: Task) -> wire.PlannedTask:
    own = env.environment(job, task)
    return wire.PlannedTask(
        role=task.role,
        index=task.index,
        ports=(task.port,),
        gpus=task.gpus or (),
        program=env.words(job, task)[0],
        unit=unit.text(job, task, own),
        env=env.environment_file(own),
    )
