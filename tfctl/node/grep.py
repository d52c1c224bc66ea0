"""Send only those lines of the journal that match a regular expression.

Python checks for signals while it matches, so that a timer can end a match that would take for ever.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time

from . import wire
from .exits import Exit
from .session import Refused, Session
from .system import host

#: The longest CPU time (s) for one line: a pattern such as (a+)+$ can take years.
LINE_S = 1.0


def run(session: Session, words: list[str], pattern: re.Pattern[str], resumed: bool, follow: bool) -> None:
    """Run journalctl and send the lines of its JSON that match, until it ends or, with ``follow``, the client does.

    Some lines are sent without a check: pieces of a split line, which the client joins first, journald's messages about
    dropped lines and, if the client has ``resumed``, the first line. Raises Refused, Gone.
    """
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if follow:
        threading.Thread(target=session.kill_at_end, args=(process,), daemon=True).start()
    assert process.stdout
    split: set[tuple[str, str]] = set()
    unchecked, beat = resumed, time.monotonic() + wire.BEAT_S
    signal.signal(signal.SIGVTALRM, _raise)
    try:
        for line in process.stdout:
            entry = wire.journal_entry(line)
            stream = entry.unit, entry.stream
            if unchecked or entry.is_split or stream in split or entry.dropped is not None or _matches(pattern, entry):
                session.send_raw(line)
            unchecked = False
            split.discard(stream)
            if entry.is_split:
                split.add(stream)
            if time.monotonic() > beat:  # it fails once the client is gone
                session.send(wire.Beat())
                beat = time.monotonic() + wire.BEAT_S
        if process.wait() > 0:
            raise Refused(Exit.FAILED, f"journalctl on {host()} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait(5)


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
