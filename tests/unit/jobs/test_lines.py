"""Lines of several hosts in one order, and what journalctl's JSON makes of a message."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from records import make_record

from tfctl.errors import Unreachable
from tfctl.jobs.inbox import Inbox
from tfctl.jobs.journal import Gap, HostJournal, Item, Line, Query
from tfctl.jobs.logs import _Arrival, _FirstLines, _Follower, _in_order, _last, _open_all, _since_all
from tfctl.jobs.state import JobState
from tfctl.model.host import Host, Ssh
from tfctl.node import wire


def line(when: float, host: str, text: str = "") -> Line:
    return Line(when, "worker", 0, host, "stdout", text)


def ordered(*lines: Line | None, hosts: int = 2) -> list[list[Item]]:
    news: Inbox[Item | None] = Inbox(1000)
    news.put(lines)
    return list(_in_order(news, hosts))


def test_lines_of_several_hosts_are_merged_by_time() -> None:
    a, b, c, d = line(1, "a"), line(2, "b"), line(3, "a"), line(4, "b")
    assert ordered(b, d, a, None, c, None) == [[a, b, c, d]]


def test_lines_of_one_host_keep_their_order() -> None:
    """Also where its clock was set back, and where several have one time."""
    first, second, third = line(9, "a", "first"), line(5, "a", "second"), line(5, "a", "third")
    other = line(7, "b")
    [found] = ordered(first, second, third, other, None, None)
    assert [each for each in found if each.host == "a"] == [first, second, third]


def test_a_line_that_arrives_late_is_printed_before_newer_ones_of_other_hosts() -> None:
    """Whenever it arrives: hosts collect their lines at different moments."""
    news: Inbox[Item | None] = Inbox(1000)
    collect, late = 1.5, 0.4
    began = time.monotonic()

    def print_lines(host: str, delay: float) -> None:
        for number in range(20):
            time.sleep(max(0.0, began + number * 0.1 + delay - time.monotonic()))
            news.put([line(number * 0.1, host)])
        news.put([None])

    for host, delay in (("a", 0.0), ("b", late)):
        threading.Thread(target=print_lines, args=(host, delay), daemon=True).start()
    batches = list(_in_order(news, 2, collect))
    times = [item.time for batch in batches for item in batch]
    assert len(batches) > 1
    assert times == sorted(times)


def test_the_first_lines_of_many_hosts_are_held_only_until_all_are_read() -> None:
    """A line after the last one of some host must wait: that host may have collected an older one."""
    news: Inbox[Item | None] = Inbox(1000)
    first = _FirstLines(3)
    now = time.time() + 10
    a, b, c, d, late = line(1, "a"), line(2, "b"), line(now, "a"), line(now + 2, "b"), line(now + 1, "a")
    news.put([b, d])
    batches = _in_order(news, 3, 5.0, first)
    threading.Timer(0.3, news.put, [[a, c]]).start()
    threading.Timer(0.6, first.started.set).start()
    began = time.monotonic()
    assert next(batches) == [a, b, c]
    assert 0.55 < time.monotonic() - began < 2.0
    news.put([late, None, None, None])
    assert next(batches) == [late, d]


def test_what_was_printed_before_many_hosts_were_asked_is_not_held_longer_for_a_quiet_host() -> None:
    news: Inbox[Item | None] = Inbox(1000)
    first = _FirstLines(3)
    first.started.set()
    a, b = line(1, "a"), line(2, "b")
    news.put([b, a])
    began = time.monotonic()
    assert next(_in_order(news, 3, 5.0, first)) == [a, b]
    assert 0.15 < time.monotonic() - began < 2.0


def test_the_first_lines_of_many_hosts_wait_for_one_that_takes_long_to_send_its_old_ones() -> None:
    """Only for that: they are not held as long as later lines are."""
    first = _FirstLines(3)
    first.started.set()
    old, new = [line(number, "a") for number in range(10)], line(time.time() + 10, "b")
    waiting: dict[str, deque[_Arrival]] = {"b": deque([_Arrival(0.0, new)]), "a": deque()}
    for number, each in enumerate(old):
        waiting["a"].append(_Arrival(number * 0.05, each))
        assert first.take(waiting, number * 0.05) == []
    assert first.take(waiting, 0.5) == []
    assert first.take(waiting, 0.56) == old
    assert [arrival.item for arrival in waiting["b"]] == [new]


def test_the_first_lines_of_many_hosts_are_not_held_once_all_have_sent_all_of_them() -> None:
    news: Inbox[Item | None] = Inbox(1000)
    now = time.time() + 10
    a, b = line(now, "a"), line(now + 1, "b")
    news.put([b, a])
    began = time.monotonic()
    batches = _in_order(news, 2, 1.0, _FirstLines(2))
    assert next(batches) == [a], "host a may be about to send older lines than b"
    assert time.monotonic() - began < 0.15
    assert next(batches) == [b]


def test_the_first_lines_of_others_do_not_wait_for_a_host_that_printed_long_ago() -> None:
    news: Inbox[Item | None] = Inbox(1000)
    a, b, c = line(1, "a"), line(2, "b"), line(time.time() + 10, "c")
    first = _FirstLines(3)
    news.put([c, b, a])
    assert next(_in_order(news, 3, 5.0, first)) == [a, b]


def test_the_first_lines_are_not_let_through_after_others() -> None:
    """A host whose lines have been printed may collect lines that are older than those of others."""
    news: Inbox[Item | None] = Inbox(1000)
    first = _FirstLines(3)
    a, b, late = line(1, "a"), line(5, "b"), line(4, "a")
    news.put([a])
    batches = _in_order(news, 3, 0.0, first)
    assert next(batches) == [a]
    first.started.set()
    news.put([b])
    threading.Timer(0.1, news.put, [[late, None, None, None]]).start()
    assert next(batches) == [late, b]


class Source:
    """The journal of a host. Opening a session takes ``seconds``."""

    synced, has_states, clock_offset = True, True, None

    def __init__(self, seconds: float = 0.0) -> None:
        self.host = Host("node1", Ssh("10.0.0.1"))
        self.opened: list[bool] = []
        self.closed = 0
        self._seconds = seconds

    def open(self, _connection: object, follow: bool, *_: object) -> Source:
        time.sleep(self._seconds)
        self.opened.append(follow)
        return self

    def batches(self, *_: object) -> list[list[Item]]:
        return [[line(1, "node1")]]

    def close(self) -> None:
        self.closed += 1


class Dialer:
    """A fleet that fails to connect so many times. ``closed``: connections that were closed."""

    def __init__(self, failures: float = 0) -> None:
        self.dials = self.closed = 0
        self.clock_offsets: dict[str, float] = {}
        self._failures = failures

    def connection(self, _host: Host) -> Dialer:
        self.dials += 1
        if self.dials <= self._failures:
            raise Unreachable("node1: gone")
        return self

    def close(self) -> None:
        self.closed += 1


def follower(source: Source, fleet: Dialer, over: threading.Event, failed: list[Exception]) -> tuple[Any, Inbox[Any]]:
    news: Inbox[Any] = Inbox(1000)
    answers = SimpleNamespace(expects=lambda _: True, fail=lambda *_: None, listen=lambda _: None)
    made = _Follower(source, 0.5, fleet, news, over, print, failed.append, answers)  # type: ignore[arg-type]
    return made, news


def test_following_ends_although_a_host_was_down_when_many_were_asked() -> None:
    source, fleet, over, failed = Source(), Dialer(math.inf), threading.Event(), []  # type: ignore[var-annotated]
    made, news = follower(source, fleet, over, failed)
    made.open()
    over.set()
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert news.take(1.0, 0.0) == [None]
    assert fleet.dials < 5
    assert len(failed) == 1


def test_the_last_lines_are_read_although_the_job_ends_while_many_are_asked() -> None:
    source, fleet, over, failed = Source(0.4), Dialer(), threading.Event(), []  # type: ignore[var-annotated]
    made, news = follower(source, fleet, over, failed)
    opening = threading.Thread(target=made.open)
    opening.start()
    time.sleep(0.1)
    over.set()
    made.run()
    opening.join(5)
    assert news.take(1.0, 0.0) == [line(1, "node1"), None]
    assert (source.opened, source.closed, failed) == ([True, False], 1, [])


def test_a_host_that_was_down_when_many_were_asked_is_read_over_its_next_connection() -> None:
    source, fleet, over, failed = Source(), Dialer(1), threading.Event(), []  # type: ignore[var-annotated]
    made, news = follower(source, fleet, over, failed)
    made.open()
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    assert news.take(5.0, 0.0) == [line(1, "node1")]
    over.set()
    thread.join(5)
    assert not thread.is_alive()
    assert (fleet.closed, failed) == (0, [])


def test_a_session_that_was_opened_for_a_reader_that_never_ran_is_closed() -> None:
    source, over = Source(), threading.Event()
    made, news = follower(source, Dialer(), over, [])
    made.open()
    news.close()
    made.run()
    assert source.closed == 1


class Opener:
    """A follower whose host answers after ``seconds``."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.opened, self._seconds = False, seconds

    def open(self) -> None:
        time.sleep(self._seconds)
        self.opened = True


