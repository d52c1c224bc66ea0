"""Read what tasks print from their hosts' journals, in order of time, or follow it across broken connections.

Reading resumes after the last journal cursor seen, so that no line is lost or repeated.
"""

from __future__ import annotations

import heapq
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tfctl.errors import Exit, TfctlError, Unreachable, UsageError, of_exit, of_hosts
from tfctl.jobs import clocks
from tfctl.jobs.answers import Answers, closed_when_silent
from tfctl.jobs.attempts import Attempts
from tfctl.jobs.inbox import Inbox
from tfctl.jobs.journal import HostJournal, Item, Line, Query
from tfctl.jobs.state import JobState, absent, not_in_inventory
from tfctl.jobs.thread_pool import call_for_each
from tfctl.model.host import Host
from tfctl.node.regex import compiled
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import Session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

Say = Callable[[str], None]
Fail = Callable[[TfctlError], object]

#: How long (s) a followed line waits for older lines from other hosts.
WINDOW_S = 0.3
#: With more hosts than _CROWD, each collects its lines for _COLLECT_S or longer, so that all together send at most
#: _MESSAGES a second and the client does not fall behind: a message costs it more CPU time than a line.
_COLLECT_S, _CROWD, _MESSAGES = 0.5, 50, 600
#: How many sessions are opened in a second, at least. With more than _CROWD hosts, none is read before all are open, or
#: before this time is over: Python runs one thread at a time, and those that read leave little time to the others.
#: Otherwise, with 1,000 hosts, the last session would be open minutes after the first.
_OPENED = 100
#: A host that has sent nothing for so long (s) has no more old lines.
_QUIET_S = 0.1
#: How long (s) lines are collected before they are sorted.
_PAUSE_S = 0.05
_RETRY_S, _RETRY_MOST_S = 0.5, 5.0
#: Failures that may pass, so the host is asked again.
_PASSING = (Exit.UNREACHABLE, Exit.FAILED)
#: Lines read ahead from the hosts; the rest waits in their journals. A long line counts as one for each _USUAL bytes.
_AHEAD, _USUAL = 20_000, 4096


def pattern(text: str, name: str = "--grep") -> re.Pattern[str]:
    """Compile a regular expression for Query.grep. Raise UsageError if it is invalid. ``name``: what the user knows it
    by."""
    try:
        return compiled(text)
    except ValueError as error:
        raise UsageError(f"{name}: {text!r} is not a regular expression: {error}") from None


def read(fleet: Fleet, state: JobState, query: Query, fail: Fail) -> Iterator[Item]:
    """Yield the lines printed so far, and gaps. ``fail`` is called for a host that fails, or that the inventory lacks;
    the lines of the others are still yielded."""
    sources = _sources(fleet, state, query)
    _report_absent(fleet, state, query, fail)
    return _merged(fleet, sources, query, fail)


def follow(
    fleet: Fleet,
    state: JobState,
    query: Query,
    over: threading.Event,
    say: Say,
    answers: Answers,
    fail: Fail | None = None,
) -> Iterator[list[Item]]:
    """Yield the lines so far and gaps, then new ones as they come, in batches, until ``over`` is set and all lines
    printed by then have been read. Order is exact within a host, and across hosts unless a line is very late
    (`_in_order`). What the hosts say about their tasks meanwhile goes to ``answers``.

    ``fail`` is called for a host whose lines, or whose last ones, cannot be read, and for one that the inventory lacks;
    by default, the error is reported through ``say``. End early if no host is left whose lines can be read."""
    news: Inbox[Item | None] = Inbox(_AHEAD)
    fail = fail or (lambda error: say(f"tfctl: {error.message}"))
    sources = _sources(fleet, state, query)
    _report_absent(fleet, state, query, fail)
    starts_late = query.tail is not None or query.share is not None
    if starts_late:
        # The last lines over all hosts are known only when every host has been read.
        failed: list[TfctlError] = []
        began = time.time()
        yield list(_merged(fleet, sources, query, failed.append))
        for source in sources:
            if of_hosts(failed, [source.host.name]):
                source.skip_to(began)
    collect = max(_COLLECT_S, len(sources) / _MESSAGES) if len(sources) > _CROWD else 0.0
    followers = [_Follower(source, collect, fleet, news, over, say, fail, answers) for source in sources]
    answers.note_following()
    # After --tail and with --grep, a host may begin to collect before it has sent a line.
    first = _FirstLines(len(followers)) if collect and not starts_late and query.grep is None else None
    if collect:
        _open_all(followers, len(followers) / _OPENED)
    threading.Thread(target=_run_all, args=(followers, first, over), daemon=True).start()
    try:
        yield from _in_order(news, len(followers), collect, first)
    finally:
        news.close()
        over.set()


