"""What many threads put in is taken out in few pieces."""

from __future__ import annotations

import threading
import time

from tfctl.jobs.inbox import Inbox


def test_what_many_hosts_say_at_once_is_taken_out_together() -> None:
    incoming: Inbox[str] = Inbox()
    for number in range(1000):
        incoming.put([f"node{number}"])
    assert len(incoming.take(1.0, time.monotonic())) == 1000


def test_what_was_put_in_before_the_next_look_is_due_is_taken_out_together() -> None:
    inbox: Inbox[int] = Inbox(100)
    inbox.put([1, 2])
    threading.Timer(0.1, inbox.put, args=([3],)).start()
    due = time.monotonic() + 1.0
    assert inbox.take(1.0, due) == [1, 2, 3]
    assert time.monotonic() >= due


def test_an_empty_inbox_is_waited_for_no_longer_than_the_limit() -> None:
    began = time.monotonic()
    assert Inbox[int](100).take(0.05, began + 9.0) == []
    assert time.monotonic() < began + 0.9


def test_with_most_items_in_it_the_next_ones_wait_until_they_have_been_taken_out() -> None:
    inbox: Inbox[int] = Inbox(2)
    inbox.put([1, 2, 3])
    waiting = threading.Thread(target=inbox.put, args=([4],))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    assert inbox.take(1.0, 0.0) == [1, 2, 3]
    assert inbox.take(5.0, 0.0) == [4]
    waiting.join(5)


def test_few_heavy_items_fill_an_inbox_as_many_light_ones_do() -> None:
    inbox: Inbox[str] = Inbox(100)
    inbox.put(["x" * 1000], 100)
    waiting = threading.Thread(target=inbox.put, args=(["y"],))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    assert inbox.take(1.0, 0.0) == ["x" * 1000]
    assert inbox.take(5.0, 0.0) == ["y"]
    waiting.join(5)


def test_nothing_is_put_into_a_closed_inbox_and_nobody_waits_for_it() -> None:
    inbox: Inbox[int] = Inbox(1)
    assert inbox.put([1])
    results: list[bool] = []
    waiting = threading.Thread(target=lambda: results.append(inbox.put([2])))
    waiting.start()
    inbox.close()
    waiting.join(5)
    assert (results, inbox.put([3])) == ([False], False)


def test_all_that_many_threads_put_into_a_small_inbox_is_taken_out() -> None:
    inbox: Inbox[int] = Inbox(10)
    threads = [threading.Thread(target=lambda: [inbox.put([0] * 5) for _ in range(10)]) for _ in range(100)]
    for thread in threads:
        thread.start()
    found = 0
    while found < 5000:
        found += len(inbox.take(5.0, time.monotonic() + 0.01))
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
