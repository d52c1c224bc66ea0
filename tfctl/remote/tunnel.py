"""Forward a port of this machine to a port of a host, over the connection that is open already."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from tfctl.errors import Busy, TfctlError

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection, Stream

_PIECE = 1 << 16
#: How long (s) to wait after a connection could not be accepted.
_PAUSE_S = 0.1


class Tunnel:
    """Listens on a port of this machine's loopback address and connects to ``port`` of the host's.

    ``candidates``: the ports to try here, where 0 is any. A context manager: the end of the block closes everything.
    ``connection`` returns the connection to the host; ``say`` gets a sentence for each connection that cannot be made.
    Raises Busy if no candidate can be used.
    """

    def __init__(
        self, connection: Callable[[], Connection], port: int, candidates: Sequence[int], say: Callable[[str], None]
    ) -> None:
        self._connection, self._port, self._say = connection, port, say
        self._ends: set[socket.socket | Stream] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listener = _listener(candidates)
        self.local: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with self._lock:
            self._closed = True
            ends = list(self._ends)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake `accept`
        self._listener.close()
        for end in ends:
            _hang_up(end)

    def _accept(self) -> None:
        """Accept connections until `close`. Report a failure, such as too many open files, once, and try again."""
        failed = False
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                if not failed:
                    self._say(f"port {self.local} of this machine cannot accept a connection: {error.strerror}")
                failed = True
                time.sleep(_PAUSE_S)
            else:
                failed = False
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = self._connection().dial(self._port)
        except (TfctlError, OSError) as error:
            self._say(error.message if isinstance(error, TfctlError) else f"port {self._port}: {error.strerror}")
            near.close()
            return
        with self._lock:
            closed = self._closed
            self._ends |= {near, far}
        if closed:
            _hang_up(near)
            _hang_up(far)
            return
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()
        with self._lock:
            self._ends -= {near, far}
        near.close()
        far.close()


def _pump(source: socket.socket | Stream, sink: socket.socket | Stream) -> None:
    """Forward everything in one direction, and its end."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(_PIECE):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)


def _hang_up(end: socket.socket | Stream) -> None:
    with contextlib.suppress(OSError, EOFError):
        end.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError, EOFError):
        end.close()


def _listener(candidates: Sequence[int]) -> socket.socket:
    for number in candidates:
        with contextlib.suppress(OSError):  # also for a port below 1024, which only root may take
            return socket.create_server(("127.0.0.1", number))
    raise Busy(f"port {candidates[0]} of this machine cannot be used", "name another one, or none")
