"""The byte stream to an ssh server: a TCP connection, or a pipe to a proxy command, as for a jump host."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from tfctl.remote import refusals
from tfctl.remote.jump import shared
from tfctl.remote.ssh_config import Server

# Milliseconds without an acknowledgement until the kernel closes a connection (tcp(7), TCP_USER_TIMEOUT).
_UNACKNOWLEDGED = 45_000
# sshd refuses at random when ten have connected and not yet logged in (MaxStartups 10:30:100).
_proxies = threading.BoundedSemaphore(8)


class ByteStream:
    """An open byte stream to an ssh server. ``stream`` is connected until ``close``."""

    def __init__(self, stream: socket.socket, release: Callable[[], None] = lambda: None) -> None:
        self.stream = stream
        self._release = release

    def close(self) -> None:
        """Close the stream. The server notices at once."""
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()
        self._release()

    def error_text(self) -> str:
        """Return the last line that the proxy command wrote to stderr."""
        return ""


@contextlib.contextmanager
def turn(server: Server) -> Iterator[None]:
    """Wait until few enough proxy commands are connecting: most of them log in to one and the same jump host."""
    if server.proxy is None or server.jump is not None:
        yield
        return
    with _proxies:
        yield


def dial(server: Server, end: float) -> ByteStream:
    """Connect to ``server`` before ``end`` (on the clock of time.monotonic). Raises Unreachable."""
    if server.proxy is None:
        return ByteStream(_tcp(server, end))
    try:
        return _Piped(shared(server, server.jump, end) if server.jump else server.proxy)
    except OSError as error:
        raise refusals.not_connected(server, error) from None


def _tcp(server: Server, end: float) -> socket.socket:
    addresses = _addresses(server)
    error: OSError = TimeoutError()
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        try:
            stream = socket.socket(family, kind, protocol)
        except OSError as failure:  # no such network here, or too many files
            error = failure
            continue
        try:
            # An address that never answers must leave time for the next one.
            stream.settimeout(max(0.001, (end - time.monotonic()) / (len(addresses) - number)))
            stream.connect(address)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED)
            return stream
        except OSError as failure:
            stream.close()
            error = failure
    raise refusals.not_connected(server, error)


def _addresses(server: Server) -> list[Any]:
    try:
        return socket.getaddrinfo(server.address, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise refusals.name_not_found(server, reason) from None


class _Piped(ByteStream):
    """A proxy command, run by the shell as ssh does, in its own session so that Ctrl-C does not end it."""

    def __init__(self, command: str) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr.fileno(),
                start_new_session=True,
            )
        super().__init__(ours, self._end)

    def error_text(self) -> str:
        self._finish()
        self._stderr.seek(0)
        return (self._stderr.read().decode(errors="replace").strip().splitlines() or [""])[-1]

    def _end(self) -> None:
        self._finish()
        self._stderr.close()

    def _finish(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
