"""Combine what a job's hosts report into the state of each task and of the job.

Pure functions: they turn the answers to `show` into the value behind tables, JSON and the waiting commands.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfctl.errors import NotFound, TfctlError, of_exit, together
from tfctl.jobs import clocks, progress
from tfctl.jobs.progress import Progress
from tfctl.node import causes, judge, wire
from tfctl.node.judge import ALIVE, ENDED
from tfctl.node.names import task as task_name
from tfctl.wording import Lines

if TYPE_CHECKING:
    from tfctl.model.host import Host

#: Display order: tasks that need attention come first.
_ATTENTION = ("failed", "lost", "unknown", "starting", "pending", "running", "stopped", "succeeded")


@dataclass(frozen=True, eq=False)
class TaskState:
    """One task: how it was started and what its host reports about it.

    Two are equal if only what hosts report once differs (wire.TaskStatus.lasting): that is no change of the task.
    """

    record: wire.RecordedTask
    status: wire.TaskStatus

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskState) and self._compared == other._compared

    def __hash__(self) -> int:
        return hash(self._compared)

    def __str__(self) -> str:
        return task_name(self.role, self.index)

    @property
    def name(self) -> wire.TaskName:
        return self.record.name

    @property
    def role(self) -> str:
        return self.record.role

    @property
    def index(self) -> int:
        return self.record.index

    @property
    def host(self) -> str:
        """The inventory's name of its host."""
        return self.record.host

    @property
    def state(self) -> wire.TaskStateName:
        return self.status.state

    @property
    def alive(self) -> bool:
        """Whether there is something to stop."""
        return self.state in ALIVE

    @property
    def ending(self) -> str:
        """How it ended: ``exit code 7``, ``SIGKILL``, or an empty string."""
        if self.status.signal:
            return self.status.signal
        return "" if self.status.exit_code is None else f"exit code {self.status.exit_code}"

    @property
    def _compared(self) -> tuple[wire.RecordedTask, wire.TaskStatus]:
        return self.record, self.status.lasting()


@dataclass(frozen=True)
class JobState:
    """One attempt of a job. ``cause`` explains its state in a sentence, or is empty. ``others``: the live tasks of
    other runs under the same name. ``culprit``: the task whose failure made the job fail, or None. ``retry_at``: when
    the guard starts the next attempt, in epoch seconds, or None. ``guarded``: a guard runs on each host that has
    answered, so nothing has to be cleaned up from here.
    ``unreported``: the hosts that have answered without a word about this run: they have lost it, or their answer is
    older than the run. ``rebooted``: the hosts that have lost tasks by a reboot, while the guard of the head runs and
    cannot see that by itself. ``stall``: what the guard has noted if the job makes no progress, or has failed for that
    reason."""

    job: str
    attempt: int
    state: wire.JobStateName
    cause: str
    finished: float | None
    record: wire.Record
    tasks: tuple[TaskState, ...]
    others: tuple[TaskState, ...] = ()
    culprit: TaskState | None = None
    retry_at: float | None = None
    guarded: bool = False
    unreported: tuple[str, ...] = ()
    rebooted: tuple[str, ...] = ()
    stall: wire.Stall | None = None

    @property
    def why(self) -> causes.Culprit | None:
        """The task whose failure explains that of the job, with what its guard knows about the cause."""
        if self.culprit is None:
            return None
        return causes.of_job(self.job, [(task.record, task.status) for task in self.tasks])

    def with_last_lines(self, lines: Sequence[str]) -> JobState:
        """Return the state with the cause that the last lines of the culprit name, if its guard does not know one yet:
        it looks at them a few seconds after the failure."""
        if self.culprit is None or self.culprit.status.cause is not None:
            return self
        moment = self.culprit.status.finished or 0.0
        cause = causes.noted(wire.Printed(moment, line) for line in lines)
        culprit = replace(self.culprit, status=self.culprit.status._replace(cause=cause))
        tasks = tuple(culprit if task is self.culprit else task for task in self.tasks)
        return replace(self, tasks=tasks, culprit=culprit)

    @property
    def reason(self) -> str:
        """The cause, and how long it takes from now until the next attempt starts: that is no change of the job."""
        if self.retry_at is None:
            return self.cause
        left = max(0.0, self.retry_at - time.time())
        return f"{self.cause}; attempt {self.attempt + 1} in {left:.0f} s"

    @property
    def statuses(self) -> tuple[wire.TaskStatus, ...]:
        """The tasks' statuses, in the order of the record."""
        return tuple(task.status for task in self.tasks)

    @property
    def undecided(self) -> bool:
        """Whether the job has failed and its guard may still start another attempt."""
        guard = self.record.guard
        return self.state == "failed" and self.guarded and guard is not None and guard.number < guard.max_attempts

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def over(self) -> bool:
        """Whether it has ended, and no other attempt begins."""
        return self.ended and not self.undecided

    @property
    def alive(self) -> bool:
        """Whether any task is alive, even if the job has ended."""
        return bool(self.others) or any(task.alive for task in self.tasks)

    @property
    def remaining(self) -> tuple[TaskState, ...]:
        """The tasks that are alive although the job has ended or another run is its latest."""
        return (*(task for task in self.tasks if self.ended and task.alive), *self.others)

    @property
    def progress(self) -> Progress | None:
        """How far the job is, as far as its hosts know."""
        return progress.of_tasks(self.record, self.statuses, ended=self.ended)

    @property
    def run(self) -> str:
        return self.record.run

    @property
    def strategy(self) -> str:
        return self.record.strategy

    @property
    def inventory(self) -> str:
        return self.record.inventory

    @property
    def started(self) -> float:
        """When it was started, in epoch seconds."""
        return self.record.started

    @property
    def task_count(self) -> int:
        return len(self.tasks)

    @property
    def host_count(self) -> int:
        return len(self.hosts)

    @property
    def left(self) -> int:
        """How many tasks are alive that should not be (`remaining`)."""
        return len(self.remaining)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the job's hosts, in the order of their first task."""
        return tuple(dict.fromkeys(task.host for task in self.tasks))

    def by_attention(self) -> list[TaskState]:
        """Return the tasks in the order of the table, failed ones first."""
        return sorted(self.tasks, key=lambda task: _ATTENTION.index(task.state))


