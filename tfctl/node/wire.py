"""The protocol between client and node: one JSON object per line on the stdin and stdout of `tfctl-node`.

The client's first line is a request: ``{"protocol": 2, "verb": VERB}`` with the fields of that verb's request. Every
other line is a message: an object with one key, its kind, whose value has the fields of the kind's class. This module
has a class for each, and the only functions that encode and decode them. A node answers a request that it cannot serve
with ``error``.

start    client  StartRequest
         node    hello                                                                            no lock is held
         client  plan, then, only if hello said code false, code and the announced number of raw bytes (tar.gz)
                 or rerun: the node makes the plan from the restart files of the attempt that the request named
         node    reserved or refused
         client  share   node  share        the output directory: write, find or remove a mark that other hosts look for
         client  go      node  beat every 5 s, then started, or undone: the node has already undone what it started
         client  keep    node  kept, and ends
         client  beat at any time, without an answer. After 30 s of silence, or if stdin ends before keep, the node
                 undoes the start and ends.
show     client  ShowRequest     node  show; with follow, one more at every change and beat every 5 s until stdin ends.
                                       With brief, a long record is left out and named by its digest
stop     client  StopRequest     node  with hold, marked, and waits for go; then beat every 5 s, then stopped
restart  client  RestartRequest  node  beat every 5 s, then restarted; error with exit 7 if a unit is gone
events   client  EventsRequest   node  events
nodes    client  NodesRequest    node  node
notify   guard   NotifyRequest   node  beat every 5 s, then notified
queue    client  QueueRequest    node  queued, one more at every change and beat every 5 s until stdin ends
prune    client  PruneRequest    node  stored; with attempts, beat every 5 s, then pruned
leave    guard   LeaveRequest    node  left
pull     client  PullRequest     node  files, then listings; for each file that the client asks for with
                                       fetch: pieces, each followed by its raw bytes, then ended
exec     client  ExecRequest     node  beat every 5 s and pieces (1: stdout, 2: stderr), each followed by its raw bytes,
                                       then exited; the end of stdin, or 30 s of silence, ends the command
logs     client  LogsRequest     node  beat every 5 s, then logs, then journalctl's own JSON lines;
                                       with grep or states, among them beats and, as the last line, perhaps an error.
                                       With follow and states, among them also show: one before the first line, if it
                                       can be made soon, and one more at every change; and beat after 5 s of silence

Times are in epoch seconds. A task's name is [ROLE, INDEX].
"""

import json
import signal
from typing import Any, Literal, NamedTuple, Optional, Union

from .codec import Malformed as Malformed
from .codec import as_rows
from .codec import decode as decode
from .codec import encode as encode

PROTOCOL = 2
#: How often (s) a side that works gives a sign of life.
BEAT_S = 5.0
#: The longest silence (s) of either side, and of a host that answers at once.
SILENCE_S = 30.0
#: The longest silence (s) of a host whose states are followed: it beats.
FOLLOW_SILENCE_S = 15.0
#: The longest time (s) in which a host checks and reserves a plan, which includes unpacking the code.
RESERVE_S = 600.0
#: The longest time (s) until a host confirms keep.
KEEP_S = 15.0
#: A run that fails within this time (s) of its beginning fails at once.
AT_ONCE_S = 10.0
#: The longest line of JSON that either side accepts, in bytes.
LINE_LIMIT = 16 * 2**20
#: A longer record (bytes) is left out where the client allows it. To ask for a shorter one would take longer than to
#: read it from every host.
LONG_RECORD = 4096
#: The room (bytes) that a start needs in the directory of the jobs, beside the code.
SPARE = 200 * 1000**2
#: The remedy where it is missing.
MAKE_ROOM = "delete jobs that are over: tfctl prune --older-than 14d; or delete what tasks have written there"
#: What journalctl is asked for, beside the cursor and the times.
JOURNAL_FIELDS = (
    "MESSAGE", "_TRANSPORT", "_SYSTEMD_UNIT", "_STREAM_ID", "_LINE_BREAK", "N_DROPPED", "OBJECT_SYSTEMD_UNIT",
)  # fmt: skip
#: SD_MESSAGE_JOURNAL_DROPPED (sd-messages.h): the MESSAGE_ID with which journald says how many lines it dropped.
DROPPED = "a596d6fe7bfa4994828e72309e95d61e"

