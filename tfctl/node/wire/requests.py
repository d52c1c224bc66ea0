"""The first line of a client, one class per verb.

``attempt`` None means the latest, ``tasks`` None all of the job's tasks on the host.
"""

from typing import NamedTuple, Optional, Union

from .codec import by_name
from .record import TaskName
from .status import AttemptName


class Ticket(NamedTuple):
    """A place in the queue of clients that wait to start a job: the earliest is first. ``time``: by the clock of the
    host that gave it. ``nonce``: 8 hex digits, for tickets of the same time."""

    time: float
    nonce: str


class StartRequest(NamedTuple):
    """``code``: its digest. ``ports``: the first and last port to look at. ``resolve``: host names to look up.
    ``restart_of``: the attempt whose restart files are wanted. ``guard_ports``: a second range of ports, that for the
    guard's."""

    job: str
    code: Optional[str]
    ports: tuple[int, int]
    resolve: tuple[str, ...] = ()
    restart_of: Optional[int] = None
    guard_ports: Optional[tuple[int, int]] = None


class ShowRequest(NamedTuple):
    """The given or latest attempt of a job or, if ``job`` is None, the latest attempt of each. ``lines``: the first
    answer has the age of each running task's last line. ``later``: show, in place of the given attempt, the last of
    those that the guard has started after it. ``timings``: the first answer has the timings of each task. ``jobs``:
    only these jobs, if ``job`` is None. ``summaries``: the jobs that are over may be answered by summaries.
    ``rebooted``: hosts that were rebooted during the given attempt. The guard here cannot see that. ``brief``: long
    records may be left out. A host with an older node part ignores that, and sends them."""

    job: Optional[str] = None
    attempt: Optional[int] = None
    follow: bool = False
    lines: bool = False
    later: bool = False
    timings: bool = False
    jobs: Optional[tuple[str, ...]] = None
    summaries: Optional[bool] = None
    rebooted: Optional[tuple[str, ...]] = None
    brief: Optional[bool] = None


class StopRequest(NamedTuple):
    """Without ``tasks`` the whole job is stopped and marked. ``run``: stop nothing unless the attempt, or the latest
    one, is this run. ``hold``: mark the tasks, then wait for `go` before any is ended. ``reason``: why, for `events`.
    ``overdue``: the tasks have failed at the deadline of the job. ``give_up``: end only those that fail at once, and do
    not wait for their end."""

    job: str
    attempt: Optional[int] = None
    tasks: Optional[tuple[TaskName, ...]] = None
    run: Optional[str] = None
    hold: Optional[bool] = None
    reason: Optional[str] = None
    overdue: Optional[bool] = None
    give_up: Optional[bool] = None


class RestartRequest(NamedTuple):
    """Restart these tasks in place. ``run``: restart nothing unless the attempt is this run."""

    job: str
    attempt: int
    tasks: tuple[TaskName, ...]
    run: Optional[str] = None


class EventsRequest(NamedTuple):
    """The events of all attempts. ``brief``: a long record may be left out."""

    job: str
    brief: Optional[bool] = None


class NodesRequest(NamedTuple):
    """What the host has and who uses it."""


class PullRequest(NamedTuple):
    """What an attempt has: its tasks' files here and, unless they are not wanted, those of its output."""

    job: str
    attempt: Optional[int] = None
    output: bool = True


class ExecRequest(NamedTuple):
    """Run the command ``words`` as the jobs' user, restricted as the jobs are. ``environment``: with the variables, the
    working directory and the limits of this task of the latest attempt; otherwise only with its stack on the PATH, and
    without a directory to write to. ``run``: only if the latest attempt is this run."""

    job: str
    run: str
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    words: tuple[str, ...]
    environment: bool = True


class NotifyRequest(NamedTuple):
    """Only of a guard, about its own job: run the program of the policy's `notify`. ``outcome``: its stdin."""

    job: str
    outcome: str


class LeaveRequest(NamedTuple):
    """Only of a guard, about its own job: end the guard and remove its units and its key."""

    job: str


class PruneRequest(NamedTuple):
    """List the attempts of one job or of all or, with ``attempts``, delete these and the code that no other needs."""

    job: Optional[str] = None
    attempts: Optional[tuple[AttemptName, ...]] = None


class QueueRequest(NamedTuple):
    """Wait in the queue of this host until stdin ends. ``ticket``: the one that the first host of the job gave."""

    job: str
    ticket: Optional[Ticket] = None


class LogsRequest(NamedTuple):
    """``cursor``: the journal's, of the last line read. ``tail``: how many of the last lines. ``since``, ``until``:
    epoch seconds. ``grep``: send only lines that match this regular expression of Python's, and pieces of split lines.
    The host may ignore it. ``patience``: how long (s) journald may take to write what tasks have printed; by default a
    minute. ``states``: with ``follow``, also send what `show` with `follow`, `later` and `brief` sends. A host with an
    older node part ignores that."""

    job: str
    attempt: Optional[int] = None
    tasks: Optional[tuple[TaskName, ...]] = None
    cursor: Optional[str] = None
    follow: bool = False
    tail: Optional[int] = None
    since: Optional[float] = None
    until: Optional[float] = None
    grep: Optional[str] = None
    patience: Optional[float] = None
    states: Optional[bool] = None


Request = Union[
    StartRequest, ShowRequest, StopRequest, RestartRequest, EventsRequest, NodesRequest, LogsRequest, NotifyRequest,
    LeaveRequest, PullRequest, ExecRequest, PruneRequest, QueueRequest,
]  # fmt: skip
REQUESTS = by_name(Request)
