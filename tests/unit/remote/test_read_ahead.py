"""A socket that is read in few system calls, against a real socket."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from tfctl.remote.read_ahead import ReadAhead


@pytest.fixture
def ends() -> Iterator[tuple[ReadAhead, socket.socket]]:
    """Return a socket with a limit of 0.05 s, and the other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reading = ReadAhead(ours)
        reading.settimeout(0.05)
        yield reading, theirs


def test_what_has_arrived_together_is_returned_in_pieces(ends: tuple[ReadAhead, socket.socket]) -> None:
    reading, theirs = ends
    theirs.sendall(b"abcde")
    assert (reading.recv(2), reading.has_unread()) == (b"ab", True)
    assert (reading.recv(10), reading.has_unread()) == (b"cde", False)
    theirs.close()
    assert reading.recv(1) == b""


def test_reading_and_sending_end_after_the_limit(ends: tuple[ReadAhead, socket.socket]) -> None:
    """paramiko takes a TimeoutError while it reads, and also a BlockingIOError while it sends."""
    reading, theirs = ends
    with pytest.raises(TimeoutError):
        reading.recv(1)
    theirs.sendall(b"a")
    assert reading.recv(1) == b"a"
    with pytest.raises(BlockingIOError):
        while True:
            reading.send(b"x" * 65536)


class Refusing(socket.socket):
    """A socket on a system that takes no limit in this form."""

    def setsockopt(self, *_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_reading_ends_after_the_limit_where_the_kernel_refuses_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs, Refusing(fileno=ours.detach()) as refusing:
        reading = ReadAhead(refusing)
        reading.settimeout(0.05)
        with pytest.raises(TimeoutError):
            reading.recv(1)
