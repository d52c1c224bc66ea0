"""Take items that many threads put into a queue, many at a time."""

from __future__ import annotations

import queue
import time
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def gather(source: queue.SimpleQueue[T], within: float, due: float) -> list[T]:
    """Return what has been queued, once there is something and the time ``due`` (time.monotonic) has come; nothing
    after ``within`` seconds.

    Waking up for each item would cost more than handling it.
    """
    found: list[T] = []
    with suppress(queue.Empty):
        found.append(source.get(timeout=within))
        time.sleep(max(0.0, due - time.monotonic()))
        while True:
            found.append(source.get_nowait())
    return found
