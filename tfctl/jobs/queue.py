"""Wait for ports and GPUs, first come first served among the clients that wait, then start a job.

Each host of the job keeps a ticket for as long as the session with it lasts. A client that disconnects, for whatever
reason, therefore loses its place and leaves nothing behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, TypeVar

from tfctl.errors import Taken, TfctlError
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import Session, beating, open_session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

T = TypeVar("T")
Say = Callable[[str], None]

#: The longest pause (s) between two attempts of the first client in the queue: the first one, and one after a long wait
#: for the same. Each attempt asks all hosts of the job.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 3.0, 20.0


def in_turn(fleet: Fleet, job: str, attempt: Callable[[], T], say: Say, timeout: float | None) -> T:
    """Return the result of ``attempt`` once it no longer raises Taken. It is called when no client is ahead.

    ``timeout``: the longest time to wait (s). Reasons to wait are reported through ``say`` when they change. Raise
    Taken after the timeout, and the errors of the hosts.
    """
    until = None if timeout is None else time.monotonic() + timeout
    pauses, reason = _Pauses(), ""
    with _line(fleet, job) as line:
        while True:
            line.wait(until, say)
            try:
                return attempt()
            except Taken as taken:
                if until is not None and time.monotonic() > until:
                    raise Taken(f"after {timeout:.0f} s in the queue: " + taken.message, taken.remedy) from None
                if taken.message != reason:
                    reason = taken.message
                    say("waiting: " + reason)
                pause = pauses.after(reason)
                line.pause(pause if until is None else min(pause, max(0.0, until - time.monotonic())))


class _Pauses:
    """The pauses between attempts: they grow, up to a limit, while the reason to wait stays the same."""

    def __init__(self) -> None:
        self._random = Random()
        self._longest = _FIRST_PAUSE_S
        self._reason = ""

    def after(self, reason: str) -> float:
        """Return how long (s) to pause after an attempt that has failed for this reason."""
        same = reason == self._reason
        self._longest = min(_LONGEST_PAUSE_S, self._longest * 1.5) if same else _FIRST_PAUSE_S
        self._reason = reason
        return self._random.uniform(self._longest / 3, self._longest)


class _Line:
    """Who is ahead on each host, as its thread reports it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ahead: dict[str, tuple[str, ...]] = {}
        self._error: TfctlError | None = None

    def put(self, host: str, answer: wire.Queued | TfctlError) -> None:
        with self._changed:
            if isinstance(answer, TfctlError):
                self._error = answer
            else:
                self._ahead[host] = answer.ahead
            self._changed.notify()

    def wait(self, until: float | None, say: Say) -> None:
        """Return when nobody is ahead on any host. Raise Taken after ``until`` (time.monotonic), or a host's error."""
        said = ""
        while sentence := self._sentence():
            if until is not None and time.monotonic() > until:
                raise Taken(f"still waiting {sentence}", "try again with a longer --timeout")
            if sentence != said:
                said = sentence
                say(f"waiting {sentence}")
            with self._changed:
                self._changed.wait(1.0)

    def pause(self, seconds: float) -> None:
        """Sleep, but only until a host fails. Wake once a second, as in tfctl.remote.fleet."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._error is None and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(1.0, left))

    def _sentence(self) -> str:
        """Return ``behind job a of ada on node1``, or an empty string if nobody is ahead."""
        with self._changed:
            if self._error is not None:
                raise self._error
            return next((f"behind {ahead[-1]} on {host}" for host, ahead in sorted(self._ahead.items()) if ahead), "")


@contextmanager
def _line(fleet: Fleet, job: str) -> Iterator[_Line]:
    """Take a place in the queue of each host of the fleet, and keep it for the block."""
    sessions: dict[str, Session] = {}
    line = _Line()

    def enter(connection: Connection, ticket: wire.Ticket | None) -> wire.Queued:
        session = sessions[connection.host.name] = open_session(connection, wire.QueueRequest(job, ticket))
        found = session.expect(wire.Queued, wire.SILENCE_S)
        line.put(connection.host.name, found)
        return found

    try:
        with beating(sessions):
            first, *others = sorted(fleet.hosts, key=lambda host: host.name)
            ticket = fleet.map(lambda connection: enter(connection, None), [first])[0].get().ticket
            for outcome in fleet.map(lambda connection: enter(connection, ticket), others):
                outcome.get()
            _listen(sessions, line)
            yield line
    finally:
        for session in list(sessions.values()):
            session.close()


def _listen(sessions: Mapping[str, Session], line: _Line) -> None:
    """Pass on what each host reports, in a thread per host, until its session ends."""

    def listen(host: str, session: Session) -> None:
        try:
            while True:
                line.put(host, session.expect(wire.Queued, wire.FOLLOW_SILENCE_S))
        except TfctlError as error:
            line.put(host, error)

    for host, session in sessions.items():
        threading.Thread(target=listen, args=(host, session), daemon=True).start()
