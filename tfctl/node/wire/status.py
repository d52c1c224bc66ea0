"""What a host reports about jobs: their states and summaries."""

import signal as signals
from typing import Literal, NamedTuple, Optional

from .codec import as_rows
from .record import Record, TaskName
from .sample import TaskSample

TaskStateName = Literal["unknown", "pending", "starting", "running", "stopped", "succeeded", "failed", "lost"]
JobStateName = Literal["unknown", "starting", "running", "succeeded", "failed", "stopped"]
#: Why a task is lost: its host was shut down or rebooted, or systemd was told to stop it by something other than tfctl.
Loss = Literal["reboot", "stop", "silence"]


class Cause(NamedTuple):
    """What a task that has ended printed about the cause. ``sentence``: after the words "TASK on HOST". ``line``: the
    line that says so, and ``time`` when it was printed. ``consequence``: true if it says only that something has
    happened to another task."""

    kind: str
    sentence: str
    remedy: str
    line: str
    time: float
    consequence: Optional[bool] = None


class NotedCause(NamedTuple):
    """The cause that the guard has noted of a task. ``restarts``: how often the task had been restarted then."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    restarts: int
    cause: Cause

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class NotedCauses(NamedTuple):
    """Those of an attempt on one host."""

    tasks: tuple[NotedCause, ...] = ()


class Stall(NamedTuple):
    """The job makes no progress. ``time``: when the guard of the head has noticed it. ``tasks``: those that have made
    no step for too long or, if no steps are known, have printed nothing. ``reason``: this as a sentence."""

    time: float
    tasks: tuple[TaskName, ...]
    reason: str


class TaskStatus(NamedTuple):
    """The state of a task, from the current or last invocation of its unit. ``loss``: None if the task is not lost, or
    if the cause is not known. ``last_line_age``: how long ago (s) a running task printed its last line, if the request
    asks for it and there is one. ``last_exit_code``, ``last_signal``: how the invocation before the current one ended.
    ``overdue``: true if it has failed because tfctl ended it at its deadline. ``oom``, ``last_oom``: true if the kernel
    killed a process of that invocation for lack of memory. ``fails_at_once``: true if each invocation so far has failed
    within ten seconds with the same exit code, and there were at least two. ``given_up``: true if tfctl does not start
    it again for that reason. ``timings``: the lines that tfctl_runtime has recorded, if the request asks for them and
    there are any. ``reason``: why a guard or a waiting client has stopped it, if it is stopped. ``sample``: the last
    one that the guard has kept of it, if the request asks for samples. ``cause``: why it has failed, or was last
    restarted, as far as the guard knows."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    state: TaskStateName
    exit_code: Optional[int]
    signal: Optional[str]
    started: Optional[float]
    finished: Optional[float]
    restarts: int
    loss: Optional[Loss] = None
    last_line_age: Optional[float] = None
    last_exit_code: Optional[int] = None
    last_signal: Optional[str] = None
    overdue: Optional[bool] = None
    oom: Optional[bool] = None
    last_oom: Optional[bool] = None
    fails_at_once: Optional[bool] = None
    given_up: Optional[bool] = None
    timings: Optional[str] = None
    reason: Optional[str] = None
    sample: Optional[TaskSample] = None
    cause: Optional[Cause] = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index

    def lasting(self) -> "TaskStatus":
        """Return the status without the fields that say nothing about its state: those that a host sends only in its
        first answer, and the sample."""
        return self._replace(last_line_age=None, timings=None, sample=None)


class GuardReport(NamedTuple):
    """What the guard of this host has noted about an attempt.

    ``retry_at``: when the next attempt begins, in epoch seconds, or None. ``reason``: why the guard has ended the job,
    as a sentence without a full stop, or empty. ``finished``: when it did. ``succeeded``: when it first saw that the
    job had succeeded; tasks that may finish have a limited time from then. ``silent``: the hosts that the head has not
    heard for so long that their guards may have given the job up, while it goes on: what these note does not count.
    ``listened``: true once every server of the job has listened, so that `start_timeout` no longer applies.
    ``final``: true once it is decided that no other attempt follows. ``stall``: set as long as the job makes no
    progress, if its policy has a limit. ``over``: true once the guards of the
    other hosts know that the job is over, and people are being notified.
    """

    retry_at: Optional[float] = None
    reason: str = ""
    finished: Optional[float] = None
    succeeded: Optional[float] = None
    silent: Optional[tuple[str, ...]] = None
    listened: Optional[bool] = None
    final: Optional[bool] = None
    over: Optional[bool] = None
    stall: Optional[Stall] = None

    @property
    def is_decided(self) -> bool:
        """Whether the guard has noted something about the end of the attempt."""
        return bool(self.reason) or self.retry_at is not None or self.succeeded is not None or bool(self.over)


class JobStatus(NamedTuple):
    """One attempt of a job on one host. ``stopped``: the time of its stop mark. ``tasks``: those of this host.
    ``kept``: the start of the attempt is complete. ``guard``: None if the attempt was started without one.
    ``guarded``: whether the guard runs."""

    job: str
    attempt: int
    run: str
    record: Record
    stopped: Optional[float]
    tasks: tuple[TaskStatus, ...]
    kept: Optional[bool] = None
    guard: Optional[GuardReport] = None
    guarded: Optional[bool] = None

    def brief(self, digest: str) -> "BriefStatus":
        """Return the status with the digest of its record in place of the record."""
        return BriefStatus(self.job, self.attempt, self.run, digest, *self[4:])


class BriefStatus(NamedTuple):
    """A JobStatus whose record is named by its ``digest``: the bytes of a message do not depend on the number of tasks
    on other hosts. A client asks one host for the record, without `brief`.

    It has the fields of JobStatus in the same order. They are written twice because NamedTuples do not inherit fields.
    """

    job: str
    attempt: int
    run: str
    digest: str
    stopped: Optional[float]
    tasks: tuple[TaskStatus, ...]
    kept: Optional[bool] = None
    guard: Optional[GuardReport] = None
    guarded: Optional[bool] = None

    def whole(self, record: Record) -> JobStatus:
        """Return the status with its record."""
        return JobStatus(self.job, self.attempt, self.run, record, *self[4:])


class Summary(NamedTuple):
    """What a host knows about the last attempt of a job when nothing of it is left to do there.

    ``tasks``, ``hosts``: their numbers in the whole job. ``deciders``: how many tasks decide the job; ``succeeded``:
    those of them that have succeeded here. ``failed``: one that has failed the job is here. ``finished``: when the
    first of these has failed, else when the last decider here has succeeded. ``stopped``: the time of the stop mark.
    ``head``: the host whose guard has started the attempt, and so written ``started``, if one has.
    """

    job: str
    attempt: int
    run: str
    started: float
    strategy: str
    tasks: int
    hosts: int
    deciders: int
    succeeded: int
    finished: Optional[float] = None
    stopped: Optional[float] = None
    failed: Optional[bool] = None
    head: Optional[str] = None


as_rows(Summary)


def signal_name(number: int) -> str:
    """Return ``SIGKILL``, or ``SIG35`` for a real-time signal, which has no name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"
