"""What the tasks of a job do at this moment, as their hosts see it, and in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfctl.errors import TfctlError, together
from tfctl.jobs.state import JobState, TaskState
from tfctl.node import names, wire
from tfctl.remote.session import ask_node
from tfctl.wording import consecutive

if TYPE_CHECKING:
    from tfctl.remote.fleet import Fleet
    from tfctl.remote.transport import Connection

#: What a task does that waits for others (`together`: an operation in which all take part; `join`: it joins the
#: cluster; `execute`: it has given work to others), or what else takes its time.
Kind = Literal["together", "join", "execute", "serve", "input", "save", "sleep", "other"]


@dataclass(frozen=True)
class Wait:
    """What a function of a library does for as long as it is called. ``file``: how the name of its file ends."""

    function: re.Pattern[str]
    file: str
    kind: Kind
    words: str


def _wait(function: str, file: str, kind: Kind, words: str) -> Wait:
    return Wait(re.compile(rf"(?:.*\.)?(?:{function})"), file, kind, words)


#: Functions of TensorFlow, Horovod and Python in which tasks wait, found in the stacks of tasks that did. The first one
#: that applies to the innermost frame counts, then to the next one.
WAITS = (
    _wait("iterator_get_next.*", "gen_dataset_ops.py", "input", "waits for its input"),
    _wait(
        "collective_.*", "gen_collective_ops.py", "together", "waits for the other workers in a collective operation"
    ),
    _wait("ensure_initialized", "eager/context.py", "join", "waits until all tasks have joined the cluster"),
    _wait("(get_)?barrier|wait_at_barrier", "eager/context.py", "together", "waits for the others at a barrier"),
    _wait("wait", "cluster_coordinator.py", "execute", "waits for its workers"),
    _wait("execute_with_cancellation", "execute.py", "execute", "runs a function on a worker"),
    _wait("(recv_)?read_(value|variable).*", "ps_values.py", "execute", "waits for a parameter server"),
    _wait("join", "server_lib.py", "serve", "serves other tasks"),
    _wait("serve_forever_if_needed", "_serve.py", "serve", "serves other tasks"),
    _wait("wait_for_session|prepare_session", "session_manager.py", "join", "waits for the variables of the chief"),
    _wait("_call_tf_sessionrun|_run_fn", "client/session.py", "execute", "runs an operation of TensorFlow"),
    _wait("synchronize|_allreduce.*|_broadcast.*", "mpi_ops.py", "together", "waits for the other ranks of Horovod"),
    _wait("init", "common/basics.py", "join", "waits until all ranks of Horovod have started"),
    _wait("save|_save.*|write", "checkpoint.py", "save", "saves a checkpoint"),
    _wait("quick_execute", "eager/execute.py", "together", "waits for an operation of TensorFlow"),
    _wait("sleep", "time.py", "sleep", "sleeps"),
)
#: Files of libraries, beside those of Python itself: the innermost frame outside of them belongs to the user.
_LIBRARIES = "tensorflow|keras|tf_keras|horovod|absl|numpy|tensorflow_estimator|tfctl_runtime"
_LIBRARY = re.compile(rf"(^|/)({_LIBRARIES})(/|$)|site-packages/|^<frozen ")
#: Files of TensorFlow that call functions of Python from a data set (tf.data), in a thread of its own.
_INPUT = ("data/ops/from_generator_op.py", "python/ops/script_ops.py")
#: What tasks do that wait for others.
FOR_OTHERS = ("together", "join", "execute")
#: A task that has used more of a core (during the measurement) computes.
BUSY = 0.5


@dataclass(frozen=True)
class Activity:
    """What a task does. ``where``: the innermost function of the user's code, as ``train.py:24, in main``, or ""."""

    kind: Kind
    words: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.words} ({self.where})" if self.where else self.words


@dataclass(frozen=True)
class TracedTask:
    """A task, and what its host sees of it; None if the host does not say."""

    task: TaskState
    seen: wire.TaskTrace | None

    @property
    def activity(self) -> Activity:
        return activity(self.seen) if self.seen else Activity("other", "unknown")


@dataclass(frozen=True)
class Trace:
    """``hosts``: the whole answer of each host that has answered."""

    tasks: tuple[TracedTask, ...]
    hosts: Mapping[str, wire.Traced]
    errors: tuple[TfctlError, ...]


