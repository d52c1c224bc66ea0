"""Search lines of tasks for patterns of users within a limit of time. Only for the main thread."""

from __future__ import annotations

import re
import signal

#: The longest CPU time (s) to match one line: a pattern such as (a+)+$ can take years.
LINE_S = 1.0


class TooSlow(Exception):
    """A match takes longer than its limit."""


def prepare() -> None:
    """Let `search` end a match that takes too long: Python checks for signals while it matches."""
    signal.signal(signal.SIGVTALRM, _raise)


def search(pattern: re.Pattern[str], text: str, limit: float = LINE_S) -> re.Match[str] | None:
    """Search the text for the pattern. Raises TooSlow after ``limit`` seconds of CPU time."""
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        return pattern.search(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _raise(*_: object) -> None:
    raise TooSlow
