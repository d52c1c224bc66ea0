"""One remote process, spoken to in both directions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from tfctl.errors import TfctlError, Unreachable
from tfctl.node.wire import LINE_LIMIT
from tfctl.wording import plain

#: Bytes of stderr that are kept: the last ones.
STDERR_KEPT = 64 * 1024
#: Seconds for which a process may take nothing of what it is sent.
SEND_S = 60.0
#: What a channel that has ended raises.
GONE = (OSError, EOFError)
_CHUNK = 1 << 20


class Channel:
    """Made by Connection.exec; also a context manager.

    Reading, sending and waiting all take in what arrives, so that no stream can block another. One thread may send
    while another reads. Every method raises Unreachable when the connection broke.
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
        # A send that is blocked looks so often whether the process is blocked on its own output.
        raw.settimeout(0.1)
        raw.in_buffer.set_event(self._bell)
        raw.in_stderr_buffer.set_event(self._bell)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """All of ``data`` to its stdin; threads take turns.

        What a process that has ended cannot read is dropped: its last words are still to be read, and say more.
        """
        with self._sending:
            self._deliver(data)

    def send_if_idle(self, data: bytes) -> None:
        """The same, unless another thread is sending at this moment: then nothing."""
        if self._sending.acquire(blocking=False):
            try:
                self._deliver(data)
            finally:
                self._sending.release()

    def close_stdin(self) -> None:
        """It reads end of file after what was sent."""
        with contextlib.suppress(*GONE):
            self._raw.shutdown_write()

    def readline(self, timeout: float | None) -> bytes:
        """The next line of its stdout with its newline; the rest at end of file, then ``b""``.

        Raises TimeoutError, after which nothing is lost and reading may go on, and TfctlError for a line longer than
        wire.LINE_LIMIT.
        """
        return self._read(self._line, timeout)

    def wait(self, timeout: float | None) -> int:
        """Its exit status; -1 when a signal killed it or none was sent. Raises TimeoutError."""
        end = _end(timeout)
        self._until_ended(end)
        if not self._raw.status_event.wait(_left(end)):
            raise TimeoutError(f"{self.host}: `{self.command}` still runs")
        if self._raw.exit_status < 0:
            self._raise_if_lost()
        return int(self._raw.exit_status)

    @property
    def ended(self) -> bool:
        """Whether it has ended, or is known to be out of reach; what it said before can still be read."""
        return self._ended()

    def stderr(self) -> str:
        """The end of what it has written to stderr so far, without control characters."""
        with self._lock:
            self._drain()
            return plain(self._err.decode(errors="replace"))

    def close(self) -> None:
        """Let go of the process: it reads end of file, and SIGPIPE ends it if it writes on."""
        with contextlib.suppress(*GONE):
            self._raw.close()

    def _deliver(self, data: bytes) -> None:
        if not self._send(memoryview(data)):
            self._raise_if_lost()

    def _send(self, data: memoryview) -> bool:
        """False: the process reads no more."""
        end = time.monotonic() + SEND_S
        while data:
            try:
                sent = self._raw.send(data[:_CHUNK])
            except TimeoutError:
                # Perhaps it does not read because nobody takes what it writes.
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
        """``complete()`` bytes as soon as that is not 0, or what there is at the end."""
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
        """Take over what has arrived, and so let the process write on. The lock is held."""
        with contextlib.suppress(*GONE):
            while self._raw.recv_stderr_ready():
                self._err += self._raw.recv_stderr(_CHUNK)
                del self._err[:-STDERR_KEPT]
            while self._raw.recv_ready():
                self._out += self._raw.recv(_CHUNK)

    def _ended(self) -> bool:
        """Nothing more will arrive. To be asked before draining: what came last is then drained for certain."""
        return bool(self._raw.eof_received) or bool(self._raw.closed)

    def _raise_if_lost(self) -> None:
        """To be asked of a channel that is closed: by the host, or because the connection broke."""
        if self._closed_by_host:
            return
        transport = self._raw.get_transport()
        # The two look alike until paramiko's thread has ended.
        transport.join(0.2)
        self._closed_by_host = transport.is_active()
        if not self._closed_by_host:
            raise Unreachable(f"{self.host}: the connection broke while `{self.command}` ran", _BROKE)


class _Bell(threading.Event):
    """Rung by paramiko whenever something arrives or ends. It counts, so that no ring between two looks is missed."""

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
        """True as soon as it has been rung more than ``count`` times; False after ``timeout`` seconds."""
        with self._rung:
            return self._rung.wait_for(lambda: self.count > count, timeout)


def _end(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


_BROKE = "the machine went down, or the network did; what runs there as a unit runs on"
_STUCK = "the machine may be overloaded, or a file system there hangs"
