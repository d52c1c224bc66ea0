"""What the task of a fake host prints, as lines of journalctl's JSON."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Callable
from typing import ClassVar

from tfctl.node.following import FIRST_S

#: The shortest time (s) between two pieces of output. Faster tasks print several lines at once.
_PIECE_S = 0.02
#: The text of a line: its number, the name of its host, and when it was printed, in epoch seconds.
TEXT = "line {number} of {host} at {time:.4f}: epoch 3, step 1200, loss 0.1234, 250.1 examples/s"
PATTERN = re.compile(rb"line (\d+) of (\S+) at ([\d.]+): ")
_ENTRY = (
    '{{"__CURSOR":"s=1f0e2d3c4b5a69788796a5b4c3d2e1f0;i={number:x};b=b0f7e6d5c4b3a29180f7e6d5c4b3a291;m={micros:x};'
    't={micros:x};x=0123456789abcdef","__REALTIME_TIMESTAMP":"{micros}","__MONOTONIC_TIMESTAMP":"{micros}",'
    '"_BOOT_ID":"b0f7e6d5c4b3a29180f7e6d5c4b3a291","_SYSTEMD_UNIT":"{unit}","_TRANSPORT":"stdout",'
    '"_STREAM_ID":"00112233445566778899aabbccddeeff","MESSAGE":"{text}"}}\n'
)


class Lateness:
    """How late (s) lines were sent, of all hosts of this process."""

    worst = 0.0


class Journal:
    """The output of one task, ``rate`` lines a second from the moment at which it is first followed.

    The lines are numbered from 0, and the time of each follows from its number, so that a client that continues after a
    cursor gets each line once. The hosts do not print at the same moments. ``collect``: for how long (s) the lines are
    collected that are sent together.
    """

    #: By host.
    _began: ClassVar[dict[str, float]] = {}

    def __init__(self, host: str, unit: str, rate: float, collect: float, send: Callable[[bytes], None]) -> None:
        self._host, self._unit, self._rate, self._collect, self._send = host, unit, rate, collect, send
        self._next = 0
        self._start = 0.0
        self._begun = False
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, cursor: str | None) -> None:
        """Send each line at its time, from now on or from the line at a cursor on, with that line."""
        found = re.search(r"i=([0-9a-f]+)", cursor or "")
        if found and self._host in self._began:
            self._start, self._next = self._began[self._host], int(found[1], 16)
        else:
            phase = zlib.crc32(self._host.encode()) % 1000 / 1000
            self._start = self._began[self._host] = time.time() + phase / self._rate
        self._wake()

    def pause(self, paused: bool) -> None:
        self._paused = paused

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        now = time.time()
        if not self._paused:
            due = max(self._next, int((now - self._start) * self._rate) + 1) if now >= self._start else self._next
            if due > self._next:
                Lateness.worst = max(Lateness.worst, now - self._time(self._next) - self._collect)
                self._send("".join(self._entry(number) for number in range(self._next, due)).encode())
                self._next, self._begun = due, True
        collect = self._collect if self._begun else min(self._collect, FIRST_S)
        pause = max(_PIECE_S, self._time(self._next) + collect - now)
        self._timer = asyncio.get_running_loop().call_later(pause, self._wake)

    def _time(self, number: int) -> float:
        return self._start + number / self._rate

    def _entry(self, number: int) -> str:
        at = self._time(number)
        text = TEXT.format(number=number, host=self._host, time=at)
        return _ENTRY.format(number=number, micros=int(at * 1e6), unit=self._unit, text=text)
