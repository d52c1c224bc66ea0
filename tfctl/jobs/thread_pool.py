"""Call a function for many hosts in as few threads as suffice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

#: How many threads there are at first.
LEAST = 8
#: If no call has returned for this long (s), the number of threads is doubled.
STALLED_S = 0.1


def call_for_each(hosts: Iterable[str], work: Callable[[str], object]) -> None:
    """Call ``work``, which must not raise, for each host, and return when all calls have returned.

    With one thread per host, hundreds of threads would compete for the CPU. But a few would not be enough for hosts
    that answer late, each of which occupies a thread. ``work`` should only wait for what a host does anyway: not all
    hosts have a thread at the same time.

    The threads are daemon threads. Ctrl-C ends the wait, and no further call begins.
    """
    pending = [*hosts][::-1]
    unfinished, threads = len(pending), 0
    changed = threading.Condition()

    def serve() -> None:
        nonlocal unfinished
        while True:
            with changed:
                if not pending:
                    return
                host = pending.pop()
            work(host)
            with changed:
                unfinished -= 1
                if not unfinished:
                    changed.notify()

    with changed:
        before = unfinished
        try:
            while unfinished:
                if unfinished == before:
                    more = min(len(pending), max(LEAST, threads))
                    for _ in range(more):
                        threading.Thread(target=serve, daemon=True).start()
                    threads += more
                before = unfinished
                changed.wait(STALLED_S)
        finally:
            pending.clear()
