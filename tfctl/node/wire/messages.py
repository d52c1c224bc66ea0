"""The messages of each verb: its request, which says what follows it, and then the other messages that only it has.

Messages of several verbs are at the beginning. In a request, ``attempt`` None means the latest, ``tasks`` None all of
the job's tasks on the host.
"""

from typing import Literal, NamedTuple, Optional, Union

from .codec import as_rows, by_name
from .record import Record, TaskName
from .sample import Sample
from .status import BriefStatus, JobStatus, Summary, TaskStateName
from .trace import Printed, StallTrace, TaskTrace


class Beat(NamedTuple):
    """A sign of life."""


class Error(NamedTuple):
    """A failure in sentences. ``exit``: a code of tfctl.node.exits. ``retry``: whether a new hello may resolve it.
    ``stack``: the stack that the host lacks, because the client knows which stacks exist."""

    exit: int
    message: str
    remedy: str = ""
    retry: Optional[bool] = None
    stack: Optional[str] = None


class Go(NamedTuple):
    """Start the units or, within a stop, end them. ``everywhere``: all hosts of the job are being stopped, so none of
    its guards is needed any more."""

    everywhere: Optional[bool] = None


class Piece(NamedTuple):
    """``size`` raw bytes follow, the next ones of the file at this position of the listing, or of stdout (1) or stderr
    (2) of a command."""

    position: int
    size: int


class Gpu(NamedTuple):
    """A device for tasks; a MIG instance counts as one, and its UUID begins with MIG-. ``index``: its position by PCI
    address, from 0. ``memory_mib``: 0 if unknown. ``holder``: who uses it, or empty. ``driver``: the version of the one
    that is loaded; None if the host does not say. ``defect``: why it must not be used, or None."""

    uuid: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    memory_mib: int
    holder: str
    driver: Optional[str] = None
    defect: Optional[str] = None


class MissingGpu(NamedTuple):
    """A GPU on the PCI bus that nvidia-smi does not show. ``bus``: its address, such as 0000:0a:00.0. ``reason``: what
    the kernel's log says of it, or empty."""

    bus: str
    reason: str


class StartRequest(NamedTuple):
    """Start an attempt of a job. ``code``: its digest. ``ports``: the first and last port to look at. ``resolve``: host
    names to look up. ``restart_of``: the attempt whose restart files are wanted. ``guard_ports``: a second range of
    ports, that for the guard's.

    node    hello                                                                        no lock is held
    client  plan, then, only if hello said code false, code and the announced number of raw bytes (tar.gz)
            or rerun: the node makes the plan from the restart files of the attempt that the request named
    node    reserved or refused
    client  share   node  share    the output directory: write, find or remove a mark that other hosts look for
    client  go      node  beat every 5 s, then started, or undone: the node has already undone what it started
    client  keep    node  kept, and ends
    client  beat at any time, without an answer. After 30 s of silence, or if stdin ends before keep, the node
            undoes the start and ends.
    """

    job: str
    code: Optional[str]
    ports: tuple[int, int]
    resolve: tuple[str, ...] = ()
    restart_of: Optional[int] = None
    guard_ports: Optional[tuple[int, int]] = None


class Hello(NamedTuple):
    """``highest``: the job's highest attempt here, or 0. ``ports``: those of the range that are not free, with their
    holders. ``names``: the names to resolve, with their addresses. ``code``: whether that code is here.
    ``gpu_trouble``: why the GPUs cannot be listed. ``restartable``: the tasks that have restart files. ``horovod``:
    whether each installed stack has Horovod; None if the host does not say. ``time``: the host's. ``stacks``: each
    installed stack with its environment; None if the host does not say. ``requirements``: the names of the directories
    with packages of requirements files. ``packed``: whether records may be sent as `packed` returns them.
    ``gpu_cards``: how many nvidia-smi lists, None if unknown; ``missing_gpus``: those that it does not list.
    ``machine``: text that no other machine has; None if the host does not say.
    ``outgoing``: the first and the last port of the range for outgoing connections, if ports of the job may be in it.
    ``tensorflow``: the version in each installed stack, where it is known; None if the host does not say."""

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
    gpu_cards: Optional[int] = None
    missing_gpus: tuple[MissingGpu, ...] = ()
    machine: Optional[str] = None
    outgoing: Optional[tuple[int, int]] = None
    tensorflow: Optional[dict[str, Optional[str]]] = None


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


