"""What this host sees of the others: the addresses of their names, and whether it can connect to them."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterable, Sequence
from threading import Thread
from typing import NamedTuple

from . import names
from .lookup import look_up
from .wire import Peer, Unreached

#: How long (s) to wait for the addresses of names, and for an answer of the hosts that have them.
LOOKUP_S, ANSWER_S = 5.0, 1.0
#: When (s) to try again, because the kernel sends a lost packet again only after a second.
_AGAIN_S = 0.4
#: A host that refuses a connection has been reached: nothing listens at the ports of a job that has not begun.
_REACHED = (0, errno.ECONNREFUSED, errno.ECONNRESET)


class Network:
    """The network of this host. Tests have another one."""

    def lookup(self, name: str) -> list[str]:
        """Return the addresses of a host, IPv4 first. Raises OSError or UnicodeError."""
        return look_up(name)

    def connect(self, address: str, port: int) -> socket.socket:
        """Begin to connect to an IP address. Raises OSError."""
        begun = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        begun.setblocking(False)
        number = begun.connect_ex((address, port))
        if number not in (0, errno.EINPROGRESS):
            begun.close()
            raise OSError(number, os.strerror(number))
        return begun


class Lookup(NamedTuple):
    """The addresses of a name, or why there are none."""

    addresses: Sequence[str] = ()
    why: str = ""


class Lookups:
    """Names that are being looked up."""

    def __init__(self, network: Network, wanted: Iterable[str]) -> None:
        self._network = network
        self._found = dict.fromkeys(wanted, Lookup((), f"no answer within {LOOKUP_S:.0f} s"))
        self._until = time.monotonic() + LOOKUP_S
        self._threads = [Thread(target=self._look, args=[name], daemon=True) for name in self._found]
        for thread in self._threads:
            thread.start()

    def wait(self) -> dict[str, Lookup]:
        """Return what has been found in time."""
        for thread in self._threads:
            thread.join(max(0.0, self._until - time.monotonic()))
        return dict(self._found)

    def _look(self, name: str) -> None:
        try:
            found = Lookup(self._network.lookup(name))
        except OSError as error:
            found = Lookup((), error.strerror or str(error))
        except UnicodeError:
            found = Lookup((), "not a name")
        self._found[name] = found


class _Attempt(NamedTuple):
    """A connection that has begun."""

    connection: socket.socket
    peer: Peer
    address: str


class Attempts:
    """Attempts to connect to peers, which begin at once. A context manager that ends them."""

    def __init__(self, network: Network, peers: Sequence[Peer]) -> None:
        self._network, self._peers = network, peers
        self._open: list[_Attempt] = []
        self._reached: set[Peer] = set()
        self._failures: dict[Peer, Unreached] = {}
        self._began = time.monotonic()
        for peer in peers:
            if _is_ip(peer.address):
                self._begin(peer, peer.address)

    def __enter__(self) -> Attempts:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            each.connection.close()
        self._open = []

    def unreached(self) -> tuple[Unreached, ...]:
        """Wait for answers, and return the peers that have given none. Names are looked up now: a process that is
        forked earlier must not have threads."""
        self._begin_named([peer for peer in self._peers if not _is_ip(peer.address)])
        self._poll(self._began + _AGAIN_S)
        if time.monotonic() < self._began + ANSWER_S:
            for each in list(self._open):
                self._begin(each.peer, each.address)
        self._poll(self._began + ANSWER_S)
        return tuple(self._failure(peer) for peer in self._peers if peer not in self._reached)

    def _begin_named(self, peers: Sequence[Peer]) -> None:
        """Look up the names of these peers, and begin to connect to all addresses that they have."""
        if not peers:
            return
        lookups = Lookups(self._network, [peer.address for peer in peers]).wait()
        self._began = time.monotonic()
        for peer in peers:
            found = lookups[peer.address]
            elsewhere = [address for address in found.addresses if not is_loopback(address)]
            for address in elsewhere:
                self._begin(peer, address)
            if not found.addresses:
                failure = f"cannot resolve the name {peer.address}: {found.why}"
                self._failures[peer] = Unreached(peer.host, failure, named=True)
            elif not elsewhere:
                failure = f"cannot reach {peer.address}: the name resolves to {found.addresses[0]} there"
                self._failures[peer] = Unreached(peer.host, failure, named=True)

    def _begin(self, peer: Peer, address: str) -> None:
        try:
            self._open.append(_Attempt(self._network.connect(address, peer.port), peer, address))
        except OSError as error:
            self._note(peer, error.errno or errno.EIO)

    def _poll(self, until: float) -> None:
        """Take the answers that arrive in time."""
        while True:
            waiting = {each.connection.fileno(): each for each in self._open if each.peer not in self._reached}
            if not waiting:
                return
            poller = select.poll()
            for number in waiting:
                poller.register(number, select.POLLOUT)
            answered = poller.poll(1000 * max(0.0, until - time.monotonic()))
            if not answered:
                return
            for number, _ in answered:
                each = waiting[number]
                self._open.remove(each)
                with each.connection:
                    self._note(each.peer, each.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _note(self, peer: Peer, number: int) -> None:
        """Note how an attempt has ended."""
        if number in _REACHED:
            self._reached.add(peer)
        else:
            self._failures[peer] = _silent(peer, os.strerror(number))

    def _failure(self, peer: Peer) -> Unreached:
        return self._failures.get(peer) or _silent(peer, f"no answer within {ANSWER_S:.0f} s")


def is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def _silent(peer: Peer, why: str) -> Unreached:
    return Unreached(peer.host, f"cannot reach {names.endpoint(peer.address, peer.port)}: {why}", named=False)


def _is_ip(address: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.partition("%")[0])
        except OSError:
            continue
        return True
    return False
