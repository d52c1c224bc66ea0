"""Records of jobs as hosts keep them, and states of tasks, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfctl.jobs.state import TaskState
from tfctl.node import names, wire

POLICY = wire.RecordedPolicy(clean="running", max_restarts=0, deadline=None, grace=30, drain=600)


def make_record(
    tasks: Sequence[tuple[str, int, str]] = (("worker", 0, "node1"),),
    *,
    deciders: Sequence[tuple[str, int]] = (("worker", 0),),
    vital: Sequence[Sequence[tuple[str, int]]] = (),
    leaves: Sequence[str] = (),
    policy: wire.RecordedPolicy = POLICY,
    job: str = "digits",
    attempt: int = 1,
    started: float = 100.0,
) -> wire.Record:
    """Return the record of a job. ``tasks``: role, index and host of each."""
    return wire.Record(
        job=job,
        attempt=attempt,
        run="0123abcd",
        strategy="custom",
        stack="none",
        inventory="/i.ini",
        output=f"/srv/tfctl/{job}",
        started=started,
        policy=policy,
        deciders=tuple(deciders),
        tasks=tuple(
            wire.RecordedTask(role, index, host, "10.0.0.1", 2222, names.unit(job, role, index))
            for role, index, host in tasks
        ),
        vital=tuple(tuple(group) for group in vital),
        leaves=tuple(leaves),
    )


def make_state(
    role: str = "worker",
    index: int = 0,
    host: str = "node1",
    state: wire.TaskStateName = "running",
    memory: str | None = None,
    **reported: Any,
) -> TaskState:
    """Return the state of a task. ``reported``: fields of its status."""
    record = wire.RecordedTask(role, index, host, "10.0.0.1", 2222, names.unit("digits", role, index), memory=memory)
    blank = wire.TaskStatus(role, index, state, exit_code=None, signal=None, started=None, finished=None, restarts=0)
    return TaskState(record, blank._replace(**reported))