def trace(fleet: Fleet, state: JobState, tasks: Sequence[TaskState], seconds: float = 0.5, full: bool = False) -> Trace:
    """Ask the hosts of these tasks what they do, measured for so many seconds. ``full``: see wire.TraceRequest.

    Raise the errors of the hosts as one if none answers.
    """
    wanted = {task.host for task in tasks}
    hosts = [host for host in fleet.hosts if host.name in wanted]
    chosen = tuple(task.name for task in tasks)
    request = wire.TraceRequest(state.job, state.record.run, chosen, seconds, full or None)

    def ask(connection: Connection) -> wire.Traced:
        return ask_node(connection, request, wire.Traced, wire.SILENCE_S + seconds)

    outcomes = fleet.map(ask, hosts)
    errors = tuple(outcome.error for outcome in outcomes if outcome.error is not None)
    if outcomes and len(errors) == len(outcomes):
        raise together(errors)
    answers = {outcome.host.name: outcome.get() for outcome in outcomes if outcome.error is None}
    seen = {(host, one.name): one for host, answer in answers.items() for one in answer.tasks}
    found = tuple(TracedTask(task, seen.get((task.host, task.name))) for task in tasks)
    return Trace(found, answers, errors)


def activity(seen: wire.TaskTrace) -> Activity:
    """Return what a task does: its state if it cannot run, else what its stacks show."""
    if seen.state == "stopped":
        return Activity("other", "is stopped by a signal (SIGSTOP) or a debugger", _where(seen.threads))
    if seen.state == "frozen":
        return Activity("other", "is frozen (systemctl freeze)", _where(seen.threads))
    if seen.state == "gone":
        return Activity("other", "has no process")
    where = _where(seen.threads[:1])
    if seen.state == "blocked":
        return Activity("other", f"is blocked in the kernel ({seen.waits or 'unknown'})", where)
    main = _wait_of(seen.threads[0]) if seen.threads else None
    if main is None or main.kind in FOR_OTHERS:
        for thread in seen.threads[1:]:
            if any(frame.file.endswith(_INPUT) for frame in thread.frames):
                return Activity("input", f"{'computes' if thread.active else 'waits for'} its input", _where([thread]))
        # Keras calls collective operations in threads of their own, which say more than the main one.
        others = [wait for thread in seen.threads[1:] if (wait := _wait_of(thread)) and wait.kind == "together"]
        main = others[0] if others else main
    if main is not None:
        return Activity(main.kind, main.words, where)
    if (seen.cpu or 0.0) >= BUSY:
        return Activity("other", f"computes ({seen.cpu:.1f} cores)", where)
    if not seen.threads:
        return Activity("other", seen.trouble or "has no Python stack")
    return Activity("other", f"waits{_of_kernel(seen.waits)}", where)


def _wait_of(thread: wire.Thread) -> Wait | None:
    for frame in thread.frames:
        for wait in WAITS:
            if frame.file.endswith(wait.file) and wait.function.fullmatch(frame.name):
                return wait
        if not _is_library(frame):
            return None  # what calls the user's code says nothing of it
    return None


def _is_library(frame: wire.Frame) -> bool:
    """Return whether a function belongs to a library or to Python, as far as the short name of its file tells."""
    return bool(_LIBRARY.search(frame.file)) or frame.file.split("/")[0].removesuffix(".py") in sys.stdlib_module_names


def _where(threads: Iterable[wire.Thread]) -> str:
    for thread in threads:
        for frame in thread.frames:
            if not _is_library(frame):
                return f"{frame.file}:{frame.line}, in {frame.name}"
    return ""


#: What the kernel's functions wait for (/proc/PID/wchan).
_KERNEL = {
    "hrtimer_nanosleep": ": it sleeps", "wait_for_partner": " until somebody opens the other end of a FIFO",
    "pipe_read": " for data from a pipe", "anon_pipe_read": " for data from a pipe",
    "do_epoll_wait": " for the network or a file", "poll_schedule_timeout": " for the network or a file",
    "do_wait": " for a child process", "inet_csk_accept": " for a connection", "wait_woken": " for the network",
    "sk_wait_data": " for the network", "folio_wait_bit_common": " for a disk or a network file system",
}  # fmt: skip


def _of_kernel(function: str | None) -> str:
    return _KERNEL.get(function or "", "")


def folded(tasks: Sequence[TracedTask]) -> list[tuple[Activity, list[TracedTask]]]:
    """Return the tasks by what they do: what fewer of them do comes first, because that is worth a look."""
    groups: dict[Activity, list[TracedTask]] = {}
    for each in tasks:
        groups.setdefault(each.activity, []).append(each)
    return sorted(groups.items(), key=lambda item: (len(item[1]), str(item[1][0].task)))


def ranges(tasks: Sequence[TaskState]) -> str:
    """Return the names of tasks, with consecutive ones as ``worker/0 to worker/6``."""
    found: list[str] = []
    by_role: dict[str, list[int]] = {}
    for task in tasks:
        by_role.setdefault(task.role, []).append(task.index)
    for role, indices in by_role.items():
        for part in consecutive(indices):
            ends = [names.task(role, index) for index in part]
            found += [" to ".join(ends)] if part[-1] - part[0] > 1 else ends
    return ", ".join(found)
