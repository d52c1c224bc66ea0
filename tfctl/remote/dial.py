"""The transport to an ssh server: a TCP connection, or a pipe to a proxy command, as for a jump host."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from tfctl.errors import Unreachable
from tfctl.remote.target import Target

# Milliseconds without an acknowledgement until the kernel closes a connection (tcp(7), TCP_USER_TIMEOUT).
_UNACKNOWLEDGED = 45_000


class Way:
    """An open transport. ``stream`` is connected to the host until ``close``."""

    def __init__(self, stream: socket.socket, release: Callable[[], None] = lambda: None) -> None:
        self.stream = stream
        self._release = release

    def close(self) -> None:
        """Close the stream. The host notices at once."""
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)
        self.stream.close()
        self._release()

    def said(self) -> str:
        """Return the last line that the proxy command wrote to stderr."""
        return ""


def dial(target: Target, end: float) -> Way:
    """Connect to ``target`` before ``end`` (on the clock of time.monotonic). Raises Unreachable."""
    if target.proxy is None:
        return Way(_tcp(target, end))
    try:
        return _Piped(target.proxy)
    except OSError as error:
        raise not_connected(target, error) from None


def _tcp(target: Target, end: float) -> socket.socket:
    addresses = _addresses(target)
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
    raise not_connected(target, error)


def _addresses(target: Target) -> list[Any]:
    try:
        return socket.getaddrinfo(target.address, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Unreachable(
            f"{target.name}: the name '{target.address}' is not found: {reason}",
            "correct it, or give the address in the inventory: ansible_host=10.0.0.1",
        ) from None


def not_connected(target: Target, error: OSError) -> Unreachable:
    """Convert the ``error`` of a connect to an Unreachable with a remedy."""
    if isinstance(error, ConnectionRefusedError):
        return Unreachable(
            f"{target.name}: {target.place} refuses the connection",
            "start sshd there (systemctl start ssh), or correct ansible_host and ansible_port",
        )
    if isinstance(error, TimeoutError) and error.errno is None:
        return Unreachable(f"{target.name}: {target.place} does not answer within {target.limit:g} s", _IS_IT_UP)
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Unreachable(f"{target.name}: no route to {target.place}", _IS_IT_UP)
    return Unreachable(f"{target.name}: no connection to {target.place}: {error.strerror or error}", _IS_IT_UP)


class _Piped(Way):
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

    def said(self) -> str:
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


_IS_IT_UP = "is the machine up, the address right, and the way there open (ping, firewall, VPN)?"
