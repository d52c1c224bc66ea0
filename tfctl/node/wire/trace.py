"""What the tasks of a job do at this moment."""

from typing import Literal, NamedTuple, Optional

from .codec import as_rows

#: ``stopped``: by a signal, such as SIGSTOP, or by a debugger. ``frozen``: by the freezer of its cgroup. ``blocked``:
#: it waits in the kernel, in a state in which no signal reaches it. ``gone``: it has no process.
ProcessState = Literal["running", "stopped", "frozen", "blocked", "gone"]


class Frame(NamedTuple):
    """A function of Python that is being called. ``file``: as short as it is unique, such as
    tensorflow/python/eager/execute.py."""

    name: str
    file: str
    line: int


class Thread(NamedTuple):
    """A thread that has called functions of Python, the innermost first. ``active``: it runs and does not wait."""

    name: Optional[str]
    active: bool
    frames: tuple[Frame, ...]


class Printed(NamedTuple):
    """A line of a task. ``time``: by the host's clock."""

    time: float
    text: str


class Socket(NamedTuple):
    """A TCP connection of a task, or one that it tries to make. ``state``: as ss(8) writes it. ``unread``: bytes that
    the task has not read; ``unsent``: bytes that the other side has not confirmed. ``retries``: how often in a row the
    last bytes were sent again. ``idle``: seconds since anything but a confirmation was sent or received."""

    local: str
    peer: str
    state: str
    unread: int
    unsent: int
    retries: int
    idle: Optional[float]


class TaskTrace(NamedTuple):
    """A task. ``pid``: of the process whose stacks these are, or 0. ``cpu``: cores that the task has used while it was
    measured. ``trouble``: why there are no stacks, or "". ``waits``: the kernel's function in which the main thread
    waits. ``usual``: the median of the seconds between its last lines. ``lines``: the last ones.

    ``lines``, ``usual`` and ``sockets`` are there only if they were asked for.
    """

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    pid: int
    state: ProcessState
    cpu: Optional[float]
    threads: tuple[Thread, ...]
    trouble: str = ""
    waits: Optional[str] = None
    usual: Optional[float] = None
    lines: tuple[Printed, ...] = ()
    sockets: tuple[Socket, ...] = ()

    @property
    def name(self) -> tuple[str, int]:
        return self.role, self.index


class StallTrace(NamedTuple):
    """The tasks of a host at the time at which the guards noticed that the job had stalled. ``time``: the host's."""

    time: float
    tasks: tuple[TaskTrace, ...]


as_rows(Frame, Printed)
