"""A socket that is read in few system calls."""

from __future__ import annotations

import select
import socket
import struct

#: Bytes read at once: a packet of ssh has up to 32 KiB.
_SIZE = 1 << 16


class ReadAhead:
    """A socket whose `recv` reads all that has arrived, and returns it in the pieces that the caller asks for.

    paramiko asks twice for each packet, and with a timeout of Python, each call is also a poll(2). If many threads
    read, Python may switch threads at each system call. Only one thread may read.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._read = b""
        self._used = 0  # bytes of it
        self.send = stream.send  # paramiko tries again if it raises BlockingIOError
        self.getpeername = stream.getpeername
        self.close = stream.close

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes, or ``b""`` at the end. Raises OSError, and TimeoutError as a socket does."""
        if self._used == len(self._read):
            try:
                self._read, self._used = self._stream.recv(_SIZE), 0
            except BlockingIOError:
                raise TimeoutError from None
        piece = self._read[self._used : self._used + size]
        self._used += len(piece)
        return piece

    def settimeout(self, seconds: float) -> None:
        """Limit each `recv` and `send`. The kernel does it (socket(7): SO_RCVTIMEO), or Python where the kernel refuses
        this form of the limit, as some 32-bit systems do."""
        self._stream.settimeout(None)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))  # struct timeval
        try:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._stream.setsockopt(socket.SOL_SOCKET, option, limit)
        except OSError:
            self._stream.settimeout(seconds)

    def has_unread(self) -> bool:
        """Return whether something has arrived that `recv` has not returned. Raises OSError, ValueError."""
        if self._used < len(self._read):
            return True
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self._stream, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def _closed(self) -> bool:
        """Whether it was closed: paramiko asks a socket for it."""
        return self._stream.fileno() < 0
