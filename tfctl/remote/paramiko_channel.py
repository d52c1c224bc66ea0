"""A remote process on a connection of paramiko."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tfctl.remote import channel
from tfctl.remote.channel import CHUNK, SETTLE_S, BaseChannel, Patience, deadline, seconds_left
from tfctl.remote.read_ahead import ReadAhead

#: What paramiko raises on a channel that has ended.
GONE = (OSError, EOFError)


class ParamikoChannel(BaseChannel):
    """A Channel (remote/channel.py) on a connection of paramiko."""

    def __init__(self, host: str, command: str, raw: Any) -> None:
        """``raw`` is a paramiko.Channel on which ``command`` runs."""
        super().__init__(host, command)
        self._raw = raw
        self._bell = _Bell()
        self._lock = threading.Lock()
        self._closed_by_host = False
        # How often a blocked send checks whether the process is blocked on its own output.
        raw.settimeout(0.1)
        raw.in_buffer.set_event(self._bell)
        raw.in_stderr_buffer.set_event(self._bell)

    @property
    def ended(self) -> bool:
        # A _drain after this reads everything that is left.
        return bool(self._raw.eof_received) or bool(self._raw.closed)

    def close_stdin(self) -> None:
        with contextlib.suppress(*GONE):
            self._raw.shutdown_write()

    def wait(self, timeout: float | None) -> int:
        end = deadline(timeout)
        self._until_ended(end)
        if not self._raw.status_event.wait(seconds_left(end)):
            raise channel.running(self.host, self.command)
        if self._raw.exit_status < 0:
            self._raise_if_lost()
        return int(self._raw.exit_status)

    def stderr(self) -> str:
        self._drain()
        return self._output.error_text()

    def close(self) -> None:
        with contextlib.suppress(*GONE):
            self._raw.close()

    def _write(self, data: memoryview) -> int | None:
        try:
            return int(self._raw.send(data))
        except TimeoutError:
            self._drain()
            return None
        except GONE:
            return 0

    def _next(self, take: Callable[[], bytes], timeout: float | None) -> bytes:
        if data := take():
            return data
        patience = Patience(timeout)
        while True:
            count, ended = self._bell.count, self.ended
            self._drain()
            if data := take():
                return data
            if ended:
                if not self._raw.eof_received:
                    self._raise_if_lost()
                return b""
            if not self._bell.wait_after(count, patience.left) and patience.is_over(self._is_unread()):
                raise channel.silent(self.host, self.command, timeout)

    def _is_unread(self) -> bool:
        """Return whether something has arrived that the thread of the connection has not read."""
        with contextlib.suppress(*GONE, ValueError):
            stream: ReadAhead = self._raw.get_transport().sock
            return stream.has_unread()
        return False

    def _until_ended(self, end: float | None) -> None:
        while True:
            count, ended = self._bell.count, self.ended
            self._drain()
            if ended:
                return
            if not self._bell.wait_after(count, seconds_left(end)):
                raise channel.running(self.host, self.command)

    def _drain(self) -> None:
        """Read what has arrived, so that the process can go on writing."""
        with self._lock, contextlib.suppress(*GONE):
            while self._raw.recv_stderr_ready():
                self._output.add_error(self._raw.recv_stderr(CHUNK))
            while self._raw.recv_ready():
                self._output.add(self._raw.recv(CHUNK))

    def _raise_if_lost(self) -> None:
        """Raise Unreachable if the channel, already closed, was closed by a broken connection and not by the host."""
        if self._closed_by_host:
            return
        transport = self._raw.get_transport()
        transport.join(SETTLE_S)
        self._closed_by_host = transport.is_active()
        if not self._closed_by_host:
            raise channel.lost(self.host, self.command)


class _Bell(threading.Event):
    """An event that paramiko sets whenever data or the end arrives. It counts, so that no call between two checks is
    missed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._changed = threading.Condition()

    def set(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def clear(self) -> None:
        pass

    def wait_after(self, count: int, timeout: float | None) -> bool:
        """Return True once the event has been set more than ``count`` times, False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count > count, timeout)
