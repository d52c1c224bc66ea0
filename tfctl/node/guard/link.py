"""A connection between the head's guard and that of another host, on which each side knows the other.

The head sends a nonce; the member answers with its host, the run of its latest attempt and a nonce of its own. From
then on all messages are sealed (tfctl.node.guard.keys). They are the classes below, as JSON with their kind as key.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Collection
from typing import Any, NamedTuple, Optional, Union

from .. import names, wire
from . import keys

#: The longest message in bytes. The record of a job with 1,000 tasks has about 200 kB.
LIMIT = 4 * 2**20
#: How long (s) a new connection may take to authenticate.
_HANDSHAKE_S = 10.0
_NONCE = re.compile(r"[0-9a-f]{32}")


class Standstill(NamedTuple):
    """A task that has made no progress for ``seconds``. ``steps``: it has made steps before; else only its lines are
    known."""

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    seconds: float
    steps: bool

    @property
    def name(self) -> wire.TaskName:
        return self.role, self.index


class Pace(NamedTuple):
    """The tasks of a host, or of several, that have printed something: those that make progress, and the others."""

    moving: tuple[wire.TaskName, ...] = ()
    standing: tuple[Standstill, ...] = ()

    @property
    def names(self) -> tuple[Collection[wire.TaskName], Collection[wire.TaskName]]:
        """The tasks of both kinds: what has changed if it differs."""
        return self.moving, [task.name for task in self.standing]


class MemberReport(NamedTuple):
    """The member's tasks of the attempt ``run``. ``stopped``: the time of the job's stop mark here. ``listening``: its
    tasks whose port has a listener. ``time``: the member's clock. Older guards do not send it. ``pace``: which tasks
    make progress, if the policy has a limit for those that make none."""

    run: str
    tasks: tuple[wire.TaskStatus, ...]
    stopped: Optional[float] = None
    listening: tuple[wire.TaskName, ...] = ()
    time: Optional[float] = None
    pace: Optional[Pace] = None


class GuardBeat(NamedTuple):
    """A sign of life, from either side. ``succeeded``: from the head, true once the job has succeeded, while its last
    tasks end. Older guards do not send it."""

    succeeded: Optional[bool] = None


class StopOrder(NamedTuple):
    """End these tasks of the run, or all of them, which marks the job as stopped. ``overdue``, ``give_up``: as in
    tfctl.node.wire.StopRequest."""

    id: int
    run: str
    tasks: Optional[tuple[wire.TaskName, ...]]
    reason: str
    overdue: Optional[bool] = None
    give_up: Optional[bool] = None


class PrepareOrder(NamedTuple):
    """Reserve the next attempt."""

    id: int
    record: wire.Record


class LaunchOrder(NamedTuple):
    """Start the units of the attempt that was prepared."""

    id: int


class KeepOrder(NamedTuple):
    """Let them run on."""

    id: int


class AbortOrder(NamedTuple):
    """Undo the attempt that was prepared."""

    id: int


class NoteStallOrder(NamedTuple):
    """Note what the tasks do: the job has stalled."""

    id: int
    run: str
    attempt: int


class JobOver(NamedTuple):
    """The job is over: leave. ``reason`` and ``finished``: as in tfctl.node.wire.GuardReport."""

    reason: str
    finished: Optional[float] = None


class OrderResult(NamedTuple):
    """The order ``id`` was carried out, or failed with ``error``."""

    id: int
    error: Optional[str] = None


Order = Union[StopOrder, PrepareOrder, LaunchOrder, KeepOrder, AbortOrder, NoteStallOrder]
Message = Union[
    MemberReport, GuardBeat, StopOrder, PrepareOrder, LaunchOrder, KeepOrder, AbortOrder, NoteStallOrder, JobOver,
    OrderResult,
]  # fmt: skip

#: The classes by their kinds on the connection.
KINDS: dict[str, Any] = {
    "report": MemberReport, "beat": GuardBeat, "stop": StopOrder, "prepare": PrepareOrder, "launch": LaunchOrder,
    "keep": KeepOrder, "abort": AbortOrder, "stall": NoteStallOrder, "end": JobOver, "done": OrderResult,
}  # fmt: skip
_KIND_OF = {message: kind for kind, message in KINDS.items()}


class Broken(Exception):
    """The connection has ended, or what came over it is not from a guard of the job."""


class MemberHello(NamedTuple):
    """What a member says of itself."""

    host: str
    run: str
    nonce: str


class Link:
    """An authenticated connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sealer: keys.Sealer, opener: keys.Opener
    ) -> None:
        self._reader, self._writer, self._sealer, self._opener = reader, writer, sealer, opener

    def send(self, message: Message) -> None:
        """Queue a message."""
        body = json.dumps({_KIND_OF[type(message)]: wire.encode(message)}, separators=(",", ":"))
        self._writer.write(self._sealer.seal(body.encode()))

    async def receive(self, within: float) -> Message:
        """Return the next message. Raises Broken, also after ``within`` seconds of silence."""
        line = await _line(self._reader, within)
        try:
            ((kind, fields),) = wire.parse(self._opener.open(line)).items()
            return wire.decode(KINDS[kind], fields)  # type: ignore[no-any-return]
        except (keys.Forged, wire.Malformed, KeyError, ValueError):
            raise Broken("a message is not from a guard of this job") from None

    def close(self) -> None:
        self._writer.close()