TaskName = tuple[str, int]
TaskStateName = Literal["unknown", "pending", "starting", "running", "stopped", "succeeded", "failed", "lost"]
#: Why a task is lost: its host was shut down or rebooted, or systemd was told to stop it by something other than tfctl.
Loss = Literal["reboot", "stop", "silence"]


# What messages consist of.


class Error(NamedTuple):
    """A failure in sentences. ``exit``: a code of tfctl.node.exits. ``retry``: whether a new hello may resolve it.
    ``stack``: the stack that the host lacks, because the client knows which stacks exist."""

    exit: int
    message: str
    remedy: str = ""
    retry: Optional[bool] = None
    stack: Optional[str] = None


class Gpu(NamedTuple):
    """A device for tasks; a MIG instance counts as one, and its UUID begins with MIG-. ``index``: its position by PCI
    address, from 0. ``memory_mib``: 0 if unknown. ``holder``: who uses it, or empty."""

    uuid: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    memory_mib: int
    holder: str


class Card(NamedTuple):
    """An NVIDIA card: its settings and readings. Unknown ones are None.

    ``persistence``, ``ecc``: whether these modes are enabled. ``ecc_errors``: memory errors since the last reboot that
    were not corrected. ``mhz``, ``max_mhz``: of the processors. ``mig``: the profiles of the MIG instances; None if the
    card is not in MIG mode.
    """

    uuid: str
    name: str
    persistence: Optional[bool] = None
    ecc: Optional[bool] = None
    ecc_errors: Optional[int] = None
    mhz: Optional[int] = None
    max_mhz: Optional[int] = None
    celsius: Optional[int] = None
    watts: Optional[int] = None
    mig: Optional[tuple[str, ...]] = None


class RecordedTask(NamedTuple):
    """A task in a record. ``host`` is the inventory's name. ``memory``: the most that it may use, such as 16G."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    host: str
    address: str
    port: int
    unit: str
    gpus: tuple[str, ...] = ()
    memory: Optional[str] = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class RecordedPolicy(NamedTuple):
    """What happens when the job is done. Durations are in seconds."""

    clean: Literal["running", "all", "none"]
    max_restarts: int
    deadline: Optional[int]
    grace: int
    drain: int


class RecordedGuard(NamedTuple):
    """How the guards of a job watch it. Durations are in seconds.

    ``head``: the host whose guard decides; the others reach it at ``address`` and ``port``, which is 0 if there are no
    others. ``origin``: the run of the job's first attempt; the guards serve all attempts with this origin.
    ``number``: 1 for that attempt, and one more for each that follows. ``servers``: the tasks that TF_CONFIG lists.
    ``deadline``: that of the whole job.
    """

    head: str
    address: str
    port: int
    origin: str
    lease: int
    max_attempts: int
    number: int = 1
    deadline: Optional[int] = None
    start_timeout: Optional[int] = None
    fail_exit_codes: tuple[int, ...] = ()
    retry_exit_codes: tuple[int, ...] = ()
    servers: tuple[TaskName, ...] = ()


class Record(NamedTuple):
    """The job as it was started, the same on all its hosts. A host keeps it as job.json.

    ``shared``: several tasks write to the output. ``code``: its digest, or empty. ``deciders``: the tasks whose end
    decides the job. ``vital``: groups of tasks; the job fails once all tasks of a group are gone for good. ``leaves``:
    roles whose tasks end by themselves soon after the deciders. ``progress``: how to read progress from what tasks
    print (tfctl.model.progress). Older records lack fields that have a default.
    """

    job: str
    attempt: int
    run: str
    strategy: str
    stack: str
    inventory: str
    output: str
    started: float
    policy: RecordedPolicy
    deciders: tuple[TaskName, ...]
    tasks: tuple[RecordedTask, ...]
    shared: bool = False
    code: Optional[str] = ""
    vital: tuple[tuple[TaskName, ...], ...] = ()
    leaves: tuple[str, ...] = ()
    guard: Optional[RecordedGuard] = None
    progress: Optional[str] = None


class Notify(NamedTuple):
    """Whom to tell about the end of a job: a program and its arguments, a URL that takes a POST, or both."""

    command: tuple[str, ...] = ()
    url: Optional[str] = None


class PlannedGuard(NamedTuple):
    """What only the host's root and its guard know. ``key``: 64 hex digits, the same on all hosts of the job."""

    key: str
    notify: Optional[Notify] = None


