"""Read one host's journal: its lines of a job's tasks, and the gaps where lines are missing.

journald does not distinguish a task's stderr from its stdout; both are `stdout` here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tfctl.errors import TfctlError
from tfctl.jobs import clocks
from tfctl.jobs.state import JobState
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.node.wire import TaskName
from tfctl.remote.session import Session, open_session, window
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

#: Entries read beside the last lines that are wanted: enough for the pieces of the longest line that is joined.
_SPARE = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line. ``time`` is in epoch seconds, corrected if ``host``'s clock is wrong."""

    time: float
    role: str
    index: int
    host: str
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines of ``tasks`` that the journal of ``host`` does not have, printed between ``since`` and ``until``, or that
    the host did not send whole.

    journald ``dropped`` them or has deleted them (``rotated``) to make room for newer ones. The host has ``cut`` a line
    of ``size`` bytes, of which the beginning is the line before; or has left it out because it could not be searched in
    time (``unsearched``). Times are in epoch seconds, corrected if the host's clock is wrong; ``time`` is the place
    among the lines. ``since``, ``until`` and the number of ``lines`` are None if unknown.
    """

    time: float
    tasks: tuple[TaskName, ...]
    host: str
    cause: Literal["dropped", "rotated", "cut", "unsearched"]
    since: float | None = None
    until: float | None = None
    lines: int | None = None
    size: int | None = None


Item = Line | Gap


@dataclass(frozen=True)
class Query:
    """Which lines to read: of ``tasks`` (None: all), between two times (epoch s), the last ``tail`` over all hosts.

    ``share``: instead, about so many of the last lines of each host, from the time on since which no host has more.
    ``patience``: how long (s) each journald may take to write what its tasks have printed; None: a minute. ``silence``:
    how long (s) a host may then send nothing until the last line, unless lines are followed: a damaged disk may never
    deliver it.
    """

    tasks: tuple[TaskName, ...] | None = None
    since: float | None = None
    until: float | None = None
    tail: int | None = None
    share: int | None = None
    grep: re.Pattern[str] | None = None
    patience: float | None = None
    silence: float = 60.0


class HostJournal:
    """The wanted tasks of one host, and how far they have been read.

    ``ahead``: by how many seconds the host's clock is ahead of this machine's. Within, all times are the host's.
    ``hosts``: of how many hosts the lines are read at once.
    """

    def __init__(self, host: Host, state: JobState, query: Query, ahead: float = 0.0, hosts: int = 1) -> None:
        self.host = host
        self._state = state
        self._of_job = {task.name for task in state.tasks if task.host == host.name}
        self._ahead = ahead
        self._window = window(hosts)
        self._query = replace(query, since=_later(query.since, ahead), until=_later(query.until, ahead))
        # With grep, the host cannot count matching lines. A line may consist of several entries.
        last = query.tail if query.share is None else query.share
        self._tail = None if last is None or query.grep else last + _SPARE
        self._cursor: str | None = None
        #: By how many seconds the host's clock was ahead when following began, as `clocks.offset`; None if unknown.
        self.clock_offset: float | None = None
        #: The time of the entry at the cursor.
        self._time = 0.0
        #: Whether the next entry should be the one at the cursor.
        self._resuming = False
        self._header = wire.Logs(0, "", {})
        #: Whether the lines that were deleted before the first read have been reported.
        self._looked_back = False
        self._joined = wire.Joiner()
        self._follows = False
        #: Whether the last session has delivered all lines that the host had.
        self._delivered = False

    @property
    def synced(self) -> bool:
        """Whether the host has written everything that its tasks had printed when `open` returned."""
        return self._header.synced

    @property
    def has_states(self) -> bool:
        """Whether the host sends the states of its tasks among the lines that follow."""
        return bool(self._header.states)

    def skip_to(self, time: float) -> None:
        """Leave out the lines before this time (epoch s) that have not been read.

        If there are none, the next session continues after the last line read, so that none is repeated.
        """
        since = time + self._ahead
        if not self._delivered and self._time < since:
            self._query, self._cursor, self._tail = replace(self._query, since=since), None, None

    def open(self, connection: Connection, follow: bool, states: bool = False, collect: float = 0.0) -> Session:
        """Open a session that delivers the lines after the last one read (wire: logs), with ``states`` among them.

        ``collect``: for how long (s) the host may collect lines while they are followed.
        """
        query, first = self._query, self._cursor is None
        self._follows, self._delivered = follow, False
        request = wire.LogsRequest(
            job=self._state.job,
            attempt=self._state.attempt,
            tasks=query.tasks,
            cursor=self._cursor,
            follow=follow,
            tail=self._tail if first else None,
            since=query.since if first else None,
            until=query.until,
            grep=query.grep and query.grep.pattern,
            patience=query.patience,
            states=states or None,
            collect=collect or None,
        )
        session, asked = open_session(connection, request, self._window), time.time()
        header = session.expect(wire.Logs, wire.SILENCE_S)
        units = {unit: task for unit, task in header.units.items() if task in self._of_job}
        self._header = header._replace(units=units)
        if follow and self._header.time is not None:  # otherwise it has waited for journald before
            self.clock_offset = clocks.offset(asked, self._header.time, time.time())
        self._resuming = not first
        return session

    def batches(
        self, session: Session, on_states: Callable[[wire.Shown], object] = lambda _: None
    ) -> Iterator[list[Item]]:
        """Yield the lines of a session from `open`, to its end: together what has arrived together, or an empty list.
        ``on_states`` is called with the states among them.

        Raise TfctlError if the last ones are missing, and Unreachable if a host has been silent for 15 s while it sends
        states, or for the query's limit while it sends only what was printed so far.
        """
        for batch in self._batches(session, on_states):
            yield [_corrected(item, self._ahead) for item in batch] if self._ahead else batch

    def _batches(self, session: Session, on_states: Callable[[wire.Shown], object]) -> Iterator[list[Item]]:
        with session:
            yield [*self._before_the_journal()]
            for batch in session.batches(self._silence):
                found: list[Item] = []
                try:
                    for raw in batch:
                        if isinstance(raw, wire.Shown):
                            on_states(raw)
                        else:
                            found += self._take(raw)
                except TfctlError:
                    yield found
                    raise
                yield found
        self._tail, self._delivered = None, True
        if not self._follows:  # these lines have no end
            yield [*filter(None, map(self._line, self._joined.pieces.values()))]
            self._joined.pieces.clear()
            if self._resuming:  # not even the entry at the cursor is left
                yield [self._rotated(self._tasks, self._time, None)]
        if not self.synced:
            raise TfctlError(
                f"{self.host.name}: journald did not confirm that all lines are written; its last lines are missing",
                f"run tfctl logs again, and see `systemctl status systemd-journald` on {self.host.name}",
            )

    @property
    def _silence(self) -> float | None:
        if self.has_states:
            return wire.FOLLOW_SILENCE_S
        return None if self._follows else self._query.silence

    def _take(self, raw: bytes) -> Iterator[Item]:
        """Parse a line of journalctl's JSON. Yield nothing if it is not wanted, or repeats the last line read."""
        try:
            entry = wire.journal_entry(raw)
        except wire.Malformed as error:
            raise TfctlError(f"{self.host.name}: {plain(str(error))}", "run tfctl logs again") from None
        repeated, since = entry.cursor == self._cursor, self._time
        self._cursor, self._time = entry.cursor, entry.time
        if self._resuming and not repeated:
            yield self._rotated(self._tasks, since, entry.time)
        self._resuming = False
        if repeated:
            return
        if entry.dropped is not None:
            yield from self._dropped(entry, entry.dropped)
        elif entry.unsearched:
            self._joined.pieces.pop((entry.unit, entry.stream), None)
            yield from self._not_whole(entry, "unsearched")
        elif (whole := self._joined(entry)) and (line := self._line(whole)):
            yield line
            if whole.size is not None:
                yield from self._not_whole(whole, "cut")

    def _line(self, entry: wire.JournalEntry) -> Line | None:
        task, text = self._header.units.get(entry.unit), entry.text
        if task is None or (self._query.grep is not None and not self._query.grep.search(entry.searched)):
            return None
        if entry.size is not None:
            text += f" … (cut: this line has {entry.size:,} bytes)"
        return Line(entry.time, *task, self.host.name, entry.transport, text)

    def _before_the_journal(self) -> Iterator[Gap]:
        """Yield a gap if tasks began before the journal's oldest entry, unless that is known or was not asked for."""
        oldest, query = self._header.oldest, self._query
        if oldest is None or self._looked_back or (query.since or 0.0) >= oldest:
            return
        began = {task: self._began.get(unit, oldest) for unit, task in self._header.units.items()}
        cut = {task: time for task, time in began.items() if time < min(oldest, query.until or oldest)}
        if cut:
            self._looked_back = True
            yield self._rotated(tuple(cut), max(min(cut.values()), query.since or 0.0), oldest)

    def _rotated(self, tasks: tuple[TaskName, ...], since: float, until: float | None) -> Gap:
        return Gap(since if until is None else until, tasks, self.host.name, "rotated", since, until)

    def _dropped(self, entry: wire.JournalEntry, lines: int) -> Iterator[Gap]:
        """Yield the gap that a message of journald reports, unless it is about an earlier attempt's task."""
        task = self._header.units.get(entry.unit)
        if task is not None and entry.time >= self._began.get(entry.unit, 0.0):
            yield Gap(entry.time, (task,), self.host.name, "dropped", until=entry.time, lines=lines)

    def _not_whole(self, entry: wire.JournalEntry, cause: Literal["cut", "unsearched"]) -> Iterator[Gap]:
        task = self._header.units.get(entry.unit)
        if task is not None:
            yield Gap(entry.time, (task,), self.host.name, cause, entry.time, entry.time, 1, entry.size)

    @property
    def _began(self) -> dict[str, float]:
        return self._header.began or {}

    @property
    def _tasks(self) -> tuple[TaskName, ...]:
        return tuple(self._header.units.values())


def _later(time: float | None, seconds: float) -> float | None:
    return None if time is None else time + seconds


def _corrected(item: Item, ahead: float) -> Item:
    if isinstance(item, Line):
        return replace(item, time=item.time - ahead)
    return replace(item, time=item.time - ahead, since=_later(item.since, -ahead), until=_later(item.until, -ahead))
