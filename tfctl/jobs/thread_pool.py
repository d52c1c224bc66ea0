"""Call a function for many hosts in only as many threads as needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

#: How many threads there are at first.
LEAST = 8
#: If no call has returned for this long (s), the number of threads is doubled.
STALLED_S = 0.1


def call_for_each(hosts: Iterable[T], work: Callable[[T], object]) -> None:
    """Call ``work``, which must not raise, for each host, and return when all calls have returned.

    With one thread per host, hundreds of threads would compete for the CPU. But a fixed small number would not be
    enough, because each host that answers late occupies a thread. ``work`` must not wait for that of another host,
    which may have no thread yet. To let hosts work in parallel, send all messages in one call, and read the answers in
    a second one.

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
