"""Send lines of tasks as journalctl prints them, all or those that are wanted, with the tasks' states among them.

A thread reads the states, because systemd can be slow to answer and the lines must not wait for it.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Callable

from . import statuses, wire
from .exits import Exit
from .journal_export import ExportReader
from .session import Gone, NodeSession, RequestRefused
from .system import System, host

#: Takes a line with its newline, and returns what to send of it, or b"".
Wanted = Callable[[bytes], bytes]
#: How often (s) to see whether the client has left and whether states have changed, while there are no lines.
_TURN_S = 0.25
#: For how long (s) old lines are collected, and the first line that was printed after following began.
FIRST_S = 0.05
_TIME = re.compile(rb'"__REALTIME_TIMESTAMP" ?: ?"(\d+)"')
#: Bytes read at once.
_CHUNK = 1 << 20
#: fcntl.F_SETPIPE_SZ, which Python has since 3.10.
_SET_PIPE_SIZE = 1031


def run(
    system: System,
    session: NodeSession,
    words: list[str],
    wanted: Wanted | None,
    request: wire.ShowRequest | None = None,
    *,
    follow: bool = True,
    collect: float = 0.0,
    limit: float = wire.FOLLOW_SILENCE_S,
) -> None:
    """Run journalctl, which prints the export format. Send its entries as lines of JSON, or those that are ``wanted``,
    to its end or, with ``follow``, until the client closes stdin. Without, it may close stdin at once.

    ``request``: also send the answer to it, first and at every change, and a beat while nothing else is sent.
    ``collect``: for how long (s) to collect lines that are sent together.
    Raise RequestRefused if the states could not be read for ``limit`` seconds. Raises Gone.
    """
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout
    beats = request is not None or wanted is not None
    lines = _Lines(process.stdout.fileno(), session, wanted, collect, beats)
    states = _States(system, request, limit) if request else None
    # The client waits for the first states. Behind all lines so far, they would be late.
    within = limit / 3
    try:
        while not (follow and session.heard_of_end(0.0)):
            if found := states and states.changed(within):
                lines.send(wire.line(found))
            within = 0.0
            if not lines.collect():
                break
            lines.beat()
        else:
            return
        if process.wait() != 0:
            raise RequestRefused(Exit.FAILED, f"journalctl on {host()} ended with status {process.returncode}")
    finally:
        process.kill()
        process.wait(5)
        process.stdout.close()


class _Lines:
    """Sends what journalctl prints to the pipe ``source``: all lines, or those that are ``wanted``.

    ``period``: for how long (s) to collect lines that are sent together. ``beats``: whether `beat` sends anything.
    """

    def __init__(
        self,
        source: int,
        session: NodeSession,
        wanted: Wanted | None,
        period: float,
        beats: bool,
    ) -> None:
        self._source, self._session, self._wanted = source, session, wanted
        self._period, self._beats = period, beats
        #: Until lines that were printed after this time (epoch us) have been read, all are sent as soon as possible.
        self._began: float | None = time.time() * 1e6
        if period:
            try:  # journalctl must not have to wait meanwhile
                fcntl.fcntl(source, _SET_PIPE_SIZE, _CHUNK)
            except OSError:
                self._period = 0.0
        self._poll = select.poll()
        self._poll.register(source, select.POLLIN)
        #: Whether journalctl prints faster than lines are collected, as when it begins with old lines.
        self._behind = False
        self._reader = ExportReader()
        self._sent = time.monotonic()

    def send(self, data: bytes) -> None:
        """Send bytes to the client, and note when."""
        self._session.send_raw(data)
        self._sent = time.monotonic()

    def beat(self) -> None:
        """Send a beat if nothing has been sent for 5 s."""
        if self._beats and time.monotonic() > self._sent + wire.BEAT_S:
            self.send(wire.line(wire.Beat()))

    def collect(self) -> bool:
        """Wait a moment for entries, collect them and send them. Return False if journalctl has ended."""
        if not self._poll.poll(0 if self._behind else _TURN_S * 1000):
            self._behind = False
            if not self._session.has_reader:  # and nothing is sent that would fail
                raise Gone
            return True
        if not self._behind:
            time.sleep(self._period if self._began is None else min(self._period, FIRST_S))
        data = os.read(self._source, _CHUNK)
        if not data:
            return False
        self._behind = bool(self._period) and (self._behind or len(data) > _CHUNK // 2)
        lines = self._reader.add(data)
        if self._began is not None and lines and not _is_older(lines, self._began):
            self._began = None
        together: list[bytes] = []
        for chosen in _chosen(lines, self._wanted) if lines else ():
            if chosen and self._period:
                together.append(chosen)
            elif chosen:
                self.send(chosen)
            self.beat()
        if together:
            self.send(b"".join(together))
        return True


def _is_older(lines: bytes, time: float) -> bool:
    """Return whether the last of these lines was printed before this time (epoch us)."""
    found = _TIME.search(lines, lines.rfind(b"\n", 0, -1) + 1)
    return found is not None and int(found[1]) < time


def _chosen(lines: bytes, wanted: Wanted | None) -> Iterable[bytes]:
    """Return all lines in one piece, or what is wanted of each, which may be b""."""
    return [lines] if wanted is None else map(wanted, lines.splitlines(keepends=True))


class _States:
    """Reads the states in a thread, which ends with this process."""

    def __init__(self, system: System, request: wire.ShowRequest, limit: float) -> None:
        self._limit = limit
        self._read = time.monotonic()
        self._latest: deque[wire.Shown | Exception] = deque(maxlen=1)
        self._changed = threading.Event()
        threading.Thread(target=self._run, args=(system, request), daemon=True).start()

    def changed(self, within: float = 0.0) -> wire.Shown | None:
        """Return the states if they have changed since the last call, or do so ``within`` seconds.

        Raises RequestRefused if they have not been read for the limit, and any exception that reading them has raised.
        """
        self._changed.wait(within)
        self._changed.clear()
        if self._latest:
            found = self._latest.popleft()
            if isinstance(found, Exception):
                raise found
            return found
        if time.monotonic() > self._read + self._limit:
            raise RequestRefused(
                Exit.FAILED,
                f"the states of the tasks on {host()} could not be read for {self._limit:g} s",
                "the machine may be overloaded, or systemd or a file system there hangs",
            )
        return None

    def _run(self, system: System, request: wire.ShowRequest) -> None:
        try:
            for found in statuses.changes(system, request):
                self._read = time.monotonic()
                if found is not None:
                    self._put(found)
                time.sleep(statuses.POLL_S)
        except Exception as error:
            self._put(error)

    def _put(self, found: wire.Shown | Exception) -> None:
        self._latest.append(found)
        self._changed.set()
