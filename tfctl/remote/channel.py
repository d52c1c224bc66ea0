"""A remote process, with its stdin, stdout and stderr."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from tfctl.errors import TfctlError, Unreachable
from tfctl.node.wire import LINE_LIMIT
from tfctl.wording import plain

#: Bytes kept of the end of stderr.
STDERR_KEPT = 64 * 1024
#: Seconds that a process may leave its input unread.
SEND_S = 60.0
#: What paramiko raises on a channel that has ended.
GONE = (OSError, EOFError)
_CHUNK = 1 << 20


class Channel:
    """A running process, returned by Connection.exec. A context manager.

    Reading, sending and waiting all drain the incoming streams, so that none can block another. One thread may send
    while another reads. Every method raises Unreachable if the connection broke.
    """

    def __init__(self, host: str, command: str, raw: Any) -> None:
        """``raw`` is a paramiko.Channel on which ``command`` runs."""
        self.host = host
        self.command = command
        self._raw = raw
        self._bell = _Bell()
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._out = bytearray()
        self._searched = 0
        self._err = bytearray()
        self._closed_by_host = False
        # How often a blocked send checks whether the process is blocked on its own output.
        raw.settimeout(0.1)
        raw.in_buffer.set_event(self._bell)
        raw.in_stderr_buffer.set_event(self._bell)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Write all of ``data`` to the process's stdin. Thread-safe.

        If the process has ended, discard the data without an error: its remaining output explains more.
        """
        with self._sending:
            self._deliver(data)

    def send_if_idle(self, data: bytes) -> None:
        """Send ``data`` unless another thread is sending; then do nothing."""
        if self._sending.acquire(blocking=False):
            try:
                self._deliver(data)
            finally:
                self._sending.release()

    def close_stdin(self) -> None:
        """Close the process's stdin, after the data already sent."""
        with contextlib.suppress(*GONE):
            self._raw.shutdown_write()

    def readline(self, timeout: float | None) -> bytes:
        """Return the next line of stdout with its newline; at end of file the rest, then ``b""``.

        Raises TimeoutError, after which reading may continue without loss, and TfctlError for a line longer than
        wire.LINE_LIMIT.
        """
        return self._read(self._line, timeout)

    def wait(self, timeout: float | None) -> int:
        """Return the exit status, or -1 if a signal killed the process or no status was sent. Raises TimeoutError."""
        end = _end(timeout)
        self._until_ended(end)
        if not self._raw.status_event.wait(_left(end)):
            raise TimeoutError(f"{self.host}: `{self.command}` still runs")
        if self._raw.exit_status < 0:
            self._raise_if_lost()
        return int(self._raw.exit_status)

    @property
    def ended(self) -> bool:
        """Whether the process has ended or is known to be unreachable. Earlier output can still be read."""
        return self._ended()

    def stderr(self) -> str:
        """Return the last STDERR_KEPT bytes of stderr so far, without control characters."""
        with self._lock:
            self._drain()
            return plain(self._err.decode(errors="replace"))

    def close(self) -> None:
        """Release the process: it reads end of file, and SIGPIPE ends it if it writes again."""
        with contextlib.suppress(*GONE):
            self._raw.close()

    def _deliver(self, data: bytes) -> None:
        if not self._send(memoryview(data)):
            self._raise_if_lost()

    def _send(self, data: memoryview) -> bool:
        """Send the data and return True, or False if the process no longer reads."""
        end = time.monotonic() + SEND_S
        while data:
            try:
                sent = self._raw.send(data[:_CHUNK])
            except TimeoutError:
                # Perhaps it does not read because its own output is blocked.
                with self._lock:
                    self._drain()
                if time.monotonic() > end:
                    raise Unreachable(f"{self.host}: `{self.command}` takes no input", _STUCK) from None
                continue
            except GONE:
                return False
            if not sent:
                return False
            data = data[sent:]
            end = time.monotonic() + SEND_S
        return True

    def _read(self, complete: Callable[[], int], timeout: float | None) -> bytes:
        """Return ``complete()`` bytes as soon as that is not 0; at end of file, all that is left."""
        with self._lock:
            if size := complete():
                return self._cut(size)
        end = _end(timeout)
        while True:
            rung, ended = self._bell.count, self._ended()
            with self._lock:
                self._drain()
                if size := complete():
                    return self._cut(size)
            if ended:
                if not self._raw.eof_received:
                    self._raise_if_lost()
                with self._lock:
                    return self._cut(len(self._out))
            if not self._bell.wait_after(rung, _left(end)):
                raise TimeoutError(f"{self.host}: `{self.command}` has said nothing for {timeout:g} s")

    def _until_ended(self, end: float | None) -> None:
        while True:
            rung, ended = self._bell.count, self._ended()
            with self._lock:
                self._drain()
            if ended:
                return
            if not self._bell.wait_after(rung, _left(end)):
                raise TimeoutError(f"{self.host}: `{self.command}` still runs")

    def _line(self) -> int:
        found = self._out.find(b"\n", self._searched) + 1
        self._searched = len(self._out)
        if not found and len(self._out) > LINE_LIMIT:
            raise TfctlError(f"{self.host}: `{self.command}` writes a line that does not end within {LINE_LIMIT} bytes")
        return found

    def _cut(self, size: int) -> bytes:
        data = bytes(self._out[:size])
        del self._out[:size]
        self._searched = 0
        return data

    def _drain(self) -> None:
        """Read what has arrived, so that the process can go on writing. The caller holds the lock."""
        with contextlib.suppress(*GONE):
            while self._raw.recv_stderr_ready():
                self._err += self._raw.recv_stderr(_CHUNK)
                del self._err[:-STDERR_KEPT]
            while self._raw.recv_ready():
                self._out += self._raw.recv(_CHUNK)

    def _ended(self) -> bool:
        """Return whether nothing more will arrive. Call it before `_drain`, which then gets the last of the data."""
        return bool(self._raw.eof_received) or bool(self._raw.closed)

    def _raise_if_lost(self) -> None:
        """Raise Unreachable if the channel, already closed, was closed by a broken connection and not by the host."""
        if self._closed_by_host:
            return
        transport = self._raw.get_transport()
        # The two look alike until paramiko's thread has ended.
        transport.join(0.2)
        self._closed_by_host = transport.is_active()
        if not self._closed_by_host:
            raise Unreachable(f"{self.host}: the connection broke while `{self.command}` ran", _BROKE)


class _Bell(threading.Event):
    """An event that paramiko sets whenever data or the end arrives. It counts, so that no call between two checks is
    missed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._rung = threading.Condition()

    def set(self) -> None:
        with self._rung:
            self.count += 1
            self._rung.notify_all()

    def clear(self) -> None:
        pass

    def wait_after(self, count: int, timeout: float | None) -> bool:
        """Return True once the event has been set more than ``count`` times, False after ``timeout`` seconds."""
        with self._rung:
            return self._rung.wait_for(lambda: self.count > count, timeout)


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


_BROKE = "the machine or the network went down; tasks there, which are systemd units, continue"
_STUCK = "the machine may be overloaded, or a file system there hangs"
