"""The tables of jobs, tasks and events. One definition serves text and JSON.

To add a column, add a line to the table and, if it has a key in JSON, the key to the type of its rows above it.
Unless a reader always needs it, give it a rank, or make it ``wide``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, cast

from tfctl.cli import text
from tfctl.jobs.culprits import Culprit, CulpritObject
from tfctl.node import names
from tfctl.wording import Lines, abbreviated, cell, plain, rfc3339, rfc3339_ms, unmarked, with_remedy

if TYPE_CHECKING:
    from tfctl.cli.objects import PlaceObject
    from tfctl.jobs.events import Event
    from tfctl.jobs.past import PastJob
    from tfctl.jobs.progress import Progress
    from tfctl.jobs.state import JobState, TaskState
    from tfctl.node.wire import JobStateName, TaskStateName

T = TypeVar("T")
#: A task that has printed nothing for longer (s) may be frozen.
QUIET_S = 60.0
#: What JSON can hold.
Value = str | int | float | bool | list[str] | Mapping[str, object] | None


class Column(Generic[T]):
    """A column of a table: its heading and cell in text, and its keys in JSON.

    Without a heading it is only in JSON, without keys only in text. ``coloured``: the cell is a state. ``if_needed``:
    the text leaves the column out if all its cells are empty. ``rank``: a narrow terminal shows
    the columns that fit, those with a low rank first. Those of rank 0 are never left out: names, states and what needs
    attention. ``wide``: only `-o wide` shows the column.
    """

    def __init__(
        self,
        heading: str,
        cell: Callable[[T], str],
        coloured: bool = False,
        if_needed: bool = False,
        rank: int = 0,
        wide: bool = False,
        **keys: Callable[[T], Value],
    ) -> None:
        self.heading, self.cell, self.coloured, self.if_needed, self.keys = heading, cell, coloured, if_needed, keys
        self.rank, self.wide = rank, wide


class Table(Generic[T]):
    """A table, one row for each value."""

    def __init__(self, *columns: Column[T]) -> None:
        self._columns = columns
        self._visible = [column for column in columns if column.heading]

    def render(self, values: Iterable[T], wide: bool = False) -> text.Rendered:
        """Return the rows below their headings. ``wide``: with all columns."""
        values = list(values)
        columns = [column for column in self._visible if wide or not column.wide]
        columns = [column for column in columns if not column.if_needed or any(map(column.cell, values))]
        rows = [[column.heading for column in columns]]
        rows += [[column.cell(value) for column in columns] for value in values]
        state = next((number for number, column in enumerate(columns) if column.coloured), None)
        return text.table(rows, [column.rank for column in columns], state, wide)

    def json(self, values: Iterable[T]) -> list[dict[str, Value]]:
        """Return an object for each value."""
        keys: Mapping[str, Callable[[T], Value]] = {
            name: get for column in self._columns for name, get in column.keys.items()
        }
        return [{name: get(value) for name, get in keys.items()} for value in values]


def job_text(state: JobState, wide: bool = False) -> text.Rendered:
    """Return a job's state and its reason, above a table of its tasks, failed ones first."""
    record = state.record
    head = f"{state.job}  attempt {state.attempt}  {cell(record.strategy)}  {cell(record.stack)}  "
    reason = [f"  {line}" for line in explained(state, state.reason).split("\n")] if state.reason else []
    far = [f"  {progress_text(state.progress)}"] if state.progress else []
    left = [f"  {plain(_remaining(state))}"] if state.remaining else []
    tasks = TASKS.render(state.by_attention(), wide)
    lines = [head + text.state_word(state.state), *reason, *far, *left, tasks.text]
    return tasks._replace(text="\n".join(lines))


def job_json(state: JobState) -> JobObject:
    """Return the object that `status -o json` prints, and that `list -o json` prints for each job."""
    found = state.why
    why = Culprit.of(found).as_object() if found else None
    return cast("JobObject", {**JOBS.json([state])[0], "why": why, "tasks": TASKS.json(state.tasks)})


def explained(state: JobState, sentence: str) -> Lines:
    """Return a sentence about how a job is, with what its guard knows more: the task whose failure explains that of the
    job, if the sentence does not say so, and what to do."""
    said, found = unmarked(plain(sentence)), state.why
    if found is None:
        return with_remedy(said, f"see what each task did then: tfctl why {state.job}" if state.stall else "")
    remedy = unmarked(plain(found.remedy))
    if found.sentence == state.cause:
        return with_remedy(said, remedy)
    return Lines(said, *with_remedy(unmarked(plain(found.sentence)), remedy).split("\n"))


