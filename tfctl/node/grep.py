"""Send only those lines of the journal that match a regular expression.

Python checks for signals while it matches, so that a timer can end a match that would take for ever.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time

from . import wire
from .exits import Exit
from .session import Refused, Session
from .system import host

#: The longest CPU time (s) for one line: a pattern such as (a+)+$ can take years.
LINE_S = 1.0


def run(session: Session, words: list[str], wanted: Wanted) -> None:
    """Run journalctl and send the lines of its JSON that are wanted, until it ends. Raises Refused, Gone."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout
    beat = time.monotonic() + wire.BEAT_S
    try:
        for line in process.stdout:
            if wanted(line):
                session.send_raw(line)
            if time.monotonic() > beat:  # it fails once the client is gone
                session.send(wire.Beat())
                beat = time.monotonic() + wire.BEAT_S
        if process.wait() > 0:
            raise Refused(Exit.FAILED, f"journalctl on {host()} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait(5)


class Wanted:
    """Says of each line of journalctl's JSON in turn whether to send it. Only for the main thread.

    Some lines are sent without a check: pieces of a split line, which the client joins first, journald's messages about
    dropped lines and, if the client has ``resumed``, the first line.
    """

    def __init__(self, pattern: re.Pattern[str], resumed: bool) -> None:
        self._pattern = pattern
        self._unchecked = resumed
        self._split: set[tuple[str, str]] = set()
        signal.signal(signal.SIGVTALRM, _raise)

    def __call__(self, line: bytes) -> bool:
        """Return whether to send the line. Raises Refused if that takes longer than LINE_S to find out."""
        entry = wire.journal_entry(line)
        stream = entry.unit, entry.stream
        sent = self._unchecked or entry.is_split or stream in self._split or entry.dropped is not None
        self._unchecked = False
        self._split.discard(stream)
        if entry.is_split:
            self._split.add(stream)
        return sent or _matches(self._pattern, entry)


class _TooSlow(Exception):
    """A match takes longer than LINE_S."""


def _matches(pattern: re.Pattern[str], entry: wire.JournalEntry) -> bool:
    signal.setitimer(signal.ITIMER_VIRTUAL, LINE_S)
    try:
        return pattern.search(entry.text) is not None
    except _TooSlow:
        what = f"to match a line of {len(entry.text)} characters takes more than {LINE_S:.0f} s on {host()}"
        raise Refused(Exit.USAGE, what, "simplify --grep: a repeat within a repeat, as in (a+)+, is slow") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _raise(*_: object) -> None:
    raise _TooSlow
