"""The client's side of a session with `tfctl-node` on one host (tfctl.node.wire)."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

from tfctl.errors import Exit, PreflightFailed, TfctlError, Unreachable, of_exit
from tfctl.node import names, wire
from tfctl.remedies import login_refused, remedy_for
from tfctl.remote.channel import CHUNK, Spare

if TYPE_CHECKING:
    from tfctl.remote.channel import Channel
    from tfctl.remote.transport import Connection

A = TypeVar("A")
B = TypeVar("B")

#: Seconds to wait for the process to exit after its last output.
_END_S = 10.0
#: Lines of other programs, such as of a .bashrc, that are skipped before the first message.
_FOREIGN_LINES = 1000
#: How many of the last of these are kept for an error, and how many bytes of each.
_KEPT_LINES, _KEPT_BYTES = 20, 200
#: Places in such a line at which the first message may begin.
_PLACES = 100
#: How long (s) a node program that waits for another request is used.
_SPARE_S = wire.SILENCE_S / 2
#: How long (s) to wait for such a program to end.
_SPARE_END_S = 1.0
#: Requests that may be sent to such a program. If it has ended, they are sent again, so these can be repeated.
_REPEATABLE = (
    wire.ShowRequest, wire.NodesRequest, wire.EventsRequest, wire.LogsRequest, wire.StopRequest, wire.PullRequest,
)  # fmt: skip
#: Bytes that may have arrived from all hosts before anybody reads them, and from one host at least and at most.
_UNREAD, _UNREAD_LEAST, _UNREAD_MOST = 64 << 20, 64 << 10, 2 << 20
_REMEDY = "tfctl provision INVENTORY --tags job_host"


def open_session(connection: Connection, request: wire.Request, window: int | None = None) -> Session:
    """Send ``request`` to `tfctl-node` on the host, which runs as root: to a process that `ask_node` has left there, or
    else to a new one. ``window``: as for `Connection.exec`.

    Raises Unreachable.
    """
    return _send(connection, request, window)


def ask_node(
    connection: Connection, request: wire.Request, kind: type[A], timeout: float, window: int | None = None
) -> A:
    """Return the answer to a request that is answered by one message, which must be of this class.

    The node program then waits for another request on this connection, which saves the time to start one. Raises as
    `Session.expect`.
    """
    with _send(connection, request, window, more=True) as session:
        answer = session.expect(kind, timeout)
        session.leave(connection, window)
    return answer


def window(hosts: int) -> int:
    """Return the bytes that each of so many hosts may send before anybody reads them. The rest waits on the hosts."""
    return max(_UNREAD_LEAST, min(_UNREAD_MOST, _UNREAD // hosts))


def _send(connection: Connection, request: wire.Request, window: int | None, more: bool = False) -> Session:
    words = [names.PROGRAM] if connection.is_root else ["sudo", "-n", names.PROGRAM]
    line = wire.request(request, more)

    def start() -> Channel:
        channel = connection.exec(words, window)
        channel.send(line)
        return channel

    if not isinstance(request, _REPEATABLE):
        _end_spares(connection)
        return Session(start())
    spare = _spare(connection, window)
    if spare is None:
        return Session(start())
    spare.send(line)
    return Session(spare, _Restart(start, connection.close))


def _spare(connection: Connection, window: int | None) -> Channel | None:
    """Return the channel of a program on this connection that waits for a request, with this window, or None."""
    with suppress(IndexError):
        while True:
            spare = connection.spares.pop()
            # Not time.monotonic, which stops while a laptop sleeps.
            fresh = abs(time.time() - spare.since) < _SPARE_S and not spare.channel.ended
            if fresh and (spare.window or _UNREAD_MOST) == (window or _UNREAD_MOST):
                return spare.channel
            spare.channel.close()
    return None


def _end_spares(connection: Connection) -> None:
    """End the programs on this connection that wait for a request. sshd allows ten sessions, and counts them until they
    have ended."""
    with suppress(IndexError):
        while True:
            channel = connection.spares.pop().channel
            channel.close_stdin()
            with suppress(TimeoutError, TfctlError):
                channel.wait(_SPARE_END_S)
            channel.close()


class _Restart(NamedTuple):
    """What to do about a request to a program that had answered an earlier one: ``start`` sends it to a new program if
    the first one has ended, and ``give_up`` closes the connection if it is silent."""

    start: Callable[[], Channel]
    give_up: Callable[[], object]


@contextmanager
def beating(sessions: Mapping[str, Session]) -> Iterator[None]:
    """Send heartbeats in all ``sessions``, to which others may be added, during the block."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(wire.BEAT_S):
            for session in list(sessions.values()):
                with suppress(TfctlError):
                    session.beat()

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def as_error(host: str, error: wire.Error) -> TfctlError:
    """Return the exception for an error that ``host`` sent."""
    remedy = _missing_stack_remedy(error.stack) or error.remedy or (_REMEDY if error.exit == Exit.PREFLIGHT else "")
    return of_exit(error.exit, f"{host}: {error.message or 'no reason given'}", remedy)