def follow_attempts(
    fleet: Fleet, attempts: Attempts, query: Query, say: Say, answers: Answers, fail: Fail | None = None
) -> Iterator[list[Item]]:
    """Yield the lines of an attempt as `follow` does, and then all lines of each attempt after it."""
    while True:
        yield from follow(fleet, attempts.state, query, attempts.over, say, answers, fail)
        if not attempts.advance():
            return
        query = Query(query.tasks, grep=query.grep)


class _Follower:
    """Follows one host in its own thread, reconnecting when the connection breaks."""

    def __init__(
        self,
        source: HostJournal,
        collect: float,
        fleet: Fleet,
        news: Inbox[Item | None],
        over: threading.Event,
        say: Say,
        fail: Fail,
        answers: Answers,
    ) -> None:
        self._source, self._collect, self._fleet, self._news = source, collect, fleet, news
        self._over, self._say, self._fail, self._answers = over, say, fail, answers
        self._session: Session | None = None
        #: What `open` has made, until it is used: a session with its connection, or an error.
        self._first: tuple[Connection, Session] | Exception | None = None
        self._begun = False
        self._opening = threading.Lock()
        self._away = 0.0

    def open(self) -> None:
        """Open the session with which `run` is to begin, unless it has begun already."""
        with self._opening:
            if self._begun or self._over.is_set():
                return
            self._begun = True
            try:
                self._first = self._opened(follow=True)
            except Exception as error:  # `run` raises it
                self._first = error

    def run(self) -> None:
        """Pass on every line, and finally None, even after an error: the reader waits for it."""
        try:
            self._follow()
        finally:
            self._news.put([None])
            if isinstance(first := self._take_first(), tuple):
                first[1].close()

    def _follow(self) -> None:
        pause, again = _RETRY_S, False
        while not self._news.closed:
            first = self._take_first()
            last = first is None and self._over.is_set()
            try:
                self._stream(first, follow=not last)
                pause = _RETRY_S
            except TfctlError as error:
                if last and not again and isinstance(error, Unreachable):
                    again = True  # the connection had died, and is closed now: read the rest over a new one
                    continue
                if not self._goes_on(error, last):
                    break
            if last:
                break
            self._over.wait(pause)
            pause = min(_RETRY_MOST_S, pause * 2)

    def _goes_on(self, error: TfctlError, last: bool) -> bool:
        """Report the error that has ended a session. Return whether to open another one. ``last``: it was the last."""
        host = self._source.host
        if last:
            self._fail(_without_last_lines(error) if self._source.synced else error)
            return False
        if self._over.is_set():
            return True  # we hung up ourselves; the next round reads the rest
        # What is wrong with the lines, such as a damaged journal, must not keep the states away.
        if not isinstance(error, Unreachable):
            self._answers.listen(host)
        if not self._may_pass(error):
            self._fail(error)
            return False
        self._answers.fail(host, error)
        if not self._away:
            self._away = time.monotonic()
            self._say(f"~~ {error.message}; trying again")
        return True

    def _may_pass(self, error: TfctlError) -> bool:
        """Return whether the host may soon send lines. A node part that has answered before may be being replaced."""
        return error.exit in _PASSING or (error.exit is Exit.PREFLIGHT and self._session is not None)

    def hang_up(self) -> None:
        """Stop following. Lines already printed are still read."""
        if self._session is not None:
            self._session.close()

    def _take_first(self) -> tuple[Connection, Session] | Exception | None:
        """Return what `open` has made, once, after waiting for it. From then on, `open` does nothing."""
        with self._opening:
            first, self._first, self._begun = self._first, None, True
        return first

    def _stream(self, first: tuple[Connection, Session] | Exception | None, follow: bool) -> None:
        """Read the ``first`` session or, without one, open another."""
        if isinstance(first, Exception):
            raise first
        connection, self._session = first or self._opened(follow)
        with closed_when_silent(connection):
            self._read(connection, self._session, follow)

    def _opened(self, follow: bool) -> tuple[Connection, Session]:
        states = follow and self._answers.expects(self._source.host)
        connection = self._fleet.connection(self._source.host)
        with closed_when_silent(connection):
            return connection, self._source.open(connection, follow, states, self._collect if follow else 0.0)

    def _read(self, connection: Connection, session: Session, follow: bool) -> None:
        host, source = self._source.host, self._source
        if self._away:
            self._say(f"~~ {host.name} is back after {time.monotonic() - self._away:.0f} s")
            self._away = 0.0
        if follow and source.clock_offset is not None:
            self._fleet.clock_offsets[host.name] = source.clock_offset
        if follow and not source.has_states:  # its node part is older
            self._answers.listen(host)
        # Setting `over` hangs up only the sessions open at that moment; this one may be newer.
        if follow and self._over.is_set():
            session.close()
            return
        for batch in source.batches(session, lambda shown: self._answers.put(connection, shown)):
            if not self._news.put(batch, sum(_weight(item) for item in batch)):
                return


