"""Read what tasks print from their hosts' journals, in order of time, or follow it across broken connections.

Reading resumes after the last journal cursor seen, so that no line is lost or repeated. journald does not distinguish
a task's stderr from its stdout; both are `stdout` here.
"""

from __future__ import annotations

import heapq
import json
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from tfctl.errors import Exit, NotFound, TfctlError, UsageError
from tfctl.jobs.state import JobState
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import NodeChannel, open_node

Name = tuple[str, int]
Say = Callable[[str], None]
Fail = Callable[[TfctlError], object]

#: How long (s) a followed line waits for older lines from other hosts.
WINDOW_S = 0.3
_HEADER_S = 30.0
_RETRY_S, _RETRY_MOST_S = 0.5, 5.0
#: Failures that may pass, so the host is asked again.
_PASSING = (Exit.UNREACHABLE, Exit.FAILED)
#: Lines read ahead from the hosts; the rest waits in their journals.
_AHEAD = 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line. ``time`` is in epoch seconds, by ``host``'s clock."""

    time: float
    role: str
    index: int
    host: str
    stream: str
    text: str


@dataclass(frozen=True)
class Query:
    """Which lines to read: of ``tasks`` (None: all), between two times (epoch s), the last ``tail`` over all hosts."""

    tasks: tuple[Name, ...] | None = None
    since: float | None = None
    until: float | None = None
    tail: int | None = None
    grep: re.Pattern[str] | None = None


def tasks_of(state: JobState, role: str | None, index: int | None) -> tuple[Name, ...] | None:
    """Return the tasks that ``role`` and ``index`` select; None for all. Raise NotFound, listing the tasks."""
    if role is None:
        return None
    found = tuple((t.role, t.index) for t in state.tasks if t.role == role and index in (None, t.index))
    if not found:
        counts: dict[str, int] = {}
        for task in state.tasks:
            counts[task.role] = counts.get(task.role, 0) + 1
        there = ", ".join(f"{name} 0" + (f" to {count - 1}" if count > 1 else "") for name, count in counts.items())
        raise NotFound(f"{state.job} has no {role}{'' if index is None else f' {index}'}", f"it has {there}")
    return found


def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression for Query.grep. Raise UsageError if it is invalid."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep: {text!r} is not a regular expression: {error}") from None


def read(fleet: Fleet, state: JobState, query: Query, fail: Fail) -> Iterator[Line]:
    """Yield the lines printed so far. ``fail`` is called for a host that fails; the others' lines still come."""
    return _merged(fleet, [_Source(host, state, query) for host in _hosts(fleet, state, query)], query.tail, fail)


def follow(fleet: Fleet, state: JobState, query: Query, over: threading.Event, say: Say) -> Iterator[list[Line]]:
    """Yield the lines so far, then new ones as they come, in batches, until ``over`` is set and all lines printed by
    then have been read. Order is exact within a host, and across hosts within WINDOW_S."""
    news: queue.Queue[Line | None] = queue.Queue(maxsize=_AHEAD)
    gone = threading.Event()
    sources = [_Source(host, state, query) for host in _hosts(fleet, state, query)]
    if query.tail is not None:
        # The last lines over all hosts are known only when every host has been read.
        yield list(_merged(fleet, sources, query.tail, lambda _: None))
    followers = [_Follower(source, fleet, news, over, gone, say) for source in sources]
    for follower in followers:
        threading.Thread(target=follower.run, daemon=True).start()
    threading.Thread(target=_hang_up, args=(over, followers), daemon=True).start()
    try:
        yield from _in_order(news, len(followers))
    finally:
        gone.set()
        over.set()


class _Source:
    """The wanted tasks of one host, and how far they have been read."""

    def __init__(self, host: Host, state: JobState, query: Query) -> None:
        self.host = host
        self._state = state
        self._query = query
        # With grep, the host cannot count matching lines; with a tail of 0, it would return no cursor.
        self._tail = None if query.tail is None or query.grep else max(1, query.tail)
        self._cursor: str | None = None
        self._units: dict[str, Any] = {}

    def open(self, connection: Any, follow: bool) -> NodeChannel:
        """Open a channel that delivers the lines after the last one read (wire: logs)."""
        query, first = self._query, self._cursor is None
        request = wire.request(
            "logs",
            job=self._state.job,
            attempt=self._state.attempt,
            tasks=None if query.tasks is None else [list(name) for name in query.tasks],
            cursor=self._cursor,
            follow=follow,
            tail=self._tail if first else None,
            since=query.since if first else None,
            until=query.until,
        )
        channel = open_node(connection, request)
        self._units = channel.receive(_HEADER_S)[1]["units"]
        return channel

    def lines(self, channel: NodeChannel) -> Iterator[Line]:
        """Yield the lines of a channel from `open`, to its end."""
        with channel:
            for raw in channel.lines():
                line = self._take(raw)
                if line is not None:
                    yield line
        self._tail = None

    def _take(self, raw: bytes) -> Line | None:
        """Parse a line of journalctl's JSON. Return None if it is not wanted, or repeats the last line read."""
        entry = json.loads(raw)
        cursor, task = entry["__CURSOR"], self._units.get(entry.get("_SYSTEMD_UNIT"))
        again, self._cursor = cursor == self._cursor, cursor
        if again or task is None:
            return None
        text = _message(entry.get("MESSAGE"))
        if self._query.grep is not None and not self._query.grep.search(text):
            return None
        stream = str(entry.get("_TRANSPORT", "stdout"))
        return Line(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, task[0], task[1], self.host.name, stream, text)


