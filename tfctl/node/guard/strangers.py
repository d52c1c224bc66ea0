"""Connections to the head's guard that have not authenticated yet.

Whoever reaches the port can open them: another job's task on a host of this job, a user of the head, any other machine.
A stranger gets a few hundred bytes, a few seconds and one of a limited number of places. When these are taken, the next
connection takes the place of the oldest. So a member finds a place however many strangers there are, and it needs the
place only for as long as its answer takes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Callable, Collection, Iterable
from typing import cast

from . import link

#: How long (s) a connection may take to authenticate.
HANDSHAKE_S = 5.0
#: How long (s) a connection that has said something wrong is kept without being read. If it were closed at once, a
#: stranger that connects again and again would keep the guard busy.
REFUSED_S = 1.0
#: How many connections from the addresses of the job's hosts may be unauthenticated at a time, and how many from all
#: other addresses: all members of a job with 1,000 hosts may come at once. One address may have half of either.
PLACES = 4096
#: The descriptors that are for other things than connections.
_RESERVED = 64
#: How many bytes a member sends until it is authenticated, at most, in addition to the name of its host.
_GREETING = 512
#: How many connections to accept before what others have sent is read.
_AT_ONCE = 32
#: How many connections may wait to be accepted.
_BACKLOG = 4096
#: How an IPv6 socket shows an IPv4 address, which follows.
_MAPPED = bytes(10) + b"\xff\xff"
#: The beginning of an IPv6 address that a machine shares with no other one (bytes): it may have all that begin so.
_PREFIX = 8


class Strangers:
    """The strangers at the port of the head. ``hosts``, ``addresses``: of the members of the job.

    ``welcome`` gets the connection of each member that has proved that it has the ``key``, and what it says of itself.
    ``limit``: the longest message of a member (bytes).
    """

    def __init__(
        self, key: bytes, hosts: Collection[str], addresses: Iterable[str],
        welcome: Callable[[link.Link, link.MemberHello], object], limit: int,
    ) -> None:  # fmt: skip
        self._key, self._hosts, self._welcome, self._limit = key, hosts, welcome, limit
        self.greeting = _GREETING + max((len(json.dumps(host)) for host in hosts), default=0)
        self._known = {source for source in map(_source, addresses) if source}
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED - _AT_ONCE - len(hosts)
        self._places = max(4, min(PLACES, files // 2))
        # In the order in which they came.
        self._crowds: dict[bool, dict[_Stranger, None]] = {True: {}, False: {}}
        self._groups: dict[bytes, dict[_Stranger, None]] = {}

    async def listen(self, listener: socket.socket) -> asyncio.AbstractServer:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Stranger(self), sock=listener, backlog=_AT_ONCE)
        listener.listen(_BACKLOG)  # again: asyncio accepts as many connections at once as may wait
        return server

    def handshake(self) -> link.Handshake:
        return link.Handshake(self._key, self._hosts)

    def admit(self, stranger: _Stranger) -> None:
        """Give a stranger a place. If none is free, close the oldest connection of its address, or of all."""
        stranger.known = stranger.source in self._known
        stranger.group = stranger.source if stranger.known else stranger.source[:_PREFIX]
        crowd, group = self._crowds[stranger.known], self._groups.setdefault(stranger.group, {})
        crowd[stranger] = group[stranger] = None
        for places, limit in ((group, self._places // 2), (crowd, self._places)):
            if len(places) > limit:
                oldest = next(iter(places))
                self.remove(oldest)
                oldest.close()

    def remove(self, stranger: _Stranger) -> None:
        self._crowds[stranger.known].pop(stranger, None)
        group = self._groups.get(stranger.group, {})
        group.pop(stranger, None)
        if not group:
            self._groups.pop(stranger.group, None)

    def welcome(self, stranger: _Stranger, found: link.Recognized) -> None:
        """Hand over the connection of a member. Its address is that of a member from now on: a host may have several,
        or be known by a name alone."""
        self.remove(stranger)
        self._known.add(stranger.source)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(self._limit, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        stranger.transport.set_protocol(protocol)
        protocol.connection_made(stranger.transport)
        writer = asyncio.StreamWriter(stranger.transport, protocol, reader, loop)
        connection = link.Link(reader, writer, found.sealer, found.opener)
        connection.send(link.GuardBeat())  # which proves that the head has the key too
        self._welcome(connection, found.hello)


class _Stranger(asyncio.BufferedProtocol):
    """One of them. It reads into a buffer of fixed size. ``source``: its address. ``known``: whether that is one of the
    job. ``group``: by what strangers from one machine are counted."""

    transport: asyncio.Transport
    source: bytes
    known: bool
    group: bytes

    def __init__(self, strangers: Strangers) -> None:
        self._strangers, self._handshake = strangers, strangers.handshake()
        self._buffer, self._filled = bytearray(strangers.greeting), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.source = _source(transport.get_extra_info("peername")[0])
        self._end = asyncio.get_running_loop().call_later(HANDSHAKE_S, self.close)
        self._strangers.admit(self)
        self.transport.write(self._handshake.challenge)

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        hello, *proof = bytes(self._buffer[: self._filled]).split(b"\n", 2)
        if len(proof) == 2:
            try:
                found = self._handshake.recognize(hello, proof[0])
            except link.Broken:
                self._refuse()
            else:
                self._end.cancel()
                self._strangers.welcome(self, found)
        elif self._filled == len(self._buffer):
            self._refuse()

    def _refuse(self) -> None:
        self.transport.pause_reading()
        self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(REFUSED_S, self.close)

    def connection_lost(self, _: Exception | None) -> None:
        self._end.cancel()
        self._strangers.remove(self)

    def close(self) -> None:
        self.transport.close()


def _source(address: str) -> bytes:
    """Return the bytes of an IP address, or none for the name of a host."""
    try:
        found = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address.partition("%")[0])
    except OSError:
        return b""
    return found[len(_MAPPED) :] if found.startswith(_MAPPED) else found
