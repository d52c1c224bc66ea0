"""Run a function on many hosts at once. The failure of a host is a result and does not stop the others.

A thread connects to a host, works on it and goes on with the next host. Another one is started when fewer than `MOST`
connect, so long work on one host does not delay the others. They are daemon threads, so Ctrl-C ends the program at
once, whatever a host is doing.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from tfctl.errors import TfctlError, Unreachable
from tfctl.model.host import Host
from tfctl.remote import transport
from tfctl.remote.connecting import MOST, ConnectLimit
from tfctl.remote.records import Records

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

T = TypeVar("T")

#: For how long (s) a thread may run while others wait for their turn: per host, and at most.
_SWITCH_S, _SWITCH_MOST_S = 50e-6, 0.05
#: Seconds for which `map`, `begin` and `prepare` do not dial a host again that could not be reached.
_REMEMBERED_S = 60.0


@dataclass(frozen=True)
class HostOutcome(Generic[T]):
    """The result of one host: a value or an error."""

    host: Host
    value: T | None = None
    error: TfctlError | None = None

    def get(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Defect(TfctlError):
    """A bug: the work on a host raised an exception that is neither a TfctlError nor a TimeoutError, its
    ``__cause__``."""


class Fleet:
    """Connections to ``hosts``, made on first use and kept until `close` or `narrow`. A context manager.

    Without ``keep``, `map` and `begin` close each connection once the work on it is done, so that a command which asks
    each host only once does not hold the connections to all of them until its end.
    """

    def __init__(self, hosts: Iterable[Host], keep: bool = True) -> None:
        self.hosts = tuple(hosts)
        self._keep = keep
        self._connecting = ConnectLimit()
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._unwanted: list[Connection] = []  # of hosts that are no longer in `hosts`
        self._attempts: dict[str, _Attempt] = {}
        self._failed: dict[str, tuple[float, Unreachable]] = {}
        self._closed = False
        #: The records of jobs that its hosts have sent.
        self.records = Records()
        #: By how many seconds each host's clock is ahead of this machine's, as far as it is known.
        self.clock_offsets: dict[str, float] = {}
        #: The hosts of which that has been reported.
        self.reported_clocks: set[str] = set()
        _raise_file_limit()
        _wake_rarely(len(self.hosts))

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def part(self, names: Iterable[str]) -> Fleet:
        """Return a fleet of the hosts with these names. It uses the connections of this one, which closes them."""
        wanted = set(names)
        made = copy.copy(self)
        made.hosts = tuple(host for host in self.hosts if host.name in wanted)
        return made

    def narrow(self, names: Iterable[str]) -> None:
        """Keep only the hosts with these names. If none has one, keep all.

        A thread closes the connections to the others, on which nothing may run. If one of them is asked later, it is
        connected to again.
        """
        wanted = set(names)
        self.hosts = tuple(host for host in self.hosts if host.name in wanted) or self.hosts
        kept = {host.name for host in self.hosts}
        with self._lock:
            unwanted = [self._connections.pop(name) for name in [*self._connections] if name not in kept]
            self._unwanted += unwanted
        if unwanted:
            threading.Thread(target=self._close_unwanted, daemon=True).start()

    def map(self, work: Callable[[Connection], T], hosts: Iterable[Host] | None = None) -> list[HostOutcome[T]]:
        """Run ``work`` on all hosts, or on ``hosts``, and return the outcomes in the same order.

        A TfctlError or a TimeoutError from ``work`` becomes the error of the host's outcome. Any other exception is
        raised here, as Ctrl-C is.
        """
        chosen = self.hosts if hosts is None else tuple(hosts)
        count = len({host.name for host in chosen})
        outcomes: dict[str, HostOutcome[T]] = {}
        over = threading.Event()

        def done(outcome: HostOutcome[T]) -> None:
            outcomes[outcome.host.name] = outcome
            if isinstance(outcome.error, Defect) or len(outcomes) == count:
                over.set()

        self.begin(work, done, {host.name: host for host in chosen}.values())
        # Wake once a second, because Ctrl-C does not end a wait that is just about to begin.
        while chosen and not over.wait(1.0):
            pass
        for outcome in [*outcomes.values()]:
            if isinstance(outcome.error, Defect) and outcome.error.__cause__ is not None:
                raise outcome.error.__cause__
        return [outcomes[host.name] for host in chosen]

    def begin(
        self,
        work: Callable[[Connection], T],
        done: Callable[[HostOutcome[T]], object],
        hosts: Iterable[Host] | None = None,
    ) -> Callable[[], None]:
        """Start ``work`` on each host and return. The thread that did it calls ``done`` with the outcome.

        Return a function that gives up the hosts whose turn to be connected to has not come. They have no outcome.
        """
        chosen = self.hosts if hosts is None else tuple(hosts)
        transport.preload(chosen)

        left = list(reversed(chosen))
        connecting = 0  # threads
        lock = threading.Lock()

        def start() -> None:
            threading.Thread(target=serve, name="fleet", daemon=True).start()

        def serve() -> None:
            nonlocal connecting
            while True:
                with lock:
                    if not left:
                        return
                    host = left.pop()
                    connecting += 1
                done(_outcome(host, partial(connected, host)))

        def connected(host: Host) -> T:
            nonlocal connecting
            try:
                connection = self.connection(host, redial_failed=False)
            finally:
                with lock:
                    connecting -= 1
                    too_few = bool(left) and connecting < MOST
                if too_few:
                    with contextlib.suppress(RuntimeError):  # no more threads can be started: these go on
                        start()
            try:
                return work(connection)
            finally:
                if not self._keep:
                    self._drop(connection)

        # More threads would only wait for their turn to connect.
        for started in range(min(MOST, len(chosen))):
            try:
                start()
            except RuntimeError:  # no more threads can be started
                if not started:
                    raise
                break

        def give_up() -> None:
            with lock:
                left.clear()

        return give_up

    def prepare(self) -> None:
        """Start to connect to all hosts, and return. A host that cannot be reached raises when it is used."""
        self.begin(lambda _: None, lambda _: None)

    def connection(self, host: Host, redial_failed: bool = True) -> Connection:
        """Return the connection to ``host``; reconnect if it was lost. Concurrent callers share one attempt.

        Without ``redial_failed``, raise the error of an attempt that failed within the last minute instead of dialing
        again: a command that asks several times would wait each time. Raises Unreachable.
        """
        with self._lock:
            held = self._connections.get(host.name)
            if held is not None and held.alive:
                return held
            failed, error = self._failed.get(host.name, (0.0, None))
            if error is not None and not redial_failed and time.monotonic() < failed + _REMEMBERED_S:
                raise error
            attempt, mine = self._attempts.get(host.name), False
            if attempt is None:
                attempt, mine = self._attempts.setdefault(host.name, _Attempt()), True
        if mine:
            self._make(host, attempt)
        return attempt.result()

    def close(self) -> None:
        """Close every connection. Unfinished work ends with an error."""
        with self._lock:
            self._closed = True
            connections = [*self._connections.values(), *self._unwanted]
            self._connections.clear()
            self._unwanted.clear()
        for connection in connections:
            connection.close()

    def _drop(self, connection: Connection) -> None:
        with self._lock:
            if self._connections.get(connection.host.name) is connection:
                del self._connections[connection.host.name]
        connection.close()

    def _close_unwanted(self) -> None:
        while True:
            with self._lock:
                if not self._unwanted:
                    return
                connection = self._unwanted.pop()
            connection.close()

    def _make(self, host: Host, attempt: _Attempt) -> None:
        lost: Connection | None = None
        try:
            with self._connecting:
                if self._closed:
                    raise Unreachable(f"{host.name}: given up")
                made = transport.connect(host)
            with self._lock:
                if self._closed:
                    lost = made
                    raise Unreachable(f"{host.name}: given up")
                lost, self._connections[host.name] = self._connections.get(host.name), made
                self._failed.pop(host.name, None)
            attempt.made = made
        except BaseException as error:
            attempt.error = error
        with self._lock:
            del self._attempts[host.name]
            if isinstance(attempt.error, Unreachable):
                self._failed[host.name] = time.monotonic(), attempt.error
        attempt.done.set()
        if lost is not None:
            lost.close()


class _Attempt:
    """An attempt to connect to a host: one thread makes it, others wait for the result."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.made: Connection | None = None
        self.error: BaseException | None = None

    def result(self) -> Connection:
        self.done.wait()
        if self.made is None:
            raise self.error or Unreachable("given up")
        return self.made


def _outcome(host: Host, work: Callable[[], T]) -> HostOutcome[T]:
    try:
        return HostOutcome(host, work())
    except TfctlError as failure:
        error = failure
    except TimeoutError as late:
        error = Unreachable(str(late) or f"{host.name}: no answer in time", "try again")
    except BaseException as cause:
        error = Defect(f"{host.name}: this is a bug in tfctl: {type(cause).__name__}: {cause}")
        error.__cause__ = cause
    error.hosts = (host.name,)
    return HostOutcome(host, error=error)


def _wake_rarely(hosts: int) -> None:
    """Have threads that wait for their turn to run wake less often than every 5 ms, if there are many.

    Python runs one thread at a time. Each other one that could run wakes once per switch interval, to ask the running
    one to give way. When a thousand of them waited, waking took more CPU time than running.
    """
    sys.setswitchinterval(max(sys.getswitchinterval(), min(hosts * _SWITCH_S, _SWITCH_MOST_S)))


def _raise_file_limit() -> None:
    """Raise the limit on open files, usually 1024: each connection takes one or more."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS accepts no number above OPEN_MAX (10240) if the hard limit is infinite.
        wanted = max(soft, 10240) if hard == resource.RLIM_INFINITY else hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