class _Follower:
    """Follows one host in its own thread, reconnecting when the connection breaks."""

    def __init__(
        self,
        source: _Source,
        fleet: Fleet,
        news: queue.Queue[Line | None],
        over: threading.Event,
        gone: threading.Event,
        say: Say,
    ) -> None:
        self._source, self._fleet, self._news = source, fleet, news
        self._over, self._gone, self._say = over, gone, say
        self._channel: NodeChannel | None = None
        self._away = 0.0

    def run(self) -> None:
        """Queue every line, and finally None, even after an error: the reader waits for it."""
        try:
            self._follow()
        finally:
            self._put(None)

    def _follow(self) -> None:
        pause = _RETRY_S
        while not self._gone.is_set():
            last = self._over.is_set()
            try:
                self._stream(follow=not last)
                pause = _RETRY_S
            except TfctlError as error:
                if last:
                    self._say(f"tfctl: {error.message}; its last lines are missing")
                elif self._over.is_set():
                    pass  # we hung up ourselves; the next round reads the rest
                elif error.exit not in _PASSING:
                    self._say(f"tfctl: {error.message}")
                    break
                elif not self._away:
                    self._away = time.monotonic()
                    self._say(f"~~ {error.message}; trying again")
            if last:
                break
            self._over.wait(pause)
            pause = min(_RETRY_MOST_S, pause * 2)

    def hang_up(self) -> None:
        """Stop following. Lines already printed are still read."""
        if self._channel is not None:
            self._channel.close()

    def _stream(self, follow: bool) -> None:
        self._channel = self._source.open(self._fleet.connection(self._source.host), follow)
        if self._away:
            self._say(f"~~ {self._source.host.name} is back after {time.monotonic() - self._away:.0f} s")
            self._away = 0.0
        # Setting `over` hangs up only the channels open at that moment; this one may be newer.
        if follow and self._over.is_set():
            self._channel.close()
            return
        for line in self._source.lines(self._channel):
            if not self._put(line):
                return

    def _put(self, line: Line | None) -> bool:
        """Queue a line. Return False if the reader is gone."""
        while not self._gone.is_set():
            with suppress(queue.Full):
                self._news.put(line, timeout=0.5)
                return True
        return False


def _hang_up(over: threading.Event, followers: Sequence[_Follower]) -> None:
    over.wait()
    for follower in followers:
        follower.hang_up()


def _hosts(fleet: Fleet, state: JobState, query: Query) -> list[Host]:
    names = {t.host for t in state.tasks if query.tasks is None or (t.role, t.index) in query.tasks}
    found = [host for host in fleet.hosts if host.name in names]
    if not found:
        raise NotFound(f"the hosts of {state.job} ({', '.join(sorted(names))}) are not in this inventory")
    return found


def _merged(fleet: Fleet, sources: Sequence[_Source], tail: int | None, fail: Fail) -> Iterator[Line]:
    by_host = {source.host.name: source for source in sources}

    def begin(connection: Any) -> NodeChannel:
        return by_host[connection.host.name].open(connection, follow=False)

    streams = []
    for outcome in fleet.map(begin, [source.host for source in sources]):
        if outcome.error is not None:
            fail(outcome.error)
        else:
            streams.append(_to_end(by_host[outcome.host.name], outcome.get(), fail))
    merged: Iterable[Line] = heapq.merge(*streams, key=attrgetter("time"))
    yield from deque(merged, maxlen=tail) if tail is not None else merged


def _to_end(source: _Source, channel: NodeChannel, fail: Fail) -> Iterator[Line]:
    try:
        yield from source.lines(channel)
    except TfctlError as error:
        fail(error)


def _in_order(news: queue.Queue[Line | None], hosts: int) -> Iterator[list[Line]]:
    """Yield lines ordered by time (one host's as they came), each within WINDOW_S, until every host has ended."""
    waiting: dict[str, list[Line]] = {}
    since = 0.0
    while hosts:
        with suppress(queue.Empty):
            line = news.get(timeout=0.1)
            if line is None:
                hosts -= 1
            else:
                since = since if waiting else time.monotonic()
                waiting.setdefault(line.host, []).append(line)
        if waiting and (time.monotonic() - since >= WINDOW_S or not hosts):
            yield list(heapq.merge(*waiting.values(), key=attrgetter("time")))
            waiting = {}


def _message(value: Any) -> str:
    """Decode a MESSAGE. journalctl's JSON gives non-UTF-8 bytes as a list (systemd.io, JOURNAL_EXPORT_FORMATS)."""
    if isinstance(value, list):
        return (
            bytes(value).decode(errors="replace")
            if all(isinstance(byte, int) for byte in value)
            else _message(value[0])
        )
    return "" if value is None else str(value)
