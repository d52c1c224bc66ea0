"""Collect what the hosts of a job report about its tasks while the job is followed.

Each host has one channel. If the lines of its tasks are followed too, the answers arrive among them (jobs/logs.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError, Unreachable
from tfctl.jobs import clocks
from tfctl.jobs.inbox import Inbox
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import open_session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

#: A host's name, and its jobs or its error.
Answer = tuple[str, Sequence[wire.JobStatus] | TfctlError]

_RETRY_S = 2.0


class Answers:
    """The answers of all hosts of ``fleet`` about an attempt, or about the last one that the job's guard has started
    after it. They are put into ``incoming``.

    `begin` starts a thread for each host, except for those ``followed``: the code that reads their lines
    calls `put` and `fail`, or `listen` if a host does not send states among its lines or cannot read these.
    Thread-safe.
    """

    def __init__(self, fleet: Fleet, job: str, attempt: int, followed: Collection[str] = ()) -> None:
        self.incoming: Inbox[Answer] = Inbox()
        #: From when on (time.monotonic) answers can be expected.
        self.since = float("inf")
        self._fleet = fleet
        self._request = wire.ShowRequest(job, attempt, follow=True, later=True, brief=True, samples=True)
        self._followed = set(followed)
        #: The hosts that have a thread.
        self._started: set[str] = set()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start to listen to the hosts whose lines are not followed."""
        if not self._followed:
            self.note_following()
        for host in self._fleet.hosts:
            if not self.expects(host):
                self._start(host)

    def note_following(self) -> None:
        """Record that following of lines begins now. Reading earlier lines may have taken a minute before."""
        self.since = min(self.since, time.monotonic())

    def expects(self, host: Host) -> bool:
        """Return whether the states of a host are expected among its lines."""
        return host.name in self._followed

    def listen(self, host: Host) -> None:
        """Open another channel to a host whose lines are followed, and listen to it."""
        self._followed.discard(host.name)
        self._start(host)

    def put(self, connection: Connection, shown: wire.Shown) -> None:
        """Pass on an answer. Raises TfctlError if the record of the job is not known yet and cannot be read."""
        self.incoming.put([(connection.host.name, self._fleet.records.whole(connection, shown))])

    def fail(self, host: Host, error: TfctlError) -> None:
        """Pass on why the channel of a host whose lines are followed has ended."""
        if self.expects(host):
            self.incoming.put([(host.name, error)])

    def end(self) -> None:
        """Stop listening."""
        self._over.set()

    def _start(self, host: Host) -> None:
        with self._lock:
            if host.name in self._started or self._over.is_set():
                return
            self._started.add(host.name)
        threading.Thread(target=self._listen, args=(host,), daemon=True).start()

    def _listen(self, host: Host) -> None:
        """Follow one host's answers to `show`, reconnecting as needed. Pass on errors too."""
        again = False
        while not self._over.is_set():
            try:
                connection = self._fleet.connection(host, again)
                asked: float | None = time.time()
                with open_session(connection, self._request) as session, closed_when_silent(connection):
                    while not self._over.is_set():
                        shown = session.expect(wire.Shown, wire.FOLLOW_SILENCE_S)
                        if asked is not None:  # only the first answer follows a request
                            self._fleet.clock_offsets[host.name] = clocks.offset(asked, shown.time, time.time())
                            asked = None
                        self.put(connection, shown)
            except TfctlError as error:
                self.incoming.put([(host.name, error)])
            again = True
            self._over.wait(_RETRY_S)


@contextmanager
def closed_when_silent(connection: Connection) -> Iterator[None]:
    """Close the connection if a session on it fell silent: it may be dead, and everyone on it must reconnect."""
    try:
        yield
    except Unreachable:
        connection.close()
        raise