def progress_text(progress: Progress) -> str:
    """Return how far a job is, such as ``step 1,200 of 6,000, epoch 2, 20 %, 512 examples/s, 4 min left``."""
    total = f" of {progress.total:,}" if progress.total is not None else ""
    parts = [
        f"step {progress.step:,}{total}" if progress.step is not None else "",
        f"epoch {progress.epoch}" if progress.epoch is not None else "",
        f"{progress.percent:.0f} %" if progress.percent is not None else "",
        f"{text.figure(progress.rate)} examples/s" if progress.rate is not None else "",
        f"{text.duration(progress.left)} left" if progress.left is not None else "",
    ]
    return ", ".join(filter(None, parts))


def progress_json(job: JobState | PastJob) -> ProgressObject | None:
    """Return the object about how far a job is, a ProgressObject."""
    found = job.progress
    if found is None:
        return None
    return {
        "step": found.step, "total": found.total, "epoch": found.epoch, "percent": found.percent, "rate": found.rate,
        "left_s": found.left,
    }  # fmt: skip


def _brief_progress(job: JobState | PastJob) -> str:
    found = job.progress
    if found is None or job.ended:
        return ""
    if found.percent is None:
        return f"step {found.step:,}" if found.step is not None else ""
    return f"{found.percent:.0f} %" + (f", {text.duration(found.left)} left" if found.left is not None else "")


def events_json(events: Iterable[Event]) -> list[EventObject]:
    """Return an object for each event."""
    return cast("list[EventObject]", EVENTS.json(events))


def place_json(state: JobState, task: TaskState) -> PlaceObject:
    """Return what every JSON object about one task of a job begins with."""
    return {"job": state.job, "role": task.role, "index": task.index, "host": task.host}


def _exit(task: TaskState) -> str:
    status = task.status
    found = status.signal or ("" if status.exit_code is None else str(status.exit_code))
    return f"{found}, out of memory" if status.oom else found


def _last_line(task: TaskState) -> str:
    """Return how long ago a task printed its last line, or nothing if that is a minute or less."""
    age = task.status.last_line_age or 0.0
    return f"{text.duration(age)} ago" if age > QUIET_S else ""


def _task_lasted(task: TaskState) -> str:
    """Return how long a task has run. The end of one may be unknown, as after a power loss."""
    status = task.status
    return "" if status.finished is None and not task.alive else text.lasted(status.started, status.finished)


def _job_lasted(job: JobState | PastJob) -> str:
    return "" if job.ended and not job.finished else text.lasted(job.started, job.finished)


def _job_state(job: JobState | PastJob) -> str:
    return f"{job.state}, {job.left} task{'' if job.left == 1 else 's'} alive" if job.left else job.state


def _remaining(job: JobState) -> str:
    """Return a sentence about the tasks that are still alive, with the command that ends them."""
    tasks = abbreviated([f"{task} on {task.host}" for task in job.remaining])
    which = " of another run" if job.others else ""
    return f"still alive{which}: {tasks}; tfctl stop {job.job} stops every task under this name"


def _how(event: Event) -> str:
    code = "" if event.exit_code is None else f"exit code {event.exit_code}"
    if event.oom:
        return f"{event.signal or code}, out of memory"
    return event.signal or code or event.reason or (f"by {event.by}" if event.by else "")


class TaskObject(TypedDict):
    """One task. ``index``: its number within the role, from 0. ``host``: the name in the inventory.

    ``address``: the address at which the other tasks reach it. ``port``: the port at which they reach it. ``unit``: its
    systemd unit. ``exit_code``: the exit code of its last run, or null. ``signal``: the name of the signal that ended
    its last run, or null. ``oom``: whether the kernel killed it because it ran out of memory. ``restarts``: how often
    it was restarted in this attempt.
    ``started``, ``finished``: RFC 3339, in UTC, or null. ``reason``: why a guard has stopped it, or an empty string.
    ``last_line_age``: how long ago it printed its last line, in seconds; null if it does not run or the command does
    not ask. ``gpus``: the UUIDs of its GPUs.
    """

    role: str
    index: int
    host: str
    address: str
    port: int
    unit: str
    state: TaskStateName
    exit_code: int | None
    signal: str | None
    oom: bool
    restarts: int
    started: str | None
    finished: str | None
    reason: str
    last_line_age: float | None
    gpus: list[str]


