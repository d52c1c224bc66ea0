"""Judge a job: what its tasks' states mean for the job, which task decided it, and what is left to clean up.

Pure functions over the record and what hosts report, so that clients and hosts reach the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from . import names
from .wire import AT_ONCE_S, JobStateName, Loss, Record, RecordedTask, TaskName, TaskStateName, TaskStatus

#: States that neither a task nor a job leaves by itself.
ENDED = ("succeeded", "failed", "stopped", "lost")
#: States of a task in which there is something to stop.
ALIVE = ("running", "starting", "pending")
#: What happened to a task that is lost.
_LOSSES: Mapping[Loss | None, str] = {
    "reboot": "the host was shut down or rebooted while it ran",
    "stop": "systemd stopped it, as when the host shuts down",
    "silence": "the host has not answered the guard of the job for too long",
    None: "its unit is gone without a result, as after a reboot",
}
#: How long (s) a task that ends by itself may take to do so once the deciders have succeeded. A worker of TensorFlow 1
#: that starts before the chief has initialised the variables looks again only after 30 s (SessionManager's
#: recovery_wait_secs), and then finds that the training is over.
LEAVE_S = 40.0


class Verdict(NamedTuple):
    """The state of a job.

    ``reason`` explains it in a sentence, or is empty. ``finished`` is when it ended, in epoch seconds, or None.
    ``culprit`` is the task whose failure made the job fail, the first to end if there are several.
    """

    state: JobStateName
    reason: str = ""
    finished: float | None = None
    culprit: TaskName | None = None


def statuses(record: Record, reports: Mapping[str, Sequence[TaskStatus] | None]) -> tuple[TaskStatus, ...]:
    """Return the status of each of the record's tasks, in their order. ``reports``: None for a host that is silent.

    The tasks of a silent host are unknown. A host that answers but does not know its task has lost it.
    """
    known = {(host, status.name): status for host, found in reports.items() for status in found or ()}
    return tuple(
        known.get((task.host, task.name))
        or _without_report(task, "lost" if reports.get(task.host) is not None else "unknown")
        for task in record.tasks
    )


def judge(record: Record, tasks: Sequence[TaskStatus], stopped: float | None) -> Verdict:
    """Return the first verdict that applies. How a job has ended comes before its stop mark, which may be later.

    ``tasks``: the value of `statuses`; ``stopped``: the time of the job's stop mark, or None.
    """
    deciding = set(record.deciders)
    deciders = [task for task in tasks if task.name in deciding]
    if all(task.state == "succeeded" for task in deciders):
        return Verdict("succeeded", finished=latest(deciders))
    if first := next(iter(fallen(record, tasks, stopped)), None):
        where = next(task for task in record.tasks if task.name == first.name)
        return Verdict("failed", failure(first, where.host, where.memory), first.finished, first.name)
    if stopped is not None:
        return Verdict("stopped", finished=stopped)
    states = {task.state for task in tasks}
    if "unknown" in states:
        silent = dict.fromkeys(where.host for where, task in zip(record.tasks, tasks) if task.state == "unknown")
        return Verdict("unknown", f"no answer from {_abbreviated([*silent])}")
    if "starting" in states:
        return Verdict("starting")
    if "running" in states:
        return Verdict("running")
    if "pending" in states:
        return Verdict("starting")
    return Verdict("stopped", "its tasks were stopped one by one", latest(tasks))


def draining(record: Record, tasks: Sequence[TaskStatus], since: float) -> dict[TaskName, float]:
    """Return the tasks of a succeeded job that may keep running, and for how long (s).

    An evaluator may still evaluate the last checkpoint; a worker may still shut down. ``since`` is how long ago (s) the
    job ended.
    """
    limits: dict[str, float] = {"evaluator": record.policy.drain, **dict.fromkeys(record.leaves, LEAVE_S)}
    running = [task for task in tasks if task.state in ("running", "starting")]
    return {task.name: limits[task.role] - since for task in running if limits.get(task.role, 0.0) > since}


def to_clean(record: Record, tasks: Sequence[TaskStatus], draining: Collection[TaskName] = ()) -> list[TaskName]:
    """Return the tasks of an ended job to stop: those still alive or, with the policy `all`, every one, so that its
    unit is removed too.

    The tasks that are ``draining`` may continue. While one of them ends by itself, nothing is stopped: a worker that
    shuts down still needs its parameter servers.
    """
    if record.policy.clean == "none" or any(role in record.leaves for role, _ in draining):
        return []
    wanted = [task.name for task in tasks if record.policy.clean == "all" or task.state in ALIVE]
    return [name for name in wanted if name not in draining]


def to_give_up(tasks: Sequence[TaskStatus]) -> list[TaskName]:
    """Return the tasks that fail at once and can do nothing else: starting them again is of no use.

    ``tasks``: the value of `statuses`, all tasks of the job. A task often dies because another one has, so none is
    given up unless each task that has ended or was restarted fails at once too, with the same exit code: then the one
    that failed first is among them. A host that does not answer may have such a task.
    """
    ended = [task for task in tasks if _has_ended_once(task)]
    codes = {task.exit_code if task.state in ENDED else task.last_exit_code for task in ended}
    if any(task.state == "unknown" for task in tasks) or len(codes) != 1:
        return []
    if not all(task.fails_at_once or task.given_up for task in ended):
        return []
    return [task.name for task in ended if task.state in ALIVE]


def fallen(record: Record, tasks: Sequence[TaskStatus], stopped: float | None) -> list[TaskStatus]:
    """Return the tasks whose failure made the job fail, in the order they ended. Those that ended at the same time, or
    at an unknown one, are in the order of the record, so that every command names the same task first.

    A host that does not know its task, as one that was installed again, cannot refute the stop mark of the others
    (``stopped``: its time).
    """
    known = [task for task in tasks if stopped is None or task.started is not None]
    gone = {task.name: task for task in known if task.state in ("failed", "lost")}
    groups = [*((name,) for name in record.deciders), *record.vital]
    whole = [group for group in groups if all(name in gone for name in group)]
    found = {name for group in whole for name in group}
    in_order = [gone[task.name] for task in record.tasks if task.name in found]
    return sorted(in_order, key=lambda task: float("inf") if task.finished is None else task.finished)


def latest(tasks: Sequence[TaskStatus]) -> float | None:
    """Return when the last of these tasks ended, in epoch seconds."""
    return max((task.finished for task in tasks if task.finished is not None), default=None)


def failure(task: TaskStatus, host: str, memory: str | None = None) -> str:
    """Return how a task on ``host`` failed or was lost, as a sentence without a full stop.

    ``memory``: the most that it may use.
    """
    name = names.task(task.role, task.index)
    if task.state == "lost":
        return f"{name} on {host} is lost: {_LOSSES[task.loss]}"
    if task.given_up:
        how = f"failed with exit code {task.exit_code} twice within {AT_ONCE_S:.0f} s of its start"
        return f"{name} on {host} {how}; it is not started again"
    ending = task.signal or (f"exit code {task.exit_code}" if task.exit_code is not None else "")
    end = f" with {ending}" if ending else ""
    when = " at its deadline" if task.overdue else ""
    again = f" after {task.restarts} restart{'' if task.restarts == 1 else 's'}" if task.restarts else ""
    why = f": {out_of_memory(memory)}" if task.oom else ""
    return f"{name} on {host} failed{end}{when}{again}{why}"


def is_explained(task: TaskStatus) -> bool:
    """Return whether the guard notes why the task has ended: it has failed, or was restarted."""
    return task.state == "failed" or task.restarts > 0


def out_of_memory(limit: str | None) -> str:
    return f"out of memory (limit {limit})" if limit else "out of memory"


def _has_ended_once(task: TaskStatus) -> bool:
    before = (task.last_exit_code, task.last_signal)
    return task.state in ENDED or task.restarts > 0 or any(one is not None for one in before)


def _without_report(task: RecordedTask, state: TaskStateName) -> TaskStatus:
    return TaskStatus(
        task.role, task.index, state, exit_code=None, signal=None, started=None, finished=None, restarts=0
    )


def _abbreviated(hosts: Sequence[str]) -> str:
    """Return the names of up to five hosts, or three and how many more, as tfctl.wording.abbreviated does."""
    more = len(hosts) - 3
    *most, last = [*hosts[:3], f"{more} others"] if more > 2 else hosts
    return f"{', '.join(most)} and {last}" if most else last
