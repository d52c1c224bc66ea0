"""The objects that ``-o json`` prints. scripts/reference writes docs/reference/json.md from these types.

The types of a table's rows are beside the table, in tables.py. A docstring says what the keys mean, in sentences that
begin with a key: ``key``: its meaning.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from tfctl.cli.tables import EventObject, JobObject, ProgressObject
from tfctl.errors import ErrorObject
from tfctl.jobs.nodes import NodeObject, StateName
from tfctl.jobs.why import WhyObject
from tfctl.lab.status import LabStatus
from tfctl.model.stacks import Stack
from tfctl.node.wire import JobStateName, Node, TaskStateName
from tfctl.provision.explanation import Explanation
from tfctl.report.table import FlatRunObject, ReportObject, RunFiguresObject
from tfctl.verify.results import ResultsObject


class FailedObject(TypedDict):
    """Printed instead of the command's own object if the command fails."""

    error: ErrorObject


class EndedJobObject(JobObject):
    """The job, as `tfctl status` prints it.

    ``last_lines``: the last ten lines of the task that made the job fail, or null if there is no such task.
    """

    last_lines: list[str] | None


class WrittenFilesObject(TypedDict):
    """``files``: the paths of the files that were written."""

    files: list[str]


class LabRemovedObject(TypedDict):
    """``name``: the name of the lab that was removed."""

    name: str


class LabSnapshotObject(TypedDict):
    """``snapshot``: its name. ``lab``: the name of the lab that it was taken from, or null. ``deleted``: whether it was
    deleted (`--delete`)."""

    snapshot: str
    lab: str | None
    deleted: bool


class JobsObject(TypedDict):
    """``jobs``: the latest attempt of each job, as `tfctl status` prints it, the most recent job first."""

    jobs: list[JobObject]


class StartedTaskObject(TypedDict):
    """A task that was started."""

    role: str
    index: int
    host: str
    address: str | None
    port: int


class StartedJobObject(TypedDict):
    """What was started or, with `--dry-run`, would be started. With `--wait`, the command prints the object of
    `tfctl wait` instead.

    ``run``: 8 hexadecimal digits that identify the attempt.
    """

    job: str
    attempt: int
    run: str
    tasks: list[StartedTaskObject]


class RestartedJobObject(TypedDict):
    """With `--wait`, the command prints the object of `tfctl wait` instead.

    ``attempt``: the attempt that runs now or, with `--dry-run`, would run.
    """

    job: str
    attempt: int


class StoppedJobObject(TypedDict):
    """The job that was stopped. ``stopped``: the tasks that were stopped, such as ``worker/3``."""

    job: str
    stopped: list[str]


class EventsObject(TypedDict):
    """``events``: in order of time."""

    job: str
    events: list[EventObject]


class LostObject(TypedDict):
    """Lines that the journal of a host does not have, or that it did not send whole. ``cause``: `rotated`, deleted
    to make room; `dropped`, never written; `cut`, the line before is only the beginning of a longer one; `unsearched`,
    left out because `--grep` took too long. ``since``, ``until``: RFC 3339, in UTC, or null if unknown. ``lines``:
    their number, or null if unknown."""

    cause: Literal["rotated", "dropped", "cut", "unsearched"]
    since: str | None
    until: str | None
    lines: int | None


class LineObject(TypedDict):
    """One line of a log. The command prints one such object on each line of its output.

    ``time``: RFC 3339, in UTC, with milliseconds. ``stream``: `stdout`, which also has the lines of stderr, because
    journald does not distinguish them; or `lost`, in place of lines that are missing.
    ``line``: the text, or a sentence about the lost lines. ``lost``: only if `stream` is `lost`.
    """

    time: str
    role: str
    index: int
    host: str
    stream: str
    line: str
    lost: NotRequired[LostObject]


class PlaceObject(TypedDict):
    """A task and its host. ``job``: the name of the job."""

    job: str
    role: str
    index: int
    host: str


class ExecLineObject(PlaceObject):
    """A line that the command has written. The command prints such an object for each line.

    ``line``: the text.
    """

    stream: Literal["stdout", "stderr"]
    line: str


class ExecEndObject(PlaceObject):
    """The end of the command beside one task: one object for each task, after all lines.

    ``exit_code``: the exit code of the command, or null. ``signal``: the name of the signal that ended it, or null.
    """

    exit_code: int | None
    signal: str | None


class ExecErrorObject(PlaceObject):
    """Printed for a task in place of the end, if the command could not be run or its end is unknown."""

    error: ErrorObject


class ForwardedObject(PlaceObject):
    """Printed when the port can be reached. ``address``: the address on which this machine listens. ``port``: the port
    on which this machine listens. ``host_port``: the port of the host."""

    address: str
    port: int
    host_port: int


class LoginObject(PlaceObject):
    """The command that would log in. It is not run. ``command``: its words."""

    command: list[str]


class TensorboardObject(PlaceObject):
    """Printed when TensorBoard listens. ``url``: its URL on this machine."""

    url: str


class RenderedObject(TypedDict):
    """``files``: the text of each file that `tfctl start` installs, by HOST/FILE."""

    job: str
    files: dict[str, str]