TASKS: Table[TaskState] = Table(
    Column("TASK", str, role=lambda task: task.role, index=lambda task: task.index),
    Column("HOST", lambda task: task.host, host=lambda task: task.host),
    Column(
        "ADDRESS", lambda task: names.endpoint(task.record.address, task.record.port), rank=4,
        address=lambda task: task.record.address, port=lambda task: task.record.port,
    ),
    Column("", str, unit=lambda task: task.record.unit),
    Column("STATE", lambda task: task.state, coloured=True, state=lambda task: task.state),
    Column(
        "EXIT", _exit,
        exit_code=lambda task: task.status.exit_code, signal=lambda task: task.status.signal,
        oom=lambda task: bool(task.status.oom),
    ),
    Column(
        "RESTARTS", lambda task: str(task.status.restarts), rank=1, restarts=lambda task: task.status.restarts
    ),
    Column(
        "STARTED", lambda task: text.clock(task.status.started), rank=3,
        started=lambda task: rfc3339(task.status.started),
    ),
    Column("LASTED", _task_lasted, rank=2, finished=lambda task: rfc3339(task.status.finished)),
    Column(
        "REASON", lambda task: task.status.reason or "", if_needed=True,
        reason=lambda task: task.status.reason or "",
    ),
    Column("LAST LINE", _last_line, if_needed=True, last_line_age=lambda task: task.status.last_line_age),
    Column("", str, gpus=lambda task: list(task.record.gpus)),
)  # fmt: skip


class ProgressObject(TypedDict):
    """How far a job is, by the slowest of the tasks that decide it. Unknown values are null.

    ``step``: how many steps it has made; ``total``: of how many. ``epoch``: the number of the present one, from 1.
    ``percent``: of the steps or epochs. ``rate``: examples per second of the whole job. ``left_s``: how many seconds
    are left at the pace of the last ten minutes.
    """

    step: int | None
    total: int | None
    epoch: int | None
    percent: float | None
    rate: float | None
    left_s: float | None


class JobObject(TypedDict):
    """One attempt of a job.

    ``run``: 8 hexadecimal digits that identify the attempt. ``alive``: the number of tasks of this job, or of another
    run under its name, that are alive although the job has ended. ``inventory``: the path of the inventory on the
    machine that started the job. ``started``, ``finished``: RFC 3339, in UTC, or null. ``reason``: why the job is in
    this state, or an empty string. ``culprit``: the task that made it fail, such as ``worker/3``, or null.
    ``progress``: how far it is, or null if nothing is known. ``why``: the task whose failure explains that of the job,
    as far as its guard knows, or null.
    """

    job: str
    attempt: int
    run: str
    state: JobStateName
    alive: int
    strategy: str
    inventory: str
    started: str | None
    finished: str | None
    reason: str
    culprit: str | None
    progress: ProgressObject | None
    why: CulpritObject | None
    tasks: list[TaskObject]


JOBS: Table[JobState | PastJob] = Table(
    Column("JOB", lambda job: job.job, job=lambda job: job.job),
    Column("ATTEMPT", lambda job: str(job.attempt), rank=3, attempt=lambda job: job.attempt),
    Column("", str, run=lambda job: job.run),
    Column("STATE", _job_state, coloured=True, state=lambda job: job.state, alive=lambda job: job.left),
    Column("PROGRESS", _brief_progress, if_needed=True, rank=1, progress=progress_json),
    Column("STRATEGY", lambda job: job.strategy, rank=7, strategy=lambda job: job.strategy),
    Column("TASKS", lambda job: str(job.task_count), rank=6),
    Column("HOSTS", lambda job: str(job.host_count), rank=5),
    Column("", str, inventory=lambda job: job.inventory),
    Column("STARTED", lambda job: text.clock(job.started), rank=4, started=lambda job: rfc3339(job.started)),
    Column("LASTED", _job_lasted, rank=2, finished=lambda job: rfc3339(job.finished)),
    Column("", str, reason=lambda job: job.reason, culprit=lambda job: str(job.culprit) if job.culprit else None),
)


class EventObject(TypedDict):
    """One event. ``time``: RFC 3339, in UTC, by this machine's clock.

    ``role``, ``index``: the task, or null for an event of the whole job. ``host``: where it happened, or null.
    ``event``: a start, stop or restart by a user; the begin or end of a task's run; the success or failure of the job;
    or an action of a guard (retry, notify, stall, resume). ``by``: the user, or null. ``oom``: whether the kernel
    killed the task because it ran out of memory. ``reason``: more about it, or an empty string.
    """

    time: str
    attempt: int
    role: str | None
    index: int | None
    host: str | None
    event: str
    by: str | None
    exit_code: int | None
    signal: str | None
    oom: bool
    reason: str


EVENTS: Table[Event] = Table(
    Column("TIME", lambda event: text.clock(event.time), time=lambda event: rfc3339_ms(event.time)),
    Column("ATTEMPT", lambda event: str(event.attempt), rank=2, attempt=lambda event: event.attempt),
    Column("TASK", lambda event: event.task, role=lambda event: event.role, index=lambda event: event.index),
    Column("HOST", lambda event: event.host or "", rank=1, host=lambda event: event.host),
    Column("EVENT", lambda event: event.event, coloured=True, event=lambda event: event.event),
    Column(
        "HOW", _how,
        by=lambda event: event.by, exit_code=lambda event: event.exit_code, signal=lambda event: event.signal,
        oom=lambda event: bool(event.oom), reason=lambda event: event.reason,
    ),
)  # fmt: skip