class PlannedTask(NamedTuple):
    """A task to start. ``gpus``: UUIDs. ``program``: the first word of its command. ``unit`` and ``env``: the texts of
    its unit file and of its environment file."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    ports: tuple[int, ...]
    gpus: tuple[str, ...]
    program: str
    unit: str
    env: str

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class TaskStatus(NamedTuple):
    """The state of a task, from its current or last run. ``loss``: None if the task is not lost, or if the cause is not
    known. ``last_line_age``: how long ago (s) a running task printed its last line, if the request asks for it and
    there is one. ``last_exit_code``, ``last_signal``: how the run before the current one ended. ``overdue``: true if it
    has failed because tfctl ended it at its deadline. ``oom``, ``last_oom``: true if the kernel killed a process of
    that run for lack of memory. ``fails_at_once``: true if each run so far has failed within ten seconds with the same
    exit code, and there were at least two. ``given_up``: true if tfctl does not start it again for that reason.
    ``timings``: the lines that tfctl_runtime has recorded, if the request asks for them and there are any."""

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

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class GuardReport(NamedTuple):
    """What the guard of this host has noted about an attempt.

    ``retry_at``: when the next attempt begins, in epoch seconds, or None. ``reason``: why the guard has ended the job,
    as a sentence without a full stop, or empty. ``finished``: when it did.
    """

    retry_at: Optional[float] = None
    reason: str = ""
    finished: Optional[float] = None


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


class BriefStatus(NamedTuple):
    """A JobStatus whose record is named by its ``digest``: the bytes of a message do not depend on the number of tasks
    on other hosts. A client asks one host for the record, without `brief`."""

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
        return JobStatus(
            self.job, self.attempt, self.run, record, self.stopped, self.tasks, self.kept, self.guard, self.guarded
        )


class Summary(NamedTuple):
    """What a host knows about the last attempt of a job when nothing of it is left to do there.

    ``tasks``, ``hosts``: their numbers in the whole job. ``deciders``: how many tasks decide the job; ``succeeded``:
    those of them that have succeeded here. ``failed``: one that has failed the job is here. ``finished``: when the
    first of these has failed, else when the last decider here has succeeded. ``stopped``: the time of the stop mark.
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


class Event(NamedTuple):
    """``event``: start, stop or restart (by a user or the guard), retry or notify (by the guard), begin or end (of a
    task's run). ``role`` and ``index`` are None for the whole job. ``reason``: why the guard did it. ``oom``: true if
    the run ended because the kernel killed a process of it for lack of memory."""

    time: float
    attempt: int
    event: str
    role: Optional[str]
    index: Optional[int]  # type: ignore[assignment]  # hides tuple.index
    by: Optional[str]
    exit_code: Optional[int]
    signal: Optional[str]
    reason: Optional[str] = None
    oom: Optional[bool] = None


class StoredAttempt(NamedTuple):
    """What a host keeps of an attempt. ``hosts``: how many hosts the attempt has. ``age``: how long ago (s) something
    happened to it. ``alive``: the job runs here, is being started or has a guard. ``mib``: None if unknown."""

    job: str
    attempt: int
    run: str
    started: float
    hosts: int
    age: float
    alive: bool
    mib: Optional[int] = None


class AttemptName(NamedTuple):
    """``run``: empty if the attempt has no record that can be read."""

    job: str
    attempt: int
    run: str