class NodesObject(TypedDict):
    """``nodes``: the hosts, in the order of the inventory."""

    nodes: list[NodeObject]


class TopJobObject(TypedDict):
    """A job that runs. ``attempt``: its number. ``progress``: how far it is, or null if nothing is known."""

    job: str
    attempt: int
    state: JobStateName
    progress: ProgressObject | None


class TopGpuObject(TypedDict):
    """A GPU of a task, over the last ten seconds. ``use``: how much of the time it computed, in percent; null for a MIG
    instance. ``memory``: the bytes that are in use. ``celsius``: its temperature. ``watts``: its power. ``mhz``: the
    clock of its processors. Unknown values are null."""

    uuid: str
    use: int | None
    memory: int | None
    celsius: int | None
    watts: int | None
    mhz: int | None


class TopTaskObject(TypedDict):
    """A task, over the last ten seconds. ``task``: such as ``worker/3``. ``cpu``: the cores that it uses. ``memory``:
    bytes, without the page cache. ``step``: how many steps it has made. ``rate``: examples per second. ``silent_for``:
    how long ago it printed its last line, in seconds. Unknown values are null."""

    job: str
    task: str
    host: str
    state: TaskStateName
    cpu: float | None
    memory: int | None
    gpus: list[TopGpuObject]
    step: int | None
    rate: float | None
    silent_for: float | None


class TopHostObject(TypedDict):
    """A host. ``load``: that of the last minute. ``cpus``: how many processors it has. ``gpus``: how many GPUs it has;
    ``gpus_free``: how many of them no task and no other process uses. If it does not answer, these are null."""

    host: str
    state: StateName
    load: float | None
    cpus: int | None
    gpus: int | None
    gpus_free: int | None


class TopObject(TypedDict):
    """``jobs``: those that are not over, or the one that was named. ``tasks``: those that need attention first.
    ``hosts``: all, or those of the job that was named."""

    jobs: list[TopJobObject]
    tasks: list[TopTaskObject]
    hosts: list[TopHostObject]


class FrameObject(TypedDict):
    """A function that is being called. ``name``: its name. ``file``, ``line``: where it is."""

    name: str
    file: str
    line: int


class ThreadObject(TypedDict):
    """A thread. ``name``: its name, or null. ``active``: whether it runs. ``frames``: the innermost function first."""

    name: str | None
    active: bool
    frames: list[FrameObject]


class TracedTaskObject(TypedDict):
    """A task. ``role``, ``index``, ``host``, ``state``: as `tfctl status` prints them.

    ``process``: running, stopped (by a signal), frozen, blocked (in the kernel), gone, or unknown. ``cpu``: how many
    cores it uses, or null. ``does``: what it does, in words. ``where``: the innermost function of the user's own code,
    or "". ``trouble``: why there are no stacks, or "". ``threads``: those that have called Python.
    """

    role: str
    index: int
    host: str
    state: TaskStateName
    process: str
    cpu: float | None
    does: str
    where: str
    trouble: str
    threads: list[ThreadObject]


class TraceObject(TypedDict):
    """``job``: its name. ``attempt``: the attempt. ``tasks``: those that were asked for."""

    job: str
    attempt: int
    tasks: list[TracedTaskObject]


class MistakeObject(TypedDict):
    """A mistake. ``remedy``: what to do, or an empty string."""

    message: str
    remedy: str


class CheckObject(TypedDict):
    """``tasks``: the number of tasks. ``hosts``: the names of the hosts of the job. These and ``job`` are null if the
    job file cannot be used. ``warnings``: the warnings, as sentences."""

    job: str | None
    tasks: int | None
    hosts: list[str] | None
    errors: list[MistakeObject]
    warnings: list[str]


class PulledObject(TypedDict):
    """``directory``: the path of the directory. ``output``: the path of the output in it. ``attempts``: the attempts
    whose logs were copied. ``files``: the number of output files that were copied. ``bytes``: the size of these files.
    ``kept``: the number of output files that were in the directory already. ``faults``: what could not be copied, in
    sentences."""

    job: str
    directory: str
    output: str
    attempts: list[int]
    files: int
    bytes: int
    kept: int
    faults: list[str]


class ExaminedHostObject(TypedDict):
    """A host that preflight has examined. ``exit``: its exit code. ``faults``: what would prevent its provisioning.
    ``drifts``: what has changed since it was provisioned, in sentences. ``warnings``: other warnings; one about several
    hosts is listed for the first of them."""

    host: str
    state: Literal["fit", "unfit", "unreachable"]
    exit: int
    faults: list[ErrorObject]
    drifts: list[str]
    warnings: list[str]


class PreflightObject(TypedDict):
    """The hosts. ``exit``: the exit code of the command."""

    exit: int
    hosts: list[ExaminedHostObject]


