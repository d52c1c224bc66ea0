"""A job as it was started, and what its users have done to it: a host keeps both in files."""

from typing import Literal, NamedTuple, Optional

TaskName = tuple[str, int]


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
    """The keys of the job file's policy that its hosts need, under the same names. Durations are in seconds.

    tfctl.model.plan fills this class by name. A new key goes here, also if only the guard needs it, and has a default,
    because older records lack it. Those that RecordedGuard has stay there: node parts and guards of other versions look
    for them there.
    """

    clean: Literal["running", "all", "none"]
    max_restarts: int
    deadline: Optional[int]
    grace: int
    drain: int


class RecordedGuard(NamedTuple):
    """How the guards of a job watch it. Durations are in seconds. The keys of the policy are filled in by name, like
    those of RecordedPolicy.

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
    stall: Optional[int] = None
    on_stall: Literal["report", "restart", "fail"] = "report"


class Record(NamedTuple):
    """The job as it was started, the same on all its hosts. A host keeps it as job.json.

    ``shared``: several tasks write to the output. ``code``: its digest, or empty. ``deciders``: the tasks whose end
    decides the job. ``vital``: groups of tasks; the job fails once all tasks of a group are gone for good. ``leaves``:
    roles whose tasks end by themselves soon after the deciders. ``progress``: how to read progress from what tasks
    print (tfctl.node.progress); ``progress_total``: how many steps, or epochs, there are. Older records lack fields
    that have a default.
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
    progress_total: Optional[int] = None


class UserAction(NamedTuple):
    """A line of notes.jsonl on a host. ``deed``: start, stop or restart; of the guard also retry, notify, stall or
    resume. ``tasks``: None for the whole job. ``reason``: why the guard did it."""

    time: float
    deed: str
    by: str
    tasks: Optional[tuple[TaskName, ...]]
    reason: Optional[str] = None
