"""Let many threads do the first part of their work before any of them begins with the second, for a limited time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable


class Turn:
    """Decides when the threads that follow hosts may open their sessions, and when they may read them. Thread-safe.

    Python runs one thread at a time, and those that read leave little time to the others: with 1,000 hosts, the last
    session would be open minutes after the first.
    """

    def __init__(self, hosts: Iterable[str], limit: float) -> None:
        """``limit``: for how long (s) after `begin` the threads of the ``hosts`` wait for each other before reading."""
        self._pending = set(hosts)
        self._limit = limit
        self._end = 0.0
        self._begun = threading.Event()
        self._all_open = threading.Event()

    def begin(self) -> None:
        """Let the threads, all of which have been started, open their sessions."""
        self._end = time.monotonic() + self._limit
        self._begun.set()

    def wait_to_begin(self) -> None:
        self._begun.wait()

    def opened(self, host: str) -> None:
        """Note that the session of a host has been opened, or could not be. Only the first call for a host counts."""
        self._pending.discard(host)
        if not self._pending:
            self._all_open.set()

    def wait_to_read(self) -> None:
        self._all_open.wait(max(0.0, self._end - time.monotonic()))