class Peer(NamedTuple):
    """A task of another host, by the host's name in the inventory: where those of this host connect to."""

    host: str
    address: str
    port: int


class Unreached(NamedTuple):
    """A peer to which this host cannot connect. ``failure``: the end of a sentence that begins with this host's name.
    ``named``: whether its name is the reason."""

    host: str
    failure: str
    named: bool


class Plan(NamedTuple):
    """What a host is to create and start. ``code``: its digest. ``stack``: that of the first task, or ``none``; each
    other task's environment file says its own. ``reach``: peers to which the host tries to connect."""

    job: str
    attempt: int
    run: str
    record: Record
    code: Optional[str]
    output: str
    stack: str
    tasks: tuple[PlannedTask, ...]
    guard: Optional[PlannedGuard] = None
    reach: tuple[Peer, ...] = ()


class Rerun(NamedTuple):
    """The next attempt of a job. The host makes its plan from its restart files, and takes from them whom ``guard``
    notifies. Without ``guard``, the guard of the attempt before goes on."""

    record: Record
    guard: Optional[PlannedGuard] = None


class Code(NamedTuple):
    """``size`` raw bytes follow."""

    size: int


class Reserved(NamedTuple):
    """Everything is written, nothing runs yet. ``unreached``: those of the plan's peers that cannot be reached."""

    unreached: tuple[Unreached, ...] = ()


class Refused(NamedTuple):
    """The plan cannot be carried out. Nothing was made. The session ends."""

    error: Error


class Share(NamedTuple):
    """Write, find or remove an empty file in the output directory."""

    action: Literal["write", "find", "remove"]
    nonce: str


class Shared(NamedTuple):
    """Whether the file was written, found or removed."""

    ok: bool


class Started(NamedTuple):
    """Every unit was started."""


class Undone(NamedTuple):
    """A unit could not be started. Everything was undone. The session ends."""

    error: Error


class Keep(NamedTuple):
    """Let the units run on without this session."""


class Kept(NamedTuple):
    """The units run by themselves."""


class ShowRequest(NamedTuple):
    """The given or latest attempt of a job or, if ``job`` is None, the latest attempt of each. ``lines``: the first
    answer has the age of each running task's last line. ``later``: show, in place of the given attempt, the last of
    those that the guard has started after it. ``timings``: the first answer has the timings of each task. ``jobs``:
    only these jobs, if ``job`` is None. ``summaries``: the jobs that are over may be answered by summaries.
    ``rebooted``: hosts that were rebooted during the given attempt. The guard here cannot see that. ``brief``: long
    records may be left out. A host with an older node part ignores that, and sends them. ``samples``: the answers have
    the last sample of each task.

    node    show; with follow, one more at every change and beat every 5 s until stdin ends.
            With brief, a long record is left out and named by its digest
    """

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
    samples: Optional[bool] = None


class Shown(NamedTuple):
    """The jobs that were asked for, as far as this host has tasks of them. ``time``: the host's. ``past``: jobs that
    are over, in place of their statuses, if the request allows it. ``brief``: those whose records are left out."""

    jobs: tuple[JobStatus, ...]
    time: Optional[float] = None
    past: tuple[Summary, ...] = ()
    brief: tuple[BriefStatus, ...] = ()


class StopRequest(NamedTuple):
    """Without ``tasks`` the whole job is stopped and marked. ``run``: stop nothing unless the attempt, or the latest
    one, is this run. ``hold``: mark the tasks, then wait for `go` before any is ended. ``reason``: why, for `events`.
    ``overdue``: the tasks have failed at the deadline of the job. ``give_up``: end only those that fail at once, and do
    not wait for their end. ``now``: send SIGKILL after 2 s, whatever grace period the tasks have.

    node    with hold, marked, and waits for go; then beat every 5 s, then stopped
    """

    job: str
    attempt: Optional[int] = None
    tasks: Optional[tuple[TaskName, ...]] = None
    run: Optional[str] = None
    hold: Optional[bool] = None
    reason: Optional[str] = None
    overdue: Optional[bool] = None
    give_up: Optional[bool] = None
    now: Optional[bool] = None