class Recognized(NamedTuple):
    """A member that has proved that it has the key, and what to seal and open the messages of its connection with."""

    hello: MemberHello
    sealer: keys.Sealer
    opener: keys.Opener


class Handshake:
    """The head's side of the beginning of a connection. ``challenge`` is what it sends first."""

    def __init__(self, key: bytes, hosts: Collection[str]) -> None:
        self._key, self._hosts, self._nonce = key, hosts, secrets.token_hex(16)
        self.challenge = b'{"nonce": "%s"}\n' % self._nonce.encode()

    def recognize(self, hello: bytes, proof: bytes) -> Recognized:
        """Check the first two lines from a member: what it says of itself, and its first message. Raises Broken."""
        try:
            found = wire.decode(MemberHello, wire.parse(hello))
        except wire.Malformed:
            raise Broken("a connection that is not from a guard") from None
        if found.host not in self._hosts or not names.RUN.fullmatch(found.run) or not _NONCE.fullmatch(found.nonce):
            raise Broken("a connection that is not from a guard of this job")
        sealer, opener = (
            keys.session_key(self._key, found.run, found.host, self._nonce, found.nonce, to_head)
            for to_head in (False, True)
        )
        recognized = Recognized(found, keys.Sealer(sealer), keys.Opener(opener))
        try:
            recognized.opener.open(proof)
        except keys.Forged:
            raise Broken("a message is not from a guard of this job") from None
        return recognized


async def connect(address: str, port: int, key: bytes, host: str, run: str) -> Link:
    """Return a connection to the head, once it has proved that it has the key. Raises Broken."""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port, limit=LIMIT), _HANDSHAKE_S)
    except (OSError, asyncio.TimeoutError) as error:
        raise Broken(f"cannot connect: {error}") from None
    try:
        nonce = wire.parse(await _line(reader, _HANDSHAKE_S)).get("nonce")
        if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
            raise wire.Malformed
        own = secrets.token_hex(16)
        writer.write(json.dumps(MemberHello(host, run, own)._asdict()).encode() + b"\n")
        sealer, opener = (keys.session_key(key, run, host, nonce, own, to_head) for to_head in (True, False))
        link = Link(reader, writer, keys.Sealer(sealer), keys.Opener(opener))
        link.send(GuardBeat())
        await link.receive(_HANDSHAKE_S)
        return link
    except wire.Malformed:
        writer.close()
        raise Broken("the program at that address is not the guard of this job") from None
    except BaseException:  # also if this guard leaves meanwhile
        writer.close()
        raise


async def _line(reader: asyncio.StreamReader, within: float) -> bytes:
    try:
        line = await asyncio.wait_for(reader.readline(), within)
    except asyncio.TimeoutError:
        raise Broken(f"silent for {within:.0f} s") from None
    except (OSError, ValueError):  # ValueError: a line longer than the limit
        raise Broken("the connection was lost") from None
    if not line.endswith(b"\n"):
        raise Broken("the connection was closed")
    return line
