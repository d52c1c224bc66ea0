"""The messages of the node, and what the host has that these describe."""

from typing import NamedTuple, Optional, Union

from .client_messages import Beat
from .codec import by_name
from .record import TaskName
from .requests import Ticket
from .status import AttemptName, BriefStatus, Event, JobStatus, StoredAttempt, Summary, TaskStateName


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
    job's hosts, from the first of them; the others send none."""

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


NodeMessage = Union[
    Hello, Reserved, Refused, Shared, Started, Undone, Kept, Shown, Marked, Stopped, Restarted, Events, Node, Logs,
    Notified, Left, Files, Listing, Piece, Ended, Exited, Stored, Pruned, Queued, Error, Beat,
]  # fmt: skip
NODE_MESSAGES = by_name(NodeMessage, share=Shared, show=Shown)