class Marked(NamedTuple):
    """The tasks to stop are marked, and still run. ``attempt``: 0 if the job is not known here. ``hosts``: all of the
    job's hosts, from the first of them; the others send none."""

    attempt: int
    hosts: tuple[str, ...]


class Stopped(NamedTuple):
    """``attempt``: 0 if the job is not known here. ``tasks``: those that were live. ``left``: a sentence for each
    process, port or unit that is left."""

    attempt: int
    tasks: tuple[TaskName, ...]
    left: tuple[str, ...]


class RestartRequest(NamedTuple):
    """Restart these tasks in place. ``run``: restart nothing unless the attempt is this run.

    node    beat every 5 s, then restarted; error with exit 7 if a unit is gone
    """

    job: str
    attempt: int
    tasks: tuple[TaskName, ...]
    run: Optional[str] = None


class Restarted(NamedTuple):
    """The tasks run again."""

    attempt: int
    tasks: tuple[TaskName, ...]


class EventsRequest(NamedTuple):
    """The events of all attempts. ``brief``: a long record may be left out.

    node    events
    """

    job: str
    brief: Optional[bool] = None


class Event(NamedTuple):
    """``event``: start, stop or restart (by a user or the guard), retry or notify (by the guard), begin or end (of
    an invocation of a task's unit). ``role`` and ``index`` are None for the whole job. ``reason``: why the guard did
    it. ``oom``: true if the invocation ended because the kernel killed a process of it for lack of memory."""

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


class Events(NamedTuple):
    """The events in the order of time, and the job's latest attempt as in Shown. ``time``: the host's."""

    jobs: tuple[JobStatus, ...]
    events: tuple[Event, ...]
    time: Optional[float] = None
    brief: tuple[BriefStatus, ...] = ()


class NodesRequest(NamedTuple):
    """What the host has and who uses it. ``brief``: without `stored_mib` and `drifts`, for which files are read.

    node    node
    """

    brief: Optional[bool] = None


class Card(NamedTuple):
    """An NVIDIA card: its settings and readings. Unknown ones are None.

    ``persistence``, ``ecc``: whether these modes are enabled. ``ecc_errors``: memory errors since the last reboot that
    were not corrected. ``mhz``, ``max_mhz``: of the processors. ``mig``: the profiles of the MIG instances; None if the
    card is not in MIG mode. ``notices``: what somebody should look at, although tasks get the card.
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
    notices: tuple[str, ...] = ()


class Disk(NamedTuple):
    """The file system of a directory. ``device`` identifies it among those of its host."""

    path: str
    device: int
    free_mib: int
    total_mib: int


class RunningTask(NamedTuple):
    """A live task of any job."""

    job: str
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    state: TaskStateName


class Node(NamedTuple):
    """``version``: the version of the node part. ``os``: the name of the operating system. ``systemd``: the version of
    systemd, or 0 if it is unknown. ``load``: the load of the last minute. ``memory_mib``: total and available memory.
    ``stacks``: the installed stacks, with their environments. ``ports``: the ports that jobs hold, with their holders.
    ``disks``: the directory of the jobs, then the directories for output. ``stored_mib``: the size of the code of all
    jobs and of what their tasks have written beside it. ``drifts``: what has changed since the host was provisioned, in
    sentences. ``cards``: the NVIDIA cards, if nvidia-smi answers. ``time``: the time of the host's clock.
    ``gpu_cards``, ``missing_gpus``: see Hello. ``machine``: text that no other machine has. Unknown values are None."""

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
    gpu_cards: Optional[int] = None
    missing_gpus: tuple[MissingGpu, ...] = ()
    machine: Optional[str] = None


class LogsRequest(NamedTuple):
    """The lines of tasks. ``cursor``: the journal's, of the last line read. ``tail``: how many of the last lines.
    ``since``, ``until``: epoch seconds. ``grep``: send only lines that match this regular expression of Python's, and
    pieces of split lines. The host may ignore it. ``patience``: how long (s) journald may take to write what tasks have
    printed; by default a minute. ``states``: with ``follow``, also send what `show` with `follow`, `later` and `brief`
    sends. ``collect``: with ``follow``, for how long (s) to collect lines that are then sent together; by default, each
    is sent at once. A host with an older node part ignores the last two.

    node    beat every 5 s, then logs, then journalctl's own JSON lines;
            with grep or states, among them beats and, as the last line, perhaps an error.
            With follow and states, among them also show: one before the first line, if it can be made soon,
            and one more at every change; and beat after 5 s of silence
    """

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
    collect: Optional[float] = None


class Logs(NamedTuple):
    """The attempt, its run, and the units whose lines follow. ``synced``: false if journald did not confirm that it
    has written everything that the tasks have printed. ``began``: when the first invocation of each unit began.
    ``oldest``: the time of the oldest entry in the journal; None after a cursor, or if unknown. ``states``: true if
    states are sent among the lines. ``time``: the host's."""

    attempt: int
    run: str
    units: dict[str, TaskName]
    synced: bool = True
    began: Optional[dict[str, float]] = None
    oldest: Optional[float] = None
    states: Optional[bool] = None
    time: Optional[float] = None


