"""Strangers at a port of this machine: `strangers_at_port.py PORT IDLE SENDING GREETING ADDRESS…`.

IDLE connections say nothing, SENDING ones send 1.2 MB without a line break, GREETING ones the hello of a member of the
job and a proof that is none. They come from these addresses, one after the other, and each is opened again as soon as
it is closed. The program prints a line once all have been opened, and ends with its stdin, or after a minute.
"""

from __future__ import annotations

import itertools
import json
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: IP_BIND_ADDRESS_NO_PORT (ip(7)): choose the port only when connecting, so that connections may share it.
_NO_PORT = 24
_HELLO = json.dumps({"host": "node2", "run": "0123abcd", "nonce": "0" * 32}).encode()
_DATA = {"idle": b"", "sending": b"x" * 1_200_000, "greeting": _HELLO + b"\n" + b"0" * 64 + b' {"beat":{}}\n'}
_LAST_S = 60.0


@contextmanager
def strangers_at(port: int, addresses: Sequence[str], **kinds: int) -> Iterator[None]:
    """Let so many strangers of each kind connect to a port during the block."""
    counts = [str(kinds.get(kind, 0)) for kind in _DATA]
    words = [sys.executable, "-S", __file__, str(port), *counts, *addresses]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == b"open\n"
            yield
        finally:
            process.kill()


class Connection:
    """One connection. ``rest``: what it has still to send."""

    def __init__(self, kind: str, address: str, port: int) -> None:
        self.kind, self.address, self.port = kind, address, port
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_IP, _NO_PORT, 1)
        self.socket.bind((address, 0))
        self.socket.connect_ex(("127.0.0.1", port))
        self.rest = memoryview(_DATA[kind])

    def serve(self, events: int) -> bool:
        """Read and write what is possible. Return whether the connection still stands."""
        try:
            if events & ~select.EPOLLOUT and not self.socket.recv(4096):
                return False
            if events & select.EPOLLOUT and self.rest:
                self.rest = self.rest[self.socket.send(self.rest[: 1 << 16]) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def again(self) -> Connection:
        self.socket.close()
        return Connection(self.kind, self.address, self.port)


def main() -> None:
    port, *counts = map(int, sys.argv[1 : 2 + len(_DATA)])
    addresses = itertools.cycle(sys.argv[2 + len(_DATA) :])
    resource.setrlimit(resource.RLIMIT_NOFILE, 2 * (resource.getrlimit(resource.RLIMIT_NOFILE)[1],))
    poller, until = select.epoll(), time.monotonic() + _LAST_S
    held: dict[int, Connection] = {}

    def watch(connection: Connection) -> None:
        held[connection.socket.fileno()] = connection
        poller.register(connection.socket, select.EPOLLIN | (select.EPOLLOUT if connection.rest else 0))

    for kind, count in zip(_DATA, counts, strict=True):
        for _ in range(count):
            watch(Connection(kind, next(addresses), port))
    print("open", flush=True)
    poller.register(0, select.EPOLLIN)
    while time.monotonic() < until:
        for descriptor, events in poller.poll(1.0):
            if descriptor == 0:
                return
            connection = held[descriptor]
            if not connection.serve(events):
                poller.unregister(descriptor)
                del held[descriptor]
                watch(connection.again())
            elif not connection.rest:
                poller.modify(descriptor, select.EPOLLIN)


if __name__ == "__main__":
    main()
