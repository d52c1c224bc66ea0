"""The node's side of a session: read lines with a limit on silence, write lines, notice that the client left."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Any, Callable, cast

from . import wire
from .exits import Exit

_PIECE_S = 1.0
_CHUNK = 1 << 18


class RequestRefused(Exception):
    """A request that cannot be served. ``error`` is sent to the client."""

    def __init__(
        self, exit_code: Exit, message: str, remedy: str = "", retry: bool | None = None, stack: str | None = None
    ) -> None:
        super().__init__(message)
        self.error = wire.Error(int(exit_code), message, remedy, retry, stack)

    @classmethod
    def of(cls, error: wire.Error) -> RequestRefused:
        """Return the exception for an error that another process reported."""
        return cls(Exit(error.exit), *error[1:])


class Gone(Exception):
    """The client has closed its end or has been silent for too long."""


class NotDone(Exception):
    """The work was not done, and the client has been told why by a message of the verb. The session is over."""


class NodeSession:
    """A session over two file descriptors. ``silence``: seconds without input after which the client is gone."""

    def __init__(self, source: int = 0, sink: int = 1, silence: float = wire.SILENCE_S) -> None:
        self._source, self._sink, self._silence = source, sink, silence
        self._rest = bytearray()
        self._heard = time.monotonic()

    def request(self) -> dict[str, Any]:
        """Read a request, a JSON object. Raises RequestRefused, Gone."""
        try:
            return wire.parse(self._line())
        except wire.Malformed:
            raise RequestRefused(
                Exit.USAGE, "the request is not a line of JSON", "do not run tfctl-node yourself: tfctl does so"
            ) from None

    def receive(self) -> wire.ClientMessage:
        """Return the next message other than a beat. Raises RequestRefused, Gone."""
        while True:
            try:
                message = wire.client_message(self._line())
            except wire.Malformed as error:
                raise RequestRefused(Exit.USAGE, f"a line from the client is malformed: {error}") from None
            if not isinstance(message, wire.Beat):
                return message

    def payload(self, size: int, write: Callable[[bytes], object]) -> None:
        """Pass the next ``size`` raw bytes to ``write``, in pieces. Raises Gone."""
        while size > 0:
            if not self._rest:
                self._fill()
            piece = bytes(self._rest[:size])
            del self._rest[: len(piece)]
            size -= len(piece)
            write(piece)

    def send(self, message: wire.NodeMessage) -> None:
        """Write one message. Raises Gone if the client no longer reads."""
        self.send_raw(wire.line(message))

    def send_raw(self, data: bytes) -> None:
        """Write bytes. Raises Gone if the client no longer reads."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._sink, rest) :]
        except OSError:
            raise Gone from None

    @property
    def has_reader(self) -> bool:
        """Whether the client can still read what is sent."""
        poller = select.poll()
        poller.register(self._sink, 0)  # errors are reported in any case
        return not poller.poll(0)

    def heartbeat(self) -> Callable[[], None]:
        """Return a function that sends a beat, but no more often than necessary. A client that is gone is ignored."""
        last = time.monotonic()

        def beat() -> None:
            nonlocal last
            if time.monotonic() - last > wire.BEAT_S:
                last = time.monotonic()
                with contextlib.suppress(Gone):
                    self.send(wire.Beat())

        return beat

    def read_output(self, process: subprocess.Popen[bytes], said: IO[bytes], limit: float) -> str:
        """Return what the process writes to ``said`` until it closes it. Send beats meanwhile.

        Raises RequestRefused after ``limit`` seconds, and Gone as soon as the client is gone: the process is killed.
        """
        found, now = bytearray(), time.monotonic()
        until, beat = now + limit, now + wire.BEAT_S
        try:
            while (now := time.monotonic()) < until:
                if now > beat:
                    self.send(wire.Beat())
                    beat = now + wire.BEAT_S
                ready = _readable([said.fileno(), self._source], min(until, beat) - now)
                if self._source in ready:
                    self._read()
                if said.fileno() in ready:
                    data = os.read(said.fileno(), 4096)
                    if not data:
                        process.wait(5)
                        break
                    found += data
            else:
                program, place = cast("list[str]", process.args)[0], os.uname().nodename
                what = f"{program} on {place} ran longer than {limit:.0f} s and was killed"
                remedy = "to see what it waits for, run on the host: systemctl list-jobs; dmesg"
                raise RequestRefused(Exit.FAILED, what, remedy)
        finally:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait(5)
        return found.decode("utf-8", "replace").strip()

    def readable(self, descriptors: Sequence[int], timeout: float) -> list[int]:
        """Return those descriptors that can be read, once there is one, or after ``timeout`` seconds.

        Discard what the client sends. Raises Gone if it has closed its end, or has been silent for too long.
        """
        ready = _readable([*descriptors, self._source], timeout)
        if self._source in ready:
            self._read()
            self._rest.clear()
        elif time.monotonic() > self._heard + self._silence:
            raise Gone
        return [descriptor for descriptor in ready if descriptor != self._source]

    def heard_of_end(self, within: float) -> bool:
        """Return whether the client has closed its end, or does so ``within`` seconds. Discard its input."""
        until = time.monotonic() + within
        while _readable([self._source], max(0.0, until - time.monotonic())):
            try:
                self._read()
            except Gone:
                return True
            self._rest.clear()
        return False

    def _line(self) -> bytes:
        searched = 0
        while True:
            end = self._rest.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                return line
            searched = len(self._rest)
            if searched > wire.LINE_LIMIT:
                raise RequestRefused(Exit.USAGE, f"a line is longer than {wire.LINE_LIMIT} bytes")
            self._fill()

    def _fill(self) -> None:
        # Poll even when the time is up: input may have arrived while the node itself was busy.
        if not _readable([self._source], max(0.0, self._heard + self._silence - time.monotonic())):
            raise Gone
        self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._source, _CHUNK)
        except OSError:
            data = b""
        if not data:
            raise Gone
        self._heard = time.monotonic()
        self._rest += data


def _readable(descriptors: list[int], timeout: float) -> list[int]:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    # Poll in short pieces: a signal that arrives just before the call is handled only after it returns.
    until = time.monotonic() + timeout
    while True:
        left = until - time.monotonic()
        found = poller.poll(max(0.0, min(left, _PIECE_S)) * 1000)
        if found or left <= _PIECE_S:
            return [descriptor for descriptor, _ in found]
