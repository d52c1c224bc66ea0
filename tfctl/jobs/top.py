"""What runs at this moment: the jobs, their tasks and the hosts, in the order of what needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfctl.errors import TfctlError
from tfctl.jobs import nodes, show
from tfctl.jobs.nodes import NodeState
from tfctl.jobs.state import JobState, TaskState
from tfctl.node import wire
from tfctl.remote.fleet import Fleet

#: A running task that has printed nothing for longer (s) is silent, and a GPU that computes less (percent) is idle.
SILENT_S = 60.0
IDLE = 5


@dataclass(frozen=True)
class TopTask:
    """A task of a job that runs. ``sample``: what it uses, as far as that is known."""

    job: JobState
    task: TaskState

    @property
    def sample(self) -> wire.TaskSample:
        return self.task.status.sample or wire.TaskSample(*self.task.name)

    @property
    def silent(self) -> bool:
        return self.task.state == "running" and (self.sample.silent or 0.0) > SILENT_S

    @property
    def gpu_use(self) -> float | None:
        """The mean use of its GPUs in percent, of those that report one."""
        known = [gpu.use for gpu in self.sample.gpus or () if gpu.use is not None]
        return sum(known) / len(known) if known else None

    @property
    def idle(self) -> bool:
        """Whether one of its GPUs computes nothing."""
        return any(gpu.use is not None and gpu.use < IDLE for gpu in self.sample.gpus or ())

    def trouble(self) -> tuple[int, float]:
        """Return what is smaller the more the task needs attention."""
        kinds = (
            self.task.state in ("failed", "lost"),
            self.task.state == "unknown",
            self.idle,
            self.silent,
            self.task.state in ("starting", "pending"),
            self.task.state == "running",
        )
        worst = next((number for number, applies in enumerate(kinds) if applies), len(kinds))
        return worst, -(self.sample.cpu or 0.0)


@dataclass(frozen=True)
class Top:
    """``jobs``: those that are not over, or the one that was asked for; ``tasks``: theirs, those that need attention
    first; ``hosts``: all, or those of that job; ``errors``: of hosts that do not answer."""

    jobs: tuple[JobState, ...]
    tasks: tuple[TopTask, ...]
    hosts: tuple[NodeState, ...]
    errors: tuple[TfctlError, ...]


def jobs(fleet: Fleet, job: str | None) -> tuple[list[JobState], list[TfctlError]]:
    """Return the job, or all that are not over, and the errors of silent hosts. Raise as `show.one`."""
    if job is not None:
        state, errors = show.one(fleet, job, lines=True)
        return [state], errors
    listed, errors = show.overview(fleet, lines=True)
    return [each for each in listed if isinstance(each, JobState) and not each.over], errors


def hosts(fleet: Fleet, expected: str) -> list[NodeState]:
    """Return all hosts. ``expected``: the version of the node part that this tfctl would install."""
    return nodes.nodes(fleet, expected)


def top(found: Sequence[JobState], known: Sequence[NodeState], errors: Sequence[TfctlError], job: str | None) -> Top:
    """Put the answers together. ``job``: show only this one, and its hosts."""
    tasks = sorted((TopTask(each, task) for each in found for task in each.tasks), key=TopTask.trouble)
    places = {task.task.host for task in tasks}
    return Top(
        tuple(found),
        tuple(tasks),
        tuple(node for node in known if job is None or node.host.name in places),
        tuple(errors),
    )