class Ticket(NamedTuple):
    """A place in the queue of clients that wait to start a job: the earliest is first. ``time``: by the clock of the
    host that gave it. ``nonce``: 8 hex digits, for tickets of the same time."""

    time: float
    nonce: str


class UserAction(NamedTuple):
    """A line of notes.jsonl on a host. ``deed``: start, stop or restart; of the guard also retry or notify. ``tasks``:
    None for the whole job. ``reason``: why the guard did it."""

    time: float
    deed: str
    by: str
    tasks: Optional[tuple[TaskName, ...]]
    reason: Optional[str] = None


class Disk(NamedTuple):
    """The file system of a directory. ``device`` identifies it among those of its host."""

    path: str
    device: int
    free_mib: int
    total_mib: int


class TaskFiles(NamedTuple):
    """``unit``: the text of the task's unit file. ``tf_config``: the value of TF_CONFIG, if the task has one."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    unit: str
    tf_config: Optional[str] = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class OutputFile(NamedTuple):
    """A file in the output directory. ``path`` is relative to it. The file was last modified at ``seconds`` and
    ``nanoseconds``, in epoch time. ``link``: where a symbolic link leads."""

    path: str
    size: int
    seconds: int
    nanoseconds: int
    link: Optional[str] = None

    @property
    def mtime_ns(self) -> int:
        return self.seconds * 10**9 + self.nanoseconds


class RunningTask(NamedTuple):
    """A live task of any job."""

    job: str
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    state: TaskStateName


# Requests. ``attempt`` None means the latest, ``tasks`` None all of the job's tasks on the host.


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
    not wait for their end (tfctl.node.give_up)."""

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


# Messages of both sides.


class Beat(NamedTuple):
    """A sign of life."""


# Messages of the client within a start. Go also continues a stop, and fetch belongs to pull.


class Plan(NamedTuple):
    """What a host is to create and start. ``code``: its digest. ``stack``: that of the first task, or ``none``; each
    other task's environment file says its own."""

    job: str
    attempt: int
    run: str
    record: Record
    code: Optional[str]
    output: str
    stack: str
    tasks: tuple[PlannedTask, ...]
    guard: Optional[PlannedGuard] = None


class Rerun(NamedTuple):
    """The next attempt of a job. The host makes its plan from its restart files, and takes from them whom ``guard``
    notifies. Without ``guard``, the guard of the attempt before goes on."""

    record: Record
    guard: Optional[PlannedGuard] = None


class Code(NamedTuple):
    """``size`` raw bytes follow."""

    size: int


class Share(NamedTuple):
    """Write, find or remove an empty file in the output directory."""

    action: Literal["write", "find", "remove"]
    nonce: str


class Go(NamedTuple):
    """Start the units or, within a stop, end them. ``everywhere``: all hosts of the job are being stopped, so none of
    its guards is needed any more."""

    everywhere: Optional[bool] = None


class Keep(NamedTuple):
    """Let the units run on without this session."""


class Fetch(NamedTuple):
    """Send these files: the position of each in the listing, from 0, and the number of bytes to skip."""

    files: tuple[tuple[int, int], ...]


# Messages of the node.


class Hello(NamedTuple):
    """``highest``: the job's highest attempt here, or 0. ``ports``: those of the range that are not free, with their
    holders. ``names``: the names to resolve, with their addresses. ``code``: whether that code is here.
    ``gpu_trouble``: why the GPUs cannot be listed. ``restartable``: the tasks that have restart files. ``horovod``:
    whether each installed stack has Horovod; None if the host does not say. ``time``: the host's. ``stacks``: each
    installed stack with its environment; None if the host does not say. ``requirements``: the names of the directories
    with packages of requirements files. ``packed``: whether records may be sent as `packed` returns them."""

    highest: int
    ports: dict[int, str]
    names: dict[str, Optional[str]]
    gpus: tuple[Gpu, ...]
    gpu_trouble: Optional[Error]
    code: bool
    restartable: tuple[TaskName, ...]
    horovod: Optional[dict[str, bool]] = None
    time: Optional[float] = None
    stacks: Optional[dict[str, str]] = None
    requirements: tuple[str, ...] = ()
    packed: Optional[bool] = None