class ProvisionedHostObject(TypedDict):
    """``ok``: the number of tasks that succeeded, as in Ansible's recap. ``changed``: the number of those that changed
    something.

    ``begun``: false for a host of a batch that was not begun, because an earlier one failed. ``task``: the task that
    failed, or an empty string. ``reason``: why, or an empty string. ``remedy``: what to do, or an empty string.
    ``drifts``: what had changed since the host was provisioned, in sentences. ``warnings``: other warnings; one about
    several hosts is listed for the first of them.
    """

    host: str
    ok: int
    changed: int
    failed: bool
    unreachable: bool
    begun: bool
    task: str
    reason: str
    remedy: str
    drifts: list[str]
    warnings: list[str]


class ProvisionObject(TypedDict):
    """``check``: whether nothing was changed (`--check`). ``changed``: the number of tasks that changed something, on
    all hosts. ``exit``: the exit code of the command. ``warnings``: warnings about the run as a whole, such as that it
    ended early."""

    check: bool
    changed: int
    exit: int
    warnings: list[str]
    hosts: list[ProvisionedHostObject]


class ResetHostObject(TypedDict):
    """``removed``: what was removed or, with `--check`, would be. ``kept``: what was left, in sentences.

    ``reason``: why it failed, or an empty string. ``remedy``: what to do, or an empty string.
    """

    host: str
    removed: list[str]
    kept: list[str]
    failed: bool
    unreachable: bool
    reason: str
    remedy: str


class ResetObject(TypedDict):
    """``check``: whether nothing was changed (`--check`). ``exit``: the exit code of the command."""

    check: bool
    exit: int
    hosts: list[ResetHostObject]


class AttemptObject(TypedDict):
    """One attempt that is over. ``run``: 8 hexadecimal digits that identify the attempt. ``started``: RFC 3339, in UTC.
    ``hosts``: the hosts that have files of it. ``mib``: the size of these files, in MiB; null if unknown."""

    job: str
    attempt: int
    run: str
    started: str | None
    hosts: list[str]
    mib: int | None


class PrunedObject(TypedDict):
    """``attempts``: what was deleted or, with `--dry-run`, would be. ``dry_run``: whether nothing was deleted.

    ``mib``: how much was deleted, in MiB; null if unknown.
    """

    attempts: list[AttemptObject]
    dry_run: bool
    mib: int | None


class CachedObject(TypedDict):
    """What `tfctl run` has installed on this machine. ``path``: its directory. ``mib``: its size in MiB; files that it
    shares count in the first one only. ``used``: when a run used it last, RFC 3339, in UTC."""

    path: str
    mib: int
    used: str


class PrunedCacheObject(TypedDict):
    """With `--cache`. ``cache``: what was deleted or, with `--dry-run`, would be. ``dry_run``: whether nothing was
    deleted. ``mib``: how much it is, in MiB."""

    cache: list[CachedObject]
    dry_run: bool
    mib: int


class PlannedRunObject(TypedDict):
    """One run of a sweep. ``settings``: the values that it sets. ``tasks``: the number of tasks.

    ``hosts``: the number of hosts. ``output``: its output directory. ``done``: whether it has succeeded already.
    """

    job: str
    settings: dict[str, str]
    tasks: int
    hosts: int
    output: str
    done: bool


class SweepObject(TypedDict):
    """``runs``: in the order in which they run (`--dry-run`)."""

    runs: list[PlannedRunObject]


class StacksObject(TypedDict):
    """``stacks``: those that tfctl ships, the oldest first, then your own."""

    stacks: list[Stack]


class ExplainedObject(Explanation[ErrorObject]):
    """What each stack would install on a host (`--host`)."""

    stack: str
    host: str


#: The types whose keys an object also has.
PARENTS: dict[type, type] = {
    EndedJobObject: JobObject,
    ExplainedObject: Explanation,
    NodeObject: Node,
    RunFiguresObject: FlatRunObject,
}

#: The types of the objects, by command. Several: which one depends on the options.
OBJECTS: dict[str, tuple[type, ...]] = {
    "init": (WrittenFilesObject,),
    "provision": (ProvisionObject,),
    "preflight": (PreflightObject,),
    "reset": (ResetObject,),
    "check": (CheckObject,),
    "render": (RenderedObject,),
    "start": (StartedJobObject,),
    "run": (LineObject,),
    "status": (JobObject,),
    "list": (JobsObject,),
    "nodes": (NodesObject,),
    "top": (TopObject,),
    "logs": (LineObject,),
    "why": (WhyObject,),
    "trace": (TraceObject,),
    "events": (EventsObject,),
    "exec": (ExecLineObject, ExecEndObject, ExecErrorObject),
    "ssh": (LoginObject,),
    "forward": (ForwardedObject,),
    "tensorboard": (TensorboardObject,),
    "pull": (PulledObject,),
    "prune": (PrunedObject, PrunedCacheObject),
    "report": (ReportObject,),
    "sweep": (SweepObject, ReportObject),
    "wait": (EndedJobObject,),
    "stop": (StoppedJobObject,),
    "restart": (RestartedJobObject,),
    "verify": (ResultsObject,),
    "lab status": (LabStatus,),
    "lab up": (LabStatus,),
    "lab down": (LabRemovedObject,),
    "lab snapshot": (LabSnapshotObject,),
    "stacks": (StacksObject,),
    "stacks explain": (Stack, ExplainedObject),
    "stacks lock": (WrittenFilesObject,),
}