def test_a_host_that_does_not_answer_holds_up_the_others_only_for_a_limited_time() -> None:
    began = time.monotonic()
    quick, hung = [Opener() for _ in range(100)], [Opener(5.0) for _ in range(10)]
    _open_all([*hung, *quick], 1.0)  # type: ignore[list-item]
    assert 0.9 < time.monotonic() - began < 3.0
    assert all(one.opened for one in quick)
    began = time.monotonic()
    _open_all(quick, 10.0)  # type: ignore[arg-type]
    assert time.monotonic() - began < 3.0


def test_silent_hosts_do_not_hold_up_the_others() -> None:
    assert ordered(None, None) == []
    assert ordered(hosts=0) == []


def test_the_last_lines_are_counted_without_gaps_and_keep_those_just_before_them() -> None:
    first, second, third = line(1, "a"), line(3, "a"), line(5, "b")
    early, late = Gap(0.5, (("worker", 0),), "a", "rotated"), Gap(2, (("worker", 0),), "a", "dropped")
    everything: list[Item] = [early, first, late, second, third]
    assert list(_last(everything, 3)) == everything
    assert list(_last(everything, 2)) == [late, second, third]
    assert list(_last(everything, 1)) == [third]
    assert list(_last(everything, 0)) == []


def test_last_lines_of_hosts_begin_where_none_has_more() -> None:
    """Of a host that prints little, lines from before the time that the others have sent would look like all."""
    chatty = [Line(float(time), "worker", 0, "node1", "stdout", "") for time in range(10, 20)]
    quiet = [Line(float(time), "worker", 1, "node2", "stdout", "") for time in (1, 12, 18)]
    shown = [[item.time for item in host] for host in _since_all([iter(chatty), iter(quiet)], 5)]
    assert shown == [[15, 16, 17, 18, 19], [18]]
    assert [list(host) for host in _since_all([iter(chatty), iter(quiet)], 50)] == [chatty, quiet]