class Reserved(NamedTuple):
    """Everything is written, nothing runs yet."""


class Refused(NamedTuple):
    """The plan cannot be carried out. Nothing was made."""

    error: Error


class Shared(NamedTuple):
    """Whether the file was written, found or removed."""

    ok: bool


class Started(NamedTuple):
    """Every unit was started."""


class Undone(NamedTuple):
    """A unit could not be started. Everything was undone."""

    error: Error


class Kept(NamedTuple):
    """The units run by themselves."""


class Shown(NamedTuple):
    """The jobs that were asked for, as far as this host has tasks of them. ``time``: the host's. ``past``: jobs that
    are over, in place of their statuses, if the request allows it. ``brief``: those whose records are left out."""

    jobs: tuple[JobStatus, ...]
    time: Optional[float] = None
    past: tuple[Summary, ...] = ()
    brief: tuple[BriefStatus, ...] = ()


class Marked(NamedTuple):
    """The tasks to stop are marked, and still run. ``attempt``: 0 if the job is not known here. ``hosts``: all of the
    job's hosts."""

    attempt: int
    hosts: tuple[str, ...]


class Stopped(NamedTuple):
    """``attempt``: 0 if the job is not known here. ``tasks``: those that were live. ``left``: a sentence for each
    process, port or unit that is left."""

    attempt: int
    tasks: tuple[TaskName, ...]
    left: tuple[str, ...]


class Restarted(NamedTuple):
    """The tasks run again."""

    attempt: int
    tasks: tuple[TaskName, ...]


class Events(NamedTuple):
    """The events in the order of time, and the job's latest attempt as in Shown. ``time``: the host's."""

    jobs: tuple[JobStatus, ...]
    events: tuple[Event, ...]
    time: Optional[float] = None
    brief: tuple[BriefStatus, ...] = ()


class Node(NamedTuple):
    """``version``: the version of the node part. ``os``: the name of the operating system. ``load``: the load of the
    last minute. ``memory_mib``: total and available memory. ``stacks``: the installed stacks, with their environments.
    ``ports``: the ports that jobs hold, with their holders. ``disks``: the directory of the jobs, then the directories
    for output. ``stored_mib``: the size of the code of all jobs and of what their tasks have written beside
    it. ``drifts``: what has changed since the host was provisioned, in sentences. ``cards``: the NVIDIA cards, if
    nvidia-smi answers. ``time``: the time of the host's clock. Unknown values are None."""

    protocol: int
    version: str
    os: Optional[str]
    kernel: str
    systemd: int
    cpus: Optional[int]
    load: float
    memory_mib: Optional[tuple[int, int]]
    stacks: dict[str, str]
    gpus: tuple[Gpu, ...]
    gpu_trouble: Optional[Error]
    ports: dict[int, str]
    tasks: tuple[RunningTask, ...]
    disks: tuple[Disk, ...] = ()
    stored_mib: Optional[int] = None
    drifts: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    time: Optional[float] = None


class Files(NamedTuple):
    """The files of the attempt's tasks here, as far as the host still has them."""

    attempt: int
    tasks: tuple[TaskFiles, ...]


class Listing(NamedTuple):
    """A part of what is in the output directory. ``skipped``: a sentence for each thing that cannot be sent."""

    files: tuple[OutputFile, ...]
    skipped: tuple[str, ...] = ()
    last: bool = False


class Piece(NamedTuple):
    """``size`` raw bytes follow, the next ones of the file at this position of the listing, or of stdout (1) or stderr
    (2) of a command."""

    position: int
    size: int


class Ended(NamedTuple):
    """The end of a file. ``fault``: why the rest of it cannot be sent."""

    position: int
    fault: Optional[str] = None


class Exited(NamedTuple):
    """The end of a command: its exit status, or the name of the signal that ended it."""

    status: Optional[int]
    signal: Optional[str] = None


