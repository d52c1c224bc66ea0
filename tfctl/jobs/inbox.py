"""Pass what many threads read, such as lines and answers of hosts, to the one thread that uses it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """A queue into which many threads put items and from which one thread takes all of them at once.

    Waking up for each item would cost more than using it. If a queue.Queue is full, each item that is taken out wakes
    a thread: with a thousand hosts whose lines arrive faster than they are printed, that took most of the CPU time.
    """

    def __init__(self, most: float = math.inf) -> None:
        """``most``: the number of items, or their weight, at which the inbox is full. It can be exceeded: after a
        `take`, all threads that were waiting append theirs."""
        self._most = most
        self._weight = 0
        self._items: list[T] = []
        self._closed = False
        self._taken = 0  # how often items have been taken
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._emptied = threading.Condition(lock)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, items: Sequence[T], weight: int | None = None) -> bool:
        """Append ``items``, whose ``weight`` is their number unless it is given. If the inbox is full, wait for the
        next `take` first. If it is closed, append nothing, and return False."""
        with self._emptied:
            taken = self._taken
            # Any number of threads go on once it has been emptied: if those that find it full again continued to wait,
            # each would wake many times.
            self._emptied.wait_for(lambda: self._closed or self._taken > taken or self._weight < self._most)
            if self._closed:
                return False
            self._items += items
            self._weight += len(items) if weight is None else weight
            self._filled.notify()
        return True

    def take(self, within: float, due: float) -> list[T]:
        """Wait up to ``within`` seconds for an item; return an empty list if none comes. Otherwise wait until ``due``
        (time.monotonic), even if that is later, and return all items. Only one thread may call this."""
        with self._filled:
            if not self._filled.wait_for(lambda: self._items, within):
                return []
        time.sleep(max(0.0, due - time.monotonic()))
        with self._emptied:
            items, self._items, self._weight = self._items, [], 0
            self._taken += 1
            self._emptied.notify_all()
        return items

    def close(self) -> None:
        """Let every `put` return."""
        with self._emptied:
            self._closed = True
            self._emptied.notify_all()