class PullRequest(NamedTuple):
    """What an attempt has: its tasks' files here and, unless they are not wanted, those of its output. ``run``: refuse
    unless the attempt is this run.

    node    files, then listings; for each file that the client asks for with fetch: pieces, each followed by its
            raw bytes, then ended
    """

    job: str
    attempt: Optional[int] = None
    output: bool = True
    run: Optional[str] = None


class TaskFiles(NamedTuple):
    """``unit``: the text of the task's unit file. ``tf_config``: the value of TF_CONFIG, if the task has one."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    unit: str
    tf_config: Optional[str] = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class Files(NamedTuple):
    """The files of the attempt's tasks here, as far as the host still has them."""

    attempt: int
    tasks: tuple[TaskFiles, ...]


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


class Listing(NamedTuple):
    """A part of what is in the output directory. ``skipped``: a sentence for each thing that cannot be sent."""

    files: tuple[OutputFile, ...]
    skipped: tuple[str, ...] = ()
    last: bool = False


class Fetch(NamedTuple):
    """Send these files: the position of each in the listing, from 0, and the number of bytes to skip."""

    files: tuple[tuple[int, int], ...]


class Ended(NamedTuple):
    """The end of a file. ``fault``: why the rest of it cannot be sent."""

    position: int
    fault: Optional[str] = None


class ExecRequest(NamedTuple):
    """Run the command ``words`` as the jobs' user, restricted as the jobs are. ``environment``: with the variables, the
    working directory and the limits of this task of the latest attempt; otherwise only with its stack on the PATH, and
    without a directory to write to. ``run``: only if the latest attempt is this run.

    node    beat every 5 s and pieces (1: stdout, 2: stderr), each followed by its raw bytes, then exited;
            the end of stdin, or 30 s of silence, ends the command
    """

    job: str
    run: str
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    words: tuple[str, ...]
    environment: bool = True


class Exited(NamedTuple):
    """The end of a command: its exit status, or the name of the signal that ended it."""

    status: Optional[int]
    signal: Optional[str] = None


class Ticket(NamedTuple):
    """A place in the queue of clients that wait to start a job: the earliest is first. ``time``: by the clock of the
    host that gave it. ``nonce``: 8 hex digits, for tickets of the same time."""

    time: float
    nonce: str


class QueueRequest(NamedTuple):
    """Wait in the queue of this host until stdin ends. ``ticket``: the one that the first host of the job gave.

    node    queued, one more at every change and beat every 5 s until stdin ends
    """

    job: str
    ticket: Optional[Ticket] = None


class Queued(NamedTuple):
    """``ahead``: who is before this client in the queue of this host: each job with its user."""

    ticket: Ticket
    ahead: tuple[str, ...]


class AttemptName(NamedTuple):
    """``run``: empty if the attempt has no record that can be read."""

    job: str
    attempt: int
    run: str