def _missing_stack_remedy(name: str | None) -> str:
    """Return the remedy for a missing stack that tfctl does not ship, else "". The inventory may have it."""
    if name is None:
        return ""
    from tfctl.model import stacks  # slow to import, because it needs yaml

    if name in stacks.load():
        return ""
    remedy = f"tfctl ships no stack {name}: {stacks.others(name)}"
    return f"{remedy}; one of tfctl_stack_dirs is installed by: tfctl provision INVENTORY --stack {name}"


class Session:
    """A session, returned by `open_session`. A context manager; one thread may receive while others send.

    All methods raise Unreachable if the connection broke, and PreflightFailed if tfctl's part is missing on the host,
    may not be run, or speaks another protocol.
    """

    def __init__(self, channel: Channel, restart: _Restart | None = None) -> None:
        """``restart``: for a program that may have ended before it got the request, or whose connection may be dead."""
        self.host = channel.host
        self._channel = channel
        self._restart = restart
        self._left = False
        self._started = False
        self._skipped: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._skipped_count = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: wire.ClientMessage) -> None:
        self._channel.send(wire.line(message))

    def send_raw(self, data: bytes) -> None:
        self._channel.send(data)

    @property
    def ended(self) -> bool:
        """Whether the node has ended or is known to be unreachable."""
        return self._channel.ended

    def beat(self) -> None:
        """Send a heartbeat, unless another thread is sending: that serves the same purpose."""
        self._channel.send_if_idle(wire.line(wire.Beat()))

    def receive(self, timeout: float) -> wire.NodeMessage:
        """Return the next message other than a beat. Each beat restarts ``timeout`` (seconds).

        Before the first message, skip lines that are no object of JSON, and text before it in its line: a login shell's
        startup files may print them.
        Raises the node's own error as a TfctlError (`as_error`), PreflightFailed for a line that is not a message, and
        Unreachable on timeout.
        """
        while True:
            restart, self._restart = self._restart, None
            try:
                line = self._next(self._channel.readline, timeout)
            except Unreachable:
                if restart:
                    restart.give_up()
                raise
            if not line and restart and self.wait() == 0:
                self._channel.close()
                self._channel = restart.start()
                continue
            if not line.endswith(b"\n"):
                raise self._ended(line)
            if not self._started and self._skipped_count < _FOREIGN_LINES:
                found = _object_in(line)
                if not found:
                    self._skipped.append(line[:_KEPT_BYTES].rstrip() + b"\n")
                    self._skipped_count += 1
                    continue
                line = found
            message = self._decoded(line)
            if isinstance(message, wire.Error):
                raise as_error(self.host, message)
            if not isinstance(message, wire.Beat):
                return message

    @overload
    def expect(self, kind: type[A], timeout: float) -> A: ...
    @overload
    def expect(self, kind: tuple[type[A], type[B]], timeout: float) -> A | B: ...
    def expect(self, kind: type[A] | tuple[type[A], type[B]], timeout: float) -> A | B:
        """Return the next message, which must be of this class or of one of the two.

        Raises as `receive`, and PreflightFailed for a message of another class.
        """
        message = self.receive(timeout)
        if not isinstance(message, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            expected = " or ".join(one.__name__.lower() for one in kinds)
            sent = type(message).__name__.lower()
            raise PreflightFailed(f"{self.host}: tfctl-node sent {sent} in place of {expected}", _REMEDY)
        return message

    def payload(self, size: int, timeout: float) -> Iterator[bytes]:
        """Yield the next ``size`` raw bytes, in pieces. Raises TfctlError if the node ends before, and as `receive`."""
        while size > 0:
            try:
                data = self._channel.read(min(size, CHUNK), timeout)
            except TimeoutError:
                raise self._silent(timeout) from None
            if not data:
                raise self._ended(b"")
            size -= len(data)
            yield data

    def batches(self, timeout: float | None = None) -> Iterator[list[bytes | wire.Shown]]:
        """Yield the further lines with their newlines, together those that have arrived together, until the node ends.
        Only complete lines, no beats; `show` among the lines is decoded.

        Raises TfctlError if the output ends within a line, the exit status is not 0 or the node sends an error, and
        Unreachable if it has sent nothing, not even a beat, for ``timeout`` seconds.
        """
        while (lines := self._next(self._channel.readlines, timeout)) and lines[-1].endswith(b"\n"):
            found: list[bytes | wire.Shown] = []
            try:
                for line in lines:
                    if not line.startswith((b'{"beat":', b'{"error":', b'{"show":')):
                        found.append(line)
                    elif isinstance(message := self._decoded(line), wire.Error):
                        raise as_error(self.host, message)
                    elif isinstance(message, wire.Shown):
                        found.append(message)
            except TfctlError:
                yield found
                raise
            yield found
        if lines or self.wait() != 0:
            raise self._ended(b"".join(lines))

    def close_stdin(self) -> None:
        """Close the node's stdin: nothing more will be sent."""
        self._channel.close_stdin()

    def wait(self) -> int:
        """Return the exit status of the node program, after its last output."""
        try:
            return self._channel.wait(_END_S)
        except TimeoutError:
            raise Unreachable(f"{self.host}: tfctl-node does not exit", "try again") from None

    def leave(self, connection: Connection, window: int | None) -> None:
        """Leave the program, which waits for another request, to the next session on this connection.

        ``window``: that of its channel.
        """
        connection.spares.append(Spare(self._channel, window, time.time()))
        self._left = True

    def close(self) -> None:
        """Close the channel: the node reads end of file."""
        if not self._left:
            self._channel.close()

    def _next(self, read: Callable[[float | None], A], timeout: float | None) -> A:
        try:
            return read(timeout)
        except TimeoutError:
            raise self._silent(timeout or 0.0) from None

    def _decoded(self, line: bytes) -> wire.NodeMessage:
        try:
            message = wire.node_message(line)
        except wire.Malformed as error:
            text = line[:200].decode(errors="replace").strip()
            what = f"{self.host}: this is not a message of tfctl-node: {text!r} ({error})"
            raise PreflightFailed(what, _REMEDY) from None
        self._started = True
        return message

    def _silent(self, timeout: float) -> Unreachable:
        """Return the error for a node that has sent nothing for ``timeout`` seconds."""
        return Unreachable(
            f"{self.host}: tfctl-node has sent nothing for {timeout:g} s{self._last_skipped()}",
            "the machine may be overloaded, or a file system there hangs",
        )

    def _last_skipped(self) -> str:
        """Return the last skipped line as part of an error, or an empty string."""
        if self._started or not self._skipped:
            return ""
        return f" but {self._skipped[-1].decode(errors='replace').strip()!r}"

    def _ended(self, rest: bytes) -> TfctlError:
        """Return the error that explains why the node ended."""
        status = self.wait()
        skipped = b"" if self._started else b"".join(self._skipped)
        output = "\n".join(
            [skipped.decode(errors="replace"), self._channel.stderr(), rest.decode(errors="replace")]
        ).strip()
        if not self._started and (refusal := _not_let_in(self.host, output) or _not_run(self.host, output, status)):
            return refusal
        last = (output.splitlines() or ["it printed nothing"])[-1]
        found = remedy_for(output)
        by_hand = (
            f"to see all that it prints, log in to {self.host} as the same user: sudo -n {names.PROGRAM} </dev/null"
        )
        return TfctlError(
            f"{self.host}: tfctl-node ended with status {status}: {last}", found.naming(self.host) if found else by_hand
        )


def _object_in(line: bytes) -> bytes:
    """Return the line if it is an object of JSON, else the message at its end, or an empty string if there is none.

    What was printed before the message may have no newline, such as an escape sequence that sets the title of a window.
    """
    with suppress(wire.Malformed):
        wire.parse(line)
        return line
    for found in islice(re.finditer(rb'\{"', line), _PLACES):
        with suppress(wire.Malformed):
            wire.node_message(line[found.start() :])
            return line[found.start() :]
    return b""


def _not_let_in(host: str, output: str) -> Unreachable | None:
    """Return the reason why the user may not log in, or None if the output has none."""
    found = login_refused(output)
    return found and Unreachable(f"{host}: the login ends at once: {found[0]}", found[1].naming(host))


def _not_run(host: str, output: str, status: int) -> PreflightFailed | None:
    """Return the reason why the program did not run, from the output of sudo or the shell, or None if it did run.
    sudo's messages are in the host's language but start with its name."""
    missing = r"sudo: (command )?not found|tfctl-node: (command )?not found|No such file or directory"
    missing += r"|No module named 'tfctl_node'"  # provisioning was interrupted
    for line in reversed(output.splitlines()):
        if "unable to resolve host" in line:
            continue
        if re.search(r"sudo: (command )?not found", line) and "tfctl-node" not in line:
            return PreflightFailed(f"{host}: sudo is not installed", "install it there: apt install sudo")
        if re.search(missing, line):
            return PreflightFailed(f"{host}: tfctl's part ({names.PROGRAM}) is not installed", _REMEDY)
        if line.startswith("sudo: ") or re.search(r"not allowed to execute|may not run sudo|not in the sudoers", line):
            what = line.removeprefix("sudo: ")
            return PreflightFailed(f"{host}: sudo does not permit this user to run {names.PROGRAM}: {what}", _REMEDY)
    if status in (126, 127):
        return PreflightFailed(f"{host}: {names.PROGRAM} cannot be run", _REMEDY)
    return None