def _weight(item: Item) -> int:
    return 1 + len(item.text) // _USUAL if isinstance(item, Line) else 1


def _open_all(followers: Sequence[_Follower], limit: float) -> None:
    """Open the sessions of all followers in few threads. Return when that is done, or after ``limit`` seconds."""
    done = threading.Event()

    def work() -> None:
        call_for_each(followers, lambda follower: follower.open())
        done.set()

    threading.Thread(target=work, daemon=True).start()
    done.wait(limit)


def _without_last_lines(error: TfctlError) -> TfctlError:
    return of_exit(error.exit, f"{error.message}; its last lines are missing", error.remedy)


def _run_all(followers: Sequence[_Follower], first: _FirstLines | None, over: threading.Event) -> None:
    """Run each follower in a thread of its own, and hang up when the job is ``over``."""
    for follower in followers:
        threading.Thread(target=follower.run, daemon=True).start()
    if first:
        first.started.set()
    over.wait()
    for follower in followers:
        follower.hang_up()


def answers_of(fleet: Fleet, state: JobState, query: Query) -> Answers:
    """Return the answers of the hosts of a job whose lines `follow` will follow. Raise NotFound if none has any."""
    return Answers(fleet, state.job, state.attempt, [host.name for host in _hosts(fleet, state, query)])


def _report_absent(fleet: Fleet, state: JobState, query: Query, fail: Fail) -> None:
    for error in of_hosts(absent(state, fleet.hosts), _names(state, query)):
        fail(error)


def _names(state: JobState, query: Query) -> set[str]:
    """Return the names of the hosts whose lines are wanted."""
    return {task.host for task in state.tasks if query.tasks is None or task.name in query.tasks}


def _hosts(fleet: Fleet, state: JobState, query: Query) -> list[Host]:
    names = _names(state, query)
    found = [host for host in fleet.hosts if host.name in names]
    if not found:
        raise not_in_inventory(state, *sorted(names))
    return found


def _sources(fleet: Fleet, state: JobState, query: Query) -> list[HostJournal]:
    hosts, offsets = _hosts(fleet, state, query), fleet.clock_offsets
    return [HostJournal(host, state, query, clocks.ahead(offsets, host.name), len(hosts)) for host in hosts]


def _merged(fleet: Fleet, sources: Sequence[HostJournal], query: Query, fail: Fail) -> Iterator[Item]:
    by_host = {source.host.name: source for source in sources}

    def begin(connection: Connection) -> Session:
        return by_host[connection.host.name].open(connection, follow=False)

    streams = []
    for outcome in fleet.map(begin, [source.host for source in sources]):
        if outcome.error is not None:
            fail(outcome.error)
        else:
            streams.append(_to_end(by_host[outcome.host.name], outcome.get(), fail))
    if query.share is not None:
        streams = _since_all(streams, query.share)
    merged: Iterable[Item] = heapq.merge(*streams, key=attrgetter("time"))
    yield from _last(merged, query.tail) if query.tail is not None and query.share is None else merged


def _since_all(streams: Iterable[Iterator[Item]], share: int) -> list[Iterator[Item]]:
    """Return the items of each host from the time on since which none has more than it has sent."""
    found = [list(_last(stream, share)) for stream in streams]
    begins = [each[0].time for each in found if sum(isinstance(item, Line) for item in each) >= share]
    begin = max(begins, default=0.0)
    return [iter([item for item in each if item.time >= begin]) for each in found]