class Queued(NamedTuple):
    """``ahead``: who is before this client in the queue of this host: each job with its user."""

    ticket: Ticket
    ahead: tuple[str, ...]


class Stored(NamedTuple):
    """The attempts that this host keeps."""

    attempts: tuple[StoredAttempt, ...]


class Pruned(NamedTuple):
    """What was deleted. ``mib``: its size, with that of code; None if unknown. ``kept``: a sentence about each attempt
    that was not deleted."""

    attempts: tuple[AttemptName, ...]
    mib: Optional[int] = None
    kept: tuple[str, ...] = ()


class Left(NamedTuple):
    """The guard is being removed."""


class Notified(NamedTuple):
    """The program of the policy's `notify` has run. ``error``: why it failed, or None."""

    error: Optional[str] = None


class Logs(NamedTuple):
    """The attempt, its run, and the units whose lines follow. ``synced``: false if journald did not confirm that it
    has written everything that the tasks have printed. ``began``: when the first run of each unit began. ``oldest``:
    the time of the oldest entry in the journal; None after a cursor, or if unknown. ``states``: true if states are sent
    among the lines. ``time``: the host's."""

    attempt: int
    run: str
    units: dict[str, TaskName]
    synced: bool = True
    began: Optional[dict[str, float]] = None
    oldest: Optional[float] = None
    states: Optional[bool] = None
    time: Optional[float] = None


class JournalEntry(NamedTuple):
    """One line of the journal. ``transport``: ``stdout`` for what a task prints. ``is_split``: journald cut the line
    because it is longer than LineMax= (48 KiB); the next entry of the same ``stream`` continues it. ``dropped``: the
    number of lines of ``unit`` that journald dropped, in its own message about that."""

    cursor: str
    time: float
    unit: str
    transport: str
    message: bytes
    stream: str = ""
    is_split: bool = False
    dropped: Optional[int] = None

    @property
    def text(self) -> str:
        return self.message.decode(errors="replace")


as_rows(Summary, StoredAttempt, AttemptName)

Request = Union[
    StartRequest, ShowRequest, StopRequest, RestartRequest, EventsRequest, NodesRequest, LogsRequest, NotifyRequest,
    LeaveRequest, PullRequest, ExecRequest, PruneRequest, QueueRequest,
]  # fmt: skip
ClientMessage = Union[Plan, Rerun, Code, Share, Go, Keep, Fetch, Beat]
NodeMessage = Union[
    Hello, Reserved, Refused, Shared, Started, Undone, Kept, Shown, Marked, Stopped, Restarted, Events, Node, Logs,
    Notified, Left, Files, Listing, Piece, Ended, Exited, Stored, Pruned, Queued, Error, Beat,
]  # fmt: skip

REQUESTS: dict[str, Any] = {
    "start": StartRequest, "show": ShowRequest, "stop": StopRequest, "restart": RestartRequest,
    "events": EventsRequest, "nodes": NodesRequest, "logs": LogsRequest, "notify": NotifyRequest,
    "leave": LeaveRequest, "pull": PullRequest, "exec": ExecRequest, "prune": PruneRequest, "queue": QueueRequest,
}  # fmt: skip
CLIENT_MESSAGES: dict[str, Any] = {
    "plan": Plan, "rerun": Rerun, "code": Code, "share": Share, "go": Go, "keep": Keep, "fetch": Fetch,
    "beat": Beat,
}  # fmt: skip
NODE_MESSAGES: dict[str, Any] = {
    "hello": Hello, "reserved": Reserved, "refused": Refused, "share": Shared, "started": Started, "undone": Undone,
    "kept": Kept, "show": Shown, "marked": Marked, "stopped": Stopped, "restarted": Restarted, "events": Events,
    "node": Node, "logs": Logs, "notified": Notified, "left": Left, "files": Files, "listing": Listing,
    "piece": Piece, "ended": Ended, "exited": Exited, "stored": Stored, "pruned": Pruned,
    "queued": Queued, "error": Error, "beat": Beat,
}  # fmt: skip
_VERBS = {kind: verb for verb, kind in REQUESTS.items()}
_KINDS = {kind: name for table in (CLIENT_MESSAGES, NODE_MESSAGES) for name, kind in table.items()}