def jobs(
    answers: Mapping[str, Sequence[wire.JobStatus] | None], offsets: Mapping[str, float] | None = None
) -> list[JobState]:
    """Return the run of every job that was started last, the most recently started job first.

    Two runs may have the same attempt number, on different hosts.

    ``answers`` maps each host to its jobs, or to None if it does not answer. ``offsets``: by how many seconds the
    clocks of hosts are ahead of this machine's.
    """
    by_job: dict[str, dict[str, wire.JobStatus]] = {}
    for host, statuses in answers.items():
        for each in statuses or ():
            by_job.setdefault(each.job, {})[host] = clocks.corrected(each, clocks.ahead(offsets, host))
    states = [_job(job, by_host, answers, offsets) for job, by_host in by_job.items()]
    return sorted(states, key=lambda state: -state.record.started)


def unknown(job: str, errors: Sequence[TfctlError] = ()) -> TfctlError:
    """Return the error for a job that no host knows. ``errors``: of hosts that have not answered."""
    return unless_silent(NotFound(f"no host has a job {job!r}", "tfctl list shows the jobs that exist"), errors)


def unless_silent(missing: TfctlError, errors: Sequence[TfctlError]) -> TfctlError:
    """Return the error about something that no host has. If hosts have not answered, they may have it: then return
    their ``errors``, which begin with its message."""
    if not errors:
        return missing
    silent = together(errors)
    message = Lines(f"{missing.message}, but not all hosts have answered:", silent.message)
    error = of_exit(silent.exit, message, silent.remedy)
    error.hosts = silent.hosts
    return error


def absent(state: JobState, hosts: Iterable[Host]) -> list[TfctlError]:
    """Return an error for each host of the job that is not among ``hosts``, those of the inventory."""
    known = {host.name for host in hosts}
    return [not_in_inventory(state, name) for name in state.hosts if name not in known]


def not_in_inventory(state: JobState, *names: str) -> NotFound:
    """Return the error about hosts of the job that the inventory does not have."""
    verb = "is" if len(names) == 1 else "are"
    message = f"{', '.join(names)}, where {state.job} has tasks, {verb} not in this inventory"
    error = NotFound(message, "name another with -i")
    error.hosts = names
    return error


def select(state: JobState, role: str, index: int | None) -> tuple[TaskState, ...]:
    """Return the tasks of a role, or the one with this index. Raise NotFound, listing the job's tasks."""
    tasks = tuple(task for task in state.tasks if task.role == role and index in (None, task.index))
    if not tasks:
        raise NotFound(f"{state.job} has no {role}{'' if index is None else f' {index}'}", f"it has {_listed(state)}")
    return tasks


def select_one(state: JobState, role: str, index: int | None) -> TaskState:
    """Return one task; without an index, the only one of its role. Raise NotFound, listing the job's tasks."""
    tasks = select(state, role, index)
    if len(tasks) > 1:
        raise NotFound(f"{state.job} has {len(tasks)} tasks of role {role}", f"name one: it has {_listed(state)}")
    return tasks[0]


