"""The messages of the client within a start. Go also continues a stop, and fetch belongs to pull."""

from typing import Literal, NamedTuple, Optional, Union

from .codec import by_name
from .record import Record, TaskName


class Beat(NamedTuple):
    """A sign of life."""


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


ClientMessage = Union[Plan, Rerun, Code, Share, Go, Keep, Fetch, Beat]
CLIENT_MESSAGES = by_name(ClientMessage)