def request(asked: Request) -> bytes:
    """Encode the client's first line."""
    return _line({"protocol": PROTOCOL, "verb": _VERBS[type(asked)], **encode(asked)})


def line(message: Union[ClientMessage, NodeMessage]) -> bytes:
    """Encode a message."""
    return _line({_KINDS[type(message)]: encode(message)})


def packed(record: Record) -> str:
    """Return a record as compressed text: it goes to every host of the job, and is the largest part of a plan."""
    import base64
    import zlib

    text = json.dumps(encode(record), separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text)).decode()


def line_with(message: Union[Plan, Rerun], record: str) -> bytes:
    """Encode a message with its record as `packed` returns it, so that the record is encoded once for all hosts."""
    return line(message._replace(record=record))  # type: ignore[arg-type]


def client_message(text: bytes) -> ClientMessage:
    """Decode a line from the client. Raises Malformed."""
    return _message(text, CLIENT_MESSAGES)  # type: ignore[no-any-return]


def node_message(text: bytes) -> NodeMessage:
    """Decode a line from the node. Raises Malformed."""
    return _message(text, NODE_MESSAGES)  # type: ignore[no-any-return]


def parse(text: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises Malformed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Malformed("it is not an object of JSON")
    return found


def journal_entry(text: bytes) -> JournalEntry:
    """Decode a line of journalctl's JSON. Raises Malformed."""
    found = parse(text)
    try:
        time = decode(float, int(found["__REALTIME_TIMESTAMP"]) / 1e6)
        more = (str(found.get("_SYSTEMD_UNIT", "")), str(found.get("_TRANSPORT", "stdout")))
        message = _journal_bytes(found.get("MESSAGE"))
        piece = (str(found.get("_STREAM_ID", "")), found.get("_LINE_BREAK") == "line-max")
        entry = JournalEntry(decode(str, found["__CURSOR"]), time, *more, message, *piece)
        if entry.transport != "driver" or "N_DROPPED" not in found:
            return entry
        return entry._replace(unit=str(found.get("OBJECT_SYSTEMD_UNIT", "")), dropped=int(found["N_DROPPED"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Malformed(f"not an entry of the journal: {text[:200]!r}") from None


def signal_name(number: int) -> str:
    """Return ``SIGKILL``, or ``SIG35`` for a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _journal_bytes(value: Any) -> bytes:
    """Return the bytes of a MESSAGE. journalctl's JSON gives bytes that are not UTF-8 as a list, and several fields of
    that name as a list of them (systemd.io, JOURNAL_EXPORT_FORMATS)."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return _journal_bytes(value[0])
    if isinstance(value, list):
        return bytes(value)
    return b"" if value is None else str(value).encode(errors="replace")


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _message(text: bytes, kinds: dict[str, Any]) -> Any:
    found = parse(text)
    name = next(iter(found), "")
    if len(found) != 1 or name not in kinds:
        raise Malformed("it is not an object with a known kind as its only key")
    try:
        return decode(kinds[name], _unpacked(found[name]) if kinds[name] in (Plan, Rerun) else found[name])
    except Malformed as error:
        raise Malformed(f"{name}: {error}") from None


def _unpacked(value: Any) -> Any:
    """Return the fields of a message with its record as an object. Raises Malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("record"), str):
        return value
    import base64
    import zlib

    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(base64.b64decode(value["record"], validate=True), LINE_LIMIT)
    except (ValueError, zlib.error):
        raise Malformed("record: it is not packed text") from None
    if not unpack.eof:
        raise Malformed(f"record: it is cut off, or longer than {LINE_LIMIT} bytes")
    try:
        return {**value, "record": parse(text)}
    except Malformed as error:
        raise Malformed(f"record: {error}") from None