def _job(
    job: str,
    by_host: Mapping[str, wire.JobStatus],
    answers: Mapping[str, object],
    offsets: Mapping[str, float] | None,
) -> JobState:
    newest = max(by_host.values(), key=lambda status: (status.record.started, status.attempt))
    record, attempt = newest.record, newest.attempt
    if record.guard and record.guard.number > 1:  # then the guard of the head has written the time of the start
        record = record._replace(started=record.started - clocks.ahead(offsets, record.guard.head))
    ours = {host: status for host, status in by_host.items() if (status.attempt, status.run) == (attempt, newest.run)}
    reports: dict[str, Sequence[wire.TaskStatus] | None] = {
        host: () if answer is not None else None for host, answer in answers.items()
    }
    reports.update((host, status.tasks) for host, status in ours.items())
    hosts = dict.fromkeys(task.host for task in record.tasks)
    unreported = tuple(host for host in hosts if host not in ours and answers.get(host) is not None)
    if any(status.kept is False for status in ours.values()):  # the start goes on, and may not have reached the others
        reports.update(_pending(record, unreported))
    statuses = judge.statuses(record, reports)
    stopped = min((status.stopped for status in ours.values() if status.stopped is not None), default=None)
    verdict = judge.judge(record, statuses, stopped)
    noted = _noted(record, ours)
    # The guard notes a reason where clients cannot tell by the tasks that the job has failed.
    failed = verdict.state == "failed" or bool(noted and noted.reason)
    stall = noted.stall if noted else None
    retry_at = noted.retry_at if noted and failed and stopped is None and verdict.state != "succeeded" else None
    if noted and retry_at is not None:
        verdict = judge.Verdict("starting", noted.reason or verdict.reason)
    elif noted and noted.reason and verdict.state != "succeeded":
        verdict = verdict._replace(state="failed", reason=noted.reason, finished=noted.finished)
    elif verdict.state in ("starting", "running"):
        verdict = verdict._replace(reason=_given_up(record, ours) or (stall.reason if stall else ""))
    tasks = tuple(TaskState(task, status) for task, status in zip(record.tasks, statuses, strict=True))
    others = tuple(
        task for host, status in by_host.items() if host not in ours for task in _reported(host, status) if task.alive
    )
    culprit = next((task for task in tasks if task.name == verdict.culprit), None)
    head = ours.get(record.guard.head) if record.guard else None
    lost = dict.fromkeys(task.host for task in tasks if task.status.loss == "reboot" and head and head.guarded)
    guarded = bool(ours) and all(status.guarded for status in ours.values())
    return JobState(
        job, attempt, verdict.state, verdict.reason, verdict.finished, record, tasks, others, culprit, retry_at,
        guarded, unreported, tuple(lost), stall,
    )  # fmt: skip


def _noted(record: wire.Record, ours: Mapping[str, wire.JobStatus]) -> wire.GuardReport | None:
    """Return what the head's guard has noted or, if the head does not answer or has no guard, what another one has.

    That of a host does not count if the head has gone on without it.
    """
    if record.guard is None:
        return None
    head = ours.get(record.guard.head)
    own = head.guard if head is not None else None
    if head is not None and (head.guarded or (own and own.is_decided)):
        return own
    silent = (own and own.silent) or ()
    others = [status.guard for host, status in ours.items() if host not in silent]
    return next((noted for noted in others if noted and noted.reason), own)


def _given_up(record: wire.Record, ours: Mapping[str, wire.JobStatus]) -> str:
    """Return why the guard of a host has stopped its tasks although the job goes on, or "": it has no contact with the
    head. If somebody has started a task again since, that does not count any more."""
    for host in dict.fromkeys(task.host for task in record.tasks):
        found = ours.get(host)
        if found and found.guard and found.guard.reason and not any(task.state in ALIVE for task in found.tasks):
            return found.guard.reason
    return ""


def _pending(record: wire.Record, hosts: Iterable[str]) -> dict[str, list[wire.TaskStatus]]:
    """Return the tasks of each of these hosts as pending."""
    found: dict[str, list[wire.TaskStatus]] = {host: [] for host in hosts}
    for task in record.tasks:
        if task.host in found:
            found[task.host].append(
                wire.TaskStatus(
                    *task.name, "pending", exit_code=None, signal=None, started=None, finished=None, restarts=0
                )
            )
    return found


def _reported(host: str, status: wire.JobStatus) -> list[TaskState]:
    """Return the tasks that ``host`` reports, as their own run's record describes them."""
    by_name = {task.name: task for task in status.tasks}
    return [
        TaskState(task, by_name[task.name])
        for task in status.record.tasks
        if task.host == host and task.name in by_name
    ]


def _listed(state: JobState) -> str:
    counts = Counter(task.role for task in state.tasks)
    return ", ".join(f"{role} 0" + (f" to {count - 1}" if count > 1 else "") for role, count in counts.items())