def _last(items: Iterable[Item], count: int) -> Iterable[Item]:
    """Return the last ``count`` lines, with the gaps just before and among them."""
    kept: deque[Item] = deque()
    lines = 0
    for item in items:
        kept.append(item)
        lines += isinstance(item, Line)
        while lines > count:
            lines -= isinstance(kept.popleft(), Line)
    return kept


def _to_end(source: HostJournal, session: Session, fail: Fail) -> Iterator[Item]:
    try:
        for batch in source.batches(session):
            yield from batch
    except TfctlError as error:
        error.hosts = (source.host.name,)
        fail(error)


def _in_order(
    news: Inbox[Item | None], hosts: int, collect: float = 0.0, first: _FirstLines | None = None
) -> Iterator[list[Item]]:
    """Yield lines ordered by time (one host's as they came) until every host has ended.

    Each line is held for at most WINDOW_S + ``collect`` seconds, and at least for two thirds of that: a line that
    arrives so much later than newer ones of other hosts is still in order. The ``first`` lines are held for a shorter
    time.
    """
    window = WINDOW_S + collect
    waiting: dict[str, deque[_Arrival]] = {}
    due = 0.0
    while hosts:
        batch = news.take(0.1, due)
        now = time.monotonic()
        due = now + _PAUSE_S
        for line in batch:
            if line is None:
                hosts -= 1
            else:
                waiting.setdefault(line.host, deque()).append(_Arrival(now, line))
        if first and (lines := first.take(waiting, now)):
            first = None
            yield lines
        oldest = min((lines[0].time for lines in waiting.values()), default=now)
        if waiting and (now - oldest >= window or not hosts):
            first = None
            yield _held_since(waiting, now - window * 2 / 3 if hosts else now)


class _FirstLines:
    """The lines that many hosts had when they were asked. They need a short hold only.

    A host sends these lines as it reads them, and collects only those that are printed after them. So up to the time of
    its last line, a host has sent all its lines. One that sends nothing for a moment has sent all that were printed
    before it was asked. Later lines of other hosts must wait for those that it collects.
    """

    def __init__(self, hosts: int) -> None:
        """Begin before the first of so many hosts is asked."""
        #: Set when all hosts are read.
        self.started = threading.Event()
        self._all = hosts
        self._began = time.time()
        self._hosts: set[str] = set()
        self._due = math.inf

    def take(self, waiting: dict[str, deque[_Arrival]], now: float) -> list[Item]:
        """Take these lines out of ``waiting`` and return them, or nothing while they are held.

        They are held until each host that has sent any has sent all its old ones, and either every host has sent some,
        or all are read and the hold is over.
        """
        self._hosts.update(waiting)
        if not waiting:
            return []
        self._due = min(self._due, now + WINDOW_S * 2 / 3)
        until = min(self._complete_until(lines[-1], now) for lines in waiting.values())
        if until < self._began:  # a host is still sending its old lines
            return []
        if len(self._hosts) < self._all and (now < self._due or not self.started.is_set()):
            return []
        return _taken(waiting, lambda arrival: arrival.item.time <= until)

    def _complete_until(self, last: _Arrival, now: float) -> float:
        """Return up to which time (epoch s) the host of this line, its last so far, has sent its lines."""
        return max(self._began, last.item.time) if now - last.time > _QUIET_S else last.item.time


class _Arrival(NamedTuple):
    """A line or a gap, and when it arrived (time.monotonic)."""

    time: float
    item: Item


def _held_since(waiting: dict[str, deque[_Arrival]], since: float) -> list[Item]:
    """Take out the lines that have been held since this time, and with them newer arrivals that belong before them."""
    newest = max(each.item.time for lines in waiting.values() for each in lines if each.time <= since)
    return _taken(waiting, lambda arrival: arrival.time <= since or arrival.item.time <= newest)


def _taken(waiting: dict[str, deque[_Arrival]], chosen: Callable[[_Arrival], bool]) -> list[Item]:
    """Take out each host's lines up to the first that is not chosen, and return them ordered by time."""
    streams: list[list[Item]] = []
    for host, lines in list(waiting.items()):
        taken: list[Item] = []
        while lines and chosen(lines[0]):
            taken.append(lines.popleft().item)
        streams.append(taken)
        if not lines:
            del waiting[host]
    return list(heapq.merge(*streams, key=attrgetter("time")))
