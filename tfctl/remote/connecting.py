"""Limit how many connections are made at once, because connecting threads compete for the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: The most connections made at once. More would not be faster.
MOST = 32
#: The limit at first, and below which it is not lowered.
FIRST, LEAST = 8, 4
#: How often (s) the limit is adapted.
_PERIOD_S = 0.1
#: The limit is halved when this process uses more than `_BUSY` of a core, and doubled when it uses less than `_IDLE`.
#: Python uses little more than one core. Child processes, such as ssh, are not counted.
_BUSY, _IDLE = 0.8, 0.6


class ConnectLimit:
    """Holds a thread back until it may make a connection; a context manager around making one. Thread-safe.

    While this process is busy all the time, the limit is lowered: with 32 threads that compete for the CPU, a
    connection takes up to a third more CPU time than with four. While it is idle, because the hosts take long to
    answer, the limit is raised; also when no attempt to connect has ended during the last period, although the process
    is busy with something else: hosts that do not answer must not stop the others.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu_time: Callable[[], float] = time.process_time
    ) -> None:
        self.limit = FIRST
        self._clock, self._cpu_time = clock, cpu_time
        self._active = 0
        self._adapted = clock(), cpu_time()  # the time and the CPU time at the last check
        self._ended = 0  # how many attempts to connect have ended since the last check
        self._first = threading.Lock()  # lets one thread at a time wait; the others block without waking up
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._first, self._changed:
            while self._active >= self.limit:
                self._changed.wait(_PERIOD_S)
                self._adapt()
            self._active += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._active -= 1
            self._ended += 1
            self._adapt()
            self._changed.notify()

    def _adapt(self) -> None:
        now, used = self._clock(), self._cpu_time()
        passed, busy = now - self._adapted[0], used - self._adapted[1]
        if passed < _PERIOD_S:
            return
        stalled = self._ended == 0
        self._adapted, self._ended = (now, used), 0
        if stalled or busy < _IDLE * passed:
            self.limit = min(MOST, self.limit * 2)
        elif busy > _BUSY * passed:
            self.limit = max(LEAST, self.limit // 2)
