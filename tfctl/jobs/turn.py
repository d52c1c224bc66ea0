"""Let many threads do the first part of their work before any of them begins with the second."""

from __future__ import annotations

import threading
import time


class Turn:
    """When the threads that follow hosts may open their sessions, and when they may read them.

    Python runs one thread at a time, and those that read leave little time to the others: with 1,000 hosts, the last
    session would be open minutes later.
    """

    def __init__(self, count: int, limit: float) -> None:
        """``count``: the number of threads. ``limit``: for how long (s) they wait for each other before they read."""
        self._opening = count
        self._limit = limit
        self._end = 0.0
        self._named: set[str] = set()
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._all_open = threading.Event()

    def begin(self) -> None:
        """Let the threads, all of which have been started, open their sessions."""
        self._end = time.monotonic() + self._limit
        self._begun.set()

    def wait_to_begin(self) -> None:
        self._begun.wait()

    def opened(self, name: str) -> None:
        """Note that a thread has opened its session or failed to do so. Repetitions do not count."""
        with self._lock:
            self._named.add(name)
            if len(self._named) >= self._opening:
                self._all_open.set()

    def wait_to_read(self) -> None:
        self._all_open.wait(max(0.0, self._end - time.monotonic()))
