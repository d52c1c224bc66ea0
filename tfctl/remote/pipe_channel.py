"""A process whose standard streams are pipes of this machine: one on a connection of `ssh`, or one of this machine."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tfctl.remote import channel
from tfctl.remote.channel import CHUNK, SETTLE_S, BaseChannel, Patience, deadline, seconds_left

# How often (s) a blocked send checks whether the channel was closed, or another thread has stopped reading.
_SEND_CHECK_S = 0.1
_Socket = socket.socket


class PipedSession(Protocol):
    """What runs a process with these pipes.

    ``socket`` can be read when there is something to `receive`. ``status`` is the exit status, once it is known: -1 if
    a signal has killed the process. ``ended`` is True once the process, or what runs it, has ended.
    """

    @property
    def socket(self) -> _Socket: ...
    @property
    def status(self) -> int | None: ...
    @property
    def ended(self) -> bool: ...

    def receive(self) -> None:
        """Read what has arrived, without waiting."""


class PipeChannel(BaseChannel):
    """A Channel (remote/channel.py) that reads and writes the pipes of the process directly."""

    def __init__(
        self,
        host: str,
        command: str,
        start: Callable[[Sequence[int]], PipedSession],
        is_lost: Callable[[float], bool] = lambda _: False,
    ) -> None:
        """Start a process by ``start``, which gets its stdin, stdout and stderr and must not close them.

        ``is_lost`` waits up to so many seconds, and returns whether the connection has ended. Raises as ``start``.
        """
        super().__init__(host, command)
        self.closed = False
        self._is_lost = is_lost
        # Held by the thread that polls. A blocked sender polls for the output only if no reader does.
        self._polling = threading.RLock()
        theirs_in, self._stdin = os.pipe()
        self._stdout, theirs_out = os.pipe()
        self._stderr, theirs_err = os.pipe()
        self._stdin_open = True
        theirs = (theirs_in, theirs_out, theirs_err)
        try:
            self._session = start(theirs)
        except BaseException:
            _close(self._stdin, self._stdout, self._stderr)
            raise
        finally:
            _close(*theirs)
        self._streams: dict[int, Callable[[bytes], None]] = {
            self._stdout: self._output.add,
            self._stderr: self._output.add_error,
        }
        for stream in (self._stdin, *self._streams):
            os.set_blocking(stream, False)

    @property
    def ended(self) -> bool:
        self._drain_unless_polling()
        return self.closed or self._session.ended or self._stdout not in self._streams

    def close_stdin(self) -> None:
        with self._sending:
            if self._stdin_open:
                self._stdin_open = False
                _close(self._stdin)

    def wait(self, timeout: float | None) -> int:
        end = deadline(timeout)
        with self._poll_turn(end) as mine:
            while not (self.closed or self._session.ended):
                if not mine or not self._wait_for_output(end):
                    raise channel.running(self.host, self.command)
        self._raise_if_lost()
        return -1 if self._session.status is None else self._session.status

    def stderr(self) -> str:
        self._drain_unless_polling()
        return self._output.error_text()

    def close(self) -> None:
        self.closed = True
        # This wakes the thread that polls; `ssh` closes the session.
        with contextlib.suppress(OSError):
            self._session.socket.shutdown(socket.SHUT_RDWR)
        self.close_stdin()
        with self._polling:
            _close(*self._streams)
            self._streams.clear()
            self._session.socket.close()

    def _write(self, data: memoryview) -> int | None:
        if self.closed or not self._stdin_open:
            return 0
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            self._wait_to_send()
            return None
        except OSError:
            return 0

    def _next(self, take: Callable[[], bytes], timeout: float | None) -> bytes:
        if data := take():
            return data
        patience = Patience(timeout)
        with self._poll_turn(deadline(timeout)) as mine:
            while True:
                if data := take():
                    return data
                if self.closed or self._stdout not in self._streams:
                    self._raise_if_lost()
                    return b""
                if not mine or (not self._poll(patience.left) and patience.is_over()):
                    raise channel.silent(self.host, self.command, timeout)

    def _wait_to_send(self) -> None:
        if self._polling.acquire(blocking=False):
            try:
                self._poll(_SEND_CHECK_S, self._stdin)
            finally:
                self._polling.release()
        else:
            poll = select.poll()
            poll.register(self._stdin, select.POLLOUT)
            poll.poll(_SEND_CHECK_S * 1000)

    @contextlib.contextmanager
    def _poll_turn(self, end: float | None) -> Iterator[bool]:
        """Wait until no other thread polls. Yield whether that was so before ``end``."""
        left = seconds_left(end)
        mine = self._polling.acquire(timeout=-1 if left is None else left)
        try:
            yield mine
        finally:
            if mine:
                self._polling.release()

    def _wait_for_output(self, end: float | None) -> bool:
        """Read what arrives next. Return False if nothing has arrived by ``end``. Called by the thread that polls."""
        return self._poll(seconds_left(end))

    def _drain_unless_polling(self) -> None:
        if not self.closed and self._polling.acquire(blocking=False):
            try:
                self._poll(0)
            finally:
                self._polling.release()

    def _poll(self, timeout: float | None, writing: int | None = None) -> bool:
        """Wait for output, for the end, or until the stream ``writing`` takes data; read all that has arrived."""
        poll = select.poll()
        for stream in self._streams:
            poll.register(stream, select.POLLIN)
        if not self._session.ended and not self.closed:
            poll.register(self._session.socket, select.POLLIN)
        if writing is not None:
            poll.register(writing, select.POLLOUT)
        ready = poll.poll(None if timeout is None else math.ceil(timeout * 1000))
        for stream, _ in ready:
            if stream in self._streams:
                self._read(stream)
            elif stream != writing:
                self._session.receive()
        return bool(ready)

    def _read(self, stream: int) -> None:
        with contextlib.suppress(BlockingIOError):
            if data := os.read(stream, CHUNK):
                self._streams[stream](data)
            else:
                del self._streams[stream]
                _close(stream)

    def _raise_if_lost(self) -> None:
        """Raise Unreachable if the connection broke. The exit status, if there is one, arrives shortly after the end of
        the output."""
        end = time.monotonic() + SETTLE_S
        while not self._session.ended and not self.closed and self._session.status is None:
            with self._poll_turn(end) as mine:
                if not mine or not self._wait_for_output(end):
                    break
        if self._session.status is None and self._is_lost(SETTLE_S if self._session.ended else 0.0):
            raise channel.lost(self.host, self.command)


def _close(*streams: int) -> None:
    for stream in streams:
        os.close(stream)
