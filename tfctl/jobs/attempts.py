"""The attempts of a job that is followed: the current one, then each that the job's guard starts."""

from __future__ import annotations

import threading
from collections import deque

from tfctl.jobs.state import JobState


class Attempts:
    """``state``: the attempt to follow; ``over``: set once it has ended or another one has begun.

    One thread calls `note` and `end`, another one follows.
    """

    def __init__(self, state: JobState) -> None:
        self.state = state
        self.over = threading.Event()
        self._next: deque[JobState] = deque()
        self._ended = False
        self._lock = threading.Lock()

    def note(self, found: JobState) -> bool:
        """Take note of the latest state. Return whether it is the first of an attempt."""
        with self._lock:
            current = self._next[-1] if self._next else self.state
            if found.attempt == current.attempt:
                return False
            self._next.append(found)
            self.over.set()
            return True

    def end(self) -> None:
        """Record that no other attempt will begin."""
        with self._lock:
            self._ended = True
            self.over.set()

    def advance(self) -> bool:
        """Go on to the next attempt. Return whether there is one. Call it once all of `state` has been read."""
        with self._lock:
            if not self._next:
                return False
            self.state = self._next.popleft()
            self.over = threading.Event()
            if self._ended or self._next:
                self.over.set()
            return True