class Flood(Inbox[Item | None]):
    """Never empty."""

    def take(self, _within: float, due: float) -> list[Item | None]:
        time.sleep(max(0.0, due - time.monotonic()))
        return [line(time.time(), "a")]


def test_lines_are_printed_while_new_ones_keep_arriving() -> None:
    """A flood would otherwise be held back, and grow, for as long as it lasts."""
    batches = _in_order(Flood(1), 1)
    assert next(batches)
    assert next(batches)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        ([104, 105, 13, 10], "hi\r\n"),
        ([99, 97, 102, 233], "caf�"),
        ([], ""),
        (["first", "of two"], "first"),
        ([[104, 105], "of two"], "hi"),
    ],
)
def test_every_form_of_a_journal_message_is_decoded(value: Any, text: str) -> None:
    entry = {"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1700000000000000", "MESSAGE": value}
    found = wire.journal_entry(json.dumps(entry).encode())
    assert (found.cursor, found.time, found.unit, found.transport, found.text) == ("s=1", 1.7e9, "", "stdout", text)


class Refusing:
    """A connection that starts nothing. ``windows``: those that were asked for."""

    is_root = True

    def __init__(self) -> None:
        self.spares: list[Any] = []
        self.windows: list[int | None] = []

    def exec(self, _words: Sequence[str], window: int | None = None) -> None:
        self.windows.append(window)
        raise Unreachable("node1: gone")


@pytest.mark.parametrize(("hosts", "window"), [(1, 2 << 20), (32, 2 << 20), (64, 1 << 20), (5000, 64 << 10)])
def test_the_lines_of_many_hosts_that_wait_to_be_read_have_a_limit_together(hosts: int, window: int) -> None:
    connection, state = Refusing(), JobState("digits", 1, "running", "", None, make_record(), ())
    source = HostJournal(Host("node1", Ssh("10.0.0.1")), state, Query(), hosts=hosts)
    with pytest.raises(Unreachable):
        source.open(connection, follow=False)  # type: ignore[arg-type]
    assert connection.windows == [window]
