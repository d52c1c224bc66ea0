"""A remote process with its stdin, stdout and stderr, as both transports provide it, and what they share."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from tfctl.errors import TfctlError, Unreachable
from tfctl.node.wire import LINE_LIMIT

#: Bytes kept of the end of stderr.
STDERR_KEPT = 64 * 1024
#: Seconds that a process may leave its input unread.
SEND_S = 60.0
#: How long (s) to wait for the end of a connection after a channel has ended: the two look alike for a moment.
SETTLE_S = 0.2
#: A wait that ends so much later (s) than it should shows that this process does not get to run.
LATE_S = 0.5
#: How long (s) to listen again after that, at most.
AGAIN_S = 5.0
#: Bytes read or written at once.
CHUNK = 1 << 20


class Channel(Protocol):
    """A running process, returned by Connection.exec. A context manager.

    Reading, sending and waiting all drain the incoming streams, so that none can block another. One thread may send
    while another reads. Every method raises Unreachable if the connection broke.
    """

    @property
    def host(self) -> str:
        """The host's name in the inventory."""

    @property
    def command(self) -> str:
        """The command line that runs."""

    @property
    def ended(self) -> bool:
        """Whether the process has ended or is known to be unreachable. Earlier output can still be read."""

    def __enter__(self) -> Channel: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def send(self, data: bytes) -> None:
        """Write all of ``data`` to the process's stdin. Thread-safe.

        If the process has ended, discard the data without an error: its remaining output explains more.
        """

    def send_if_idle(self, data: bytes) -> None:
        """Send ``data`` unless another thread is sending; then do nothing."""

    def close_stdin(self) -> None:
        """Close the process's stdin, after the data already sent."""

    def readline(self, timeout: float | None) -> bytes:
        """Return the next line of stdout with its newline; at end of file the rest, then ``b""``.

        Raises TimeoutError, after which reading may continue without loss, and TfctlError for a line longer than
        wire.LINE_LIMIT.
        """

    def readlines(self, timeout: float | None) -> list[bytes]:
        """Return the complete lines of stdout that have arrived, at least one, each with its newline.

        At end of file, return the rest, then nothing. Raises as `readline` does.
        """

    def read(self, size: int, timeout: float | None) -> bytes:
        """Return 1 to ``size`` bytes of stdout, or ``b""`` at end of file. Raises TimeoutError."""

    def wait(self, timeout: float | None) -> int:
        """Return the exit status, or -1 if a signal killed the process or no status was sent. Raises TimeoutError."""

    def stderr(self) -> str:
        """Return the last STDERR_KEPT bytes of stderr so far."""

    def close(self) -> None:
        """Release the process: it reads end of file, and SIGPIPE ends it if it writes again."""


class Spare(NamedTuple):
    """The channel of a node program that waits for another request, its window, and since when it waits (epoch s)."""

    channel: Channel
    window: int | None
    since: float