class PruneRequest(NamedTuple):
    """List the attempts of one job or of all or, with ``attempts``, delete these and the code that no other needs.

    node    stored; with attempts, beat every 5 s, then pruned
    """

    job: Optional[str] = None
    attempts: Optional[tuple[AttemptName, ...]] = None


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


class Stored(NamedTuple):
    """The attempts that this host keeps."""

    attempts: tuple[StoredAttempt, ...]


class Pruned(NamedTuple):
    """What was deleted. ``mib``: its size, with that of code; None if unknown. ``kept``: a sentence about each attempt
    that was not deleted."""

    attempts: tuple[AttemptName, ...]
    mib: Optional[int] = None
    kept: tuple[str, ...] = ()


class NotifyRequest(NamedTuple):
    """Only of a guard, about its own job: run the program of the policy's `notify`. ``outcome``: its stdin.

    node    beat every 5 s, then notified
    """

    job: str
    outcome: str


class Notified(NamedTuple):
    """The program of the policy's `notify` has run. ``error``: why it failed, or None."""

    error: Optional[str] = None


class LeaveRequest(NamedTuple):
    """Only of a guard, about its own job: end the guard and remove its units and its key.

    node    left
    """

    job: str


class Left(NamedTuple):
    """The guard is being removed."""


class SampleRequest(NamedTuple):
    """Only of a guard, about its own job: sample the tasks of the latest attempt every SAMPLE_S until stdin ends.

    node    sampled, again and again
    """

    job: str


class Sampled(NamedTuple):
    """A sample of the tasks of this attempt."""

    attempt: int
    sample: Sample


class SamplesRequest(NamedTuple):
    """What the guard has kept of the given or latest attempt of a job, since a time. ``follow``: also those that come,
    until stdin ends.

    node    samples, several times if there are many; the last one of those that are there already says so;
            with follow, beat every 5 s
    """

    job: str
    attempt: Optional[int] = None
    since: Optional[float] = None
    follow: bool = False


class Samples(NamedTuple):
    """Samples of an attempt, oldest first. ``last``: those that follow are new. ``time``: the host's."""

    attempt: int
    samples: tuple[Sample, ...]
    last: bool = False
    time: Optional[float] = None


class TraceRequest(NamedTuple):
    """What the tasks of the latest attempt of a job do, measured for so many seconds. ``tasks``: only these. ``run``:
    only if the latest attempt is this run. ``full``: also their last lines and connections, and what the kernel and the
    disks of the host say.

    node    beat every 5 s, then traced
    """

    job: str
    run: str
    tasks: Optional[tuple[TaskName, ...]] = None
    seconds: float = 0.5
    full: Optional[bool] = None


class Traced(NamedTuple):
    """``kernel``: lines of its log since the attempt began that concern memory or GPUs. ``disks``: as in Node.
    ``time``: the host's. ``stall``: what the guard noted when the job stalled, if it has, and the request is full."""

    attempt: int
    tasks: tuple[TaskTrace, ...]
    kernel: tuple[Printed, ...] = ()
    disks: tuple[Disk, ...] = ()
    time: Optional[float] = None
    stall: Optional[StallTrace] = None


as_rows(AttemptName, StoredAttempt)

Request = Union[
    StartRequest, ShowRequest, StopRequest, RestartRequest, EventsRequest, NodesRequest, LogsRequest, PullRequest,
    ExecRequest, QueueRequest, PruneRequest, NotifyRequest, LeaveRequest,
    SampleRequest, SamplesRequest, TraceRequest,
]  # fmt: skip
ClientMessage = Union[Plan, Rerun, Code, Share, Go, Keep, Fetch, Beat]
NodeMessage = Union[
    Beat, Error, Hello, Reserved, Refused, Shared, Started, Undone, Kept, Shown, Marked, Stopped, Restarted, Events,
    Node, Logs, Files, Listing, Piece, Ended, Exited, Queued, Stored, Pruned, Notified, Left,
    Sampled, Samples, Traced,
]  # fmt: skip
#: The classes by their names on the wire.
REQUESTS = by_name(Request)
CLIENT_MESSAGES = by_name(ClientMessage)
NODE_MESSAGES = by_name(NodeMessage, share=Shared, show=Shown)
