"""Sessions on the connection of an `ssh` that listens on a control socket (PROTOCOL.mux of OpenSSH, version 4).

A message is its length, its type and its fields. Numbers have 32 bits, and strings begin with their length. The three
streams of a session are passed as file descriptors, so their data does not go through the socket.
"""

from __future__ import annotations

import array
import contextlib
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

_VERSION = 4
_HELLO = 0x00000001
_NEW_SESSION = 0x10000002
_NEW_STDIO_FORWARD = 0x10000008
_PERMISSION_DENIED = 0x80000002
_FAILURE = 0x80000003
_EXIT_MESSAGE = 0x80000004
_SESSION_OPENED = 0x80000006
_NO_ESCAPE_CHARACTER = 0xFFFFFFFF
_CHUNK = 4096


class SessionRefused(Exception):
    """The `ssh` or the host refuses a session; the argument is the reason."""


class MuxSession:
    """A session on a host, which ends when ``socket`` is closed.

    ``status`` is the exit status, once the host has sent one. ``ended`` is True once the session, or the `ssh`, has
    ended.
    """

    def __init__(self, path: Path, wanted: str | int, streams: Sequence[int], timeout: float) -> None:
        """Run the command ``wanted`` with the file descriptors ``streams`` as its stdin, stdout and stderr; or connect
        the two ``streams`` to the port ``wanted`` of the host's loopback address.

        Raises SessionRefused, TimeoutError after ``timeout`` seconds, and another OSError if no `ssh` listens on
        ``path``.
        """
        self.status: int | None = None
        self.ended = False
        self._received = bytearray()
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.settimeout(timeout)
            self.socket.connect(str(path))
            self._open(_command(wanted) if isinstance(wanted, str) else _forward(wanted), streams)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def receive(self) -> None:
        """Read what has arrived, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while self._fill():
                pass
        while message := self._message():
            if _number(message) == _EXIT_MESSAGE:
                # After the type come the session's number and the status.
                self.status = _number(message, 8)

    def _open(self, request: bytes, streams: Sequence[int]) -> None:
        self._send(_numbers(_HELLO, _VERSION))
        self._send(request)
        for stream in streams:
            self.socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream]))])
        while True:
            while not (message := self._message()):
                if not self._fill():
                    raise ConnectionResetError("ssh closed its control socket")
            kind = _number(message)
            if kind == _SESSION_OPENED:
                return
            if kind in (_PERMISSION_DENIED, _FAILURE):
                # After the type come the request number and the reason, which begins with its length.
                raise SessionRefused(message[12:].decode(errors="replace"))

    def _fill(self) -> bool:
        """Read once. Return False at the end."""
        try:
            data = self.socket.recv(_CHUNK)
        except ConnectionError:
            data = b""
        self._received += data
        self.ended = not data
        return bool(data)

    def _message(self) -> bytes:
        """Return the next message that has arrived in full, or ``b""``."""
        if len(self._received) < 4 or len(self._received) < (size := 4 + _number(self._received)):
            return b""
        message = bytes(self._received[4:size])
        del self._received[:size]
        return message

    def _send(self, message: bytes) -> None:
        self.socket.sendall(_numbers(len(message)) + message)


def _command(command: str) -> bytes:
    # Request number, reserved, four flags (terminal, X11, agent, subsystem), escape character, terminal, command.
    request = _numbers(_NEW_SESSION, 0) + _text("") + _numbers(0, 0, 0, 0, _NO_ESCAPE_CHARACTER) + _text("")
    return request + _text(command)


def _forward(port: int) -> bytes:
    # Request number, reserved, host, port.
    return _numbers(_NEW_STDIO_FORWARD, 0) + _text("") + _text("127.0.0.1") + _numbers(port)


def _numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def _number(data: bytes | bytearray, offset: int = 0) -> int:
    return int.from_bytes(data[offset : offset + 4], "big")


def _text(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return _numbers(len(data)) + data