class BaseChannel(ABC):
    """The part of a Channel that does not depend on the transport: its names, its output, and sending in pieces."""

    def __init__(self, host: str, command: str) -> None:
        self.host = host
        self.command = command
        self._output = ProcessOutput(host, command)
        self._sending = threading.Lock()

    def readline(self, timeout: float | None) -> bytes:
        return self._next(self._output.line, timeout) or self._output.rest()

    def readlines(self, timeout: float | None) -> list[bytes]:
        data = self._next(self._output.lines, timeout) or self._output.rest()
        *lines, rest = data.split(b"\n")
        return [line + b"\n" for line in lines] + ([rest] if rest else [])

    def read(self, size: int, timeout: float | None) -> bytes:
        return self._next(lambda: self._output.piece(size), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        with self._sending:
            self._deliver(data)

    def send_if_idle(self, data: bytes) -> None:
        if self._sending.acquire(blocking=False):
            try:
                self._deliver(data)
            finally:
                self._sending.release()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _next(self, take: Callable[[], bytes], timeout: float | None) -> bytes:
        """Return what ``take`` returns as soon as it is not empty, or ``b""`` at end of file. Raises TimeoutError."""

    @abstractmethod
    def _write(self, data: memoryview) -> int | None:
        """Return how many bytes of ``data`` were written: 0 if the process no longer reads.

        Return None if it has not read for a moment, after reading its output, which may be what blocks it.
        """

    @abstractmethod
    def _raise_if_lost(self) -> None:
        """Raise Unreachable if the process no longer reads because the connection broke."""

    def _deliver(self, data: bytes) -> None:
        if not self._send(memoryview(data)):
            self._raise_if_lost()

    def _send(self, data: memoryview) -> bool:
        """Send the data and return True, or False if the process no longer reads."""
        end = time.monotonic() + SEND_S
        while data:
            sent = self._write(data[:CHUNK])
            if sent is None:
                if time.monotonic() > end:
                    raise stuck(self.host, self.command)
                continue
            if not sent:
                return False
            data = data[sent:]
            end = time.monotonic() + SEND_S
        return True


class ProcessOutput:
    """What a process has written so far: the unread part of stdout and the end of stderr. Thread-safe."""

    def __init__(self, host: str, command: str) -> None:
        self._source = f"{host}: `{command}`"
        self._lock = threading.Lock()
        self._out = bytearray()
        self._searched = 0
        self._err = bytearray()

    def add(self, data: bytes) -> None:
        """Append to stdout."""
        with self._lock:
            self._out += data

    def add_error(self, data: bytes) -> None:
        """Append to stderr, and forget all but its end."""
        with self._lock:
            self._err += data
            del self._err[:-STDERR_KEPT]

    def line(self) -> bytes:
        """Return the next complete line, or ``b""``. Raises TfctlError for one longer than wire.LINE_LIMIT."""
        with self._lock:
            return self._up_to(self._out.find(b"\n", self._searched))

    def lines(self) -> bytes:
        """Return all complete lines, or ``b""``. Raises TfctlError as `line` does."""
        with self._lock:
            return self._up_to(self._out.rfind(b"\n", self._searched))

    def piece(self, size: int) -> bytes:
        """Return up to ``size`` bytes of what is left of stdout."""
        with self._lock:
            return self._cut(min(size, len(self._out)))

    def rest(self) -> bytes:
        """Return everything that is left of stdout."""
        with self._lock:
            return self._cut(len(self._out))

    def error_text(self) -> str:
        """Return the end of stderr."""
        with self._lock:
            return self._err.decode(errors="replace")

    def _up_to(self, newline: int) -> bytes:
        """Cut off everything up to the newline that was found there, or nothing if none was found (-1)."""
        if newline >= 0:
            return self._cut(newline + 1)
        self._searched = len(self._out)
        if len(self._out) > LINE_LIMIT:
            raise TfctlError(f"{self._source} writes a line that does not end within {LINE_LIMIT} bytes")
        return b""

    def _cut(self, size: int) -> bytes:
        data = bytes(self._out[:size])
        del self._out[:size]
        self._searched = 0
        return data


class Patience:
    """A limit on the silence of a process on a host.

    This process may be what is slow: with a thousand hosts, a thread may not run for seconds, and then finds that the
    time is up before another thread has read what arrived meanwhile. Such a time is not silence.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._end = deadline(timeout)

    @property
    def left(self) -> float | None:
        """The seconds left, at least 0; None without a limit."""
        return seconds_left(self._end)

    def is_over(self, unread: bool = False) -> bool:
        """Return whether the process was silent, now that nothing came in the time that was left; else listen again.

        ``unread``: something has arrived that no thread has read yet.
        """
        if self._timeout is None or self._end is None:
            return False
        if not unread and time.monotonic() < self._end + LATE_S:
            return True
        self._end = time.monotonic() + min(self._timeout, AGAIN_S)
        return False


def deadline(timeout: float | None) -> float | None:
    """Return the end of a timeout on the clock of time.monotonic; None is never."""
    return None if timeout is None else time.monotonic() + timeout


def seconds_left(end: float | None) -> float | None:
    """Return the seconds until ``end``, at least 0."""
    return None if end is None else max(0.0, end - time.monotonic())


def silent(host: str, command: str, timeout: float | None) -> TimeoutError:
    """Return the error for a process that has written nothing within ``timeout`` seconds."""
    return TimeoutError(f"{host}: `{command}` has sent nothing for {timeout or 0:g} s")


def running(host: str, command: str) -> TimeoutError:
    """Return the error for a process that has not ended in time."""
    return TimeoutError(f"{host}: `{command}` still runs")


def stuck(host: str, command: str) -> Unreachable:
    """Return the error for a process that has not read its input for SEND_S."""
    return Unreachable(
        f"{host}: `{command}` does not read its input", "the machine may be overloaded, or a file system there hangs"
    )


def lost(host: str, command: str) -> Unreachable:
    """Return the error for a connection that broke while the process ran."""
    return Unreachable(f"{host}: the connection broke while `{command}` ran", "the machine or the network went down")
