"""What many threads queue is taken in few pieces."""

from __future__ import annotations

import queue
import threading
import time

from tfctl.jobs.gather import gather


def test_what_many_hosts_say_at_once_is_taken_together() -> None:
    incoming: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in range(1000):
        incoming.put(f"node{number}")
    assert len(gather(incoming, 1.0, time.monotonic())) == 1000


def test_what_hosts_say_before_the_next_look_is_due_is_taken_together() -> None:
    incoming: queue.SimpleQueue[str] = queue.SimpleQueue()
    incoming.put("node1")
    threading.Timer(0.1, incoming.put, args=("node2",)).start()
    due = time.monotonic() + 1.0
    assert gather(incoming, 1.0, due) == ["node1", "node2"]
    assert time.monotonic() >= due


def test_silence_does_not_last_longer_than_the_limit() -> None:
    began = time.monotonic()
    assert gather(queue.SimpleQueue(), 0.05, began + 9.0) == []
    assert time.monotonic() < began + 0.9
