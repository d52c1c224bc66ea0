"""Measure `tfctl logs -f`: read what it prints, and compare it with what the hosts have printed."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.bench_scale.journal import PATTERN
from scripts.bench_scale.measure import Child, Failed

#: How long (s) the command may take to end after Ctrl-C.
_END_S = 30.0


class Followed(NamedTuple):
    """What following cost. ``first``: seconds until the first line; ``all_hosts``: until each host had printed one.

    The other figures are of the seconds after that: ``rate``: lines per second. ``share``: of a CPU core. ``per_line``:
    CPU seconds. ``lag``, ``worst_lag``: the median and the 99th percentile of the seconds between the time of a line
    and its arrival. ``lost``: lines that are missing before the last one of a host. ``silent``: hosts
    without a line. ``memory``, ``threads``: as in Usage.
    """

    first: float
    all_hosts: float
    rate: float
    share: float
    per_line: float
    lag: float
    worst_lag: float
    lost: int
    silent: int
    memory: int
    threads: int


class Piece(NamedTuple):
    """What has arrived at one time (epoch s)."""

    time: float
    data: bytes


class Arrival(NamedTuple):
    """A line: when it was printed and when it arrived (epoch s)."""

    host: bytes
    number: int
    printed: float
    arrived: float


def follow(
    words: Sequence[str], env: Mapping[str, str], folder: Path, hosts: int, seconds: float, limit: float
) -> Followed:
    """Follow for so many seconds once all hosts have printed, for which there are ``limit`` seconds. Raise Failed."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb", buffering=0) as source, os.fdopen(theirs, "wb") as sink:
        began = time.time()
        with Child(words, env, folder, sink.fileno()) as child:
            sink.close()
            reader = _Reader(source.fileno(), hosts)
            ended = reader.read(began + limit, until_all=True)
            since, cpu = time.time(), child.cpu()
            ended = ended or reader.read(since + seconds)
            until, used = time.time(), child.cpu() - cpu
            if ended:
                child.wait(_END_S)
                raise Failed(f"exit {child.status}: {reader.text()[-300:]}")
            os.kill(child.process.pid, signal.SIGINT)
            reader.read(until + _END_S)
            usage = child.wait(_END_S)
    found = reader.arrivals()
    if not found:
        raise Failed(f"no line in {until - began:.0f} s: {reader.text()[-300:]}")
    within = [one for one in found if since <= one.arrived <= until]
    lags = sorted(one.arrived - one.printed for one in within) or [0.0]
    return Followed(
        first=min(one.arrived for one in found) - began,
        all_hosts=since - began,
        rate=len(within) / (until - since),
        share=used / (until - since),
        per_line=used / max(1, len(within)),
        lag=lags[len(lags) // 2],
        worst_lag=lags[len(lags) * 99 // 100],
        lost=lost(found),
        silent=hosts - len({one.host for one in found}),
        memory=usage.memory,
        threads=usage.threads,
    )


def lost(arrivals: Sequence[Arrival]) -> int:
    """Return how many lines are missing before the last one of each host. Each host's first line is number 0."""
    numbers: dict[bytes, set[int]] = {}
    for one in arrivals:
        numbers.setdefault(one.host, set()).add(one.number)
    return sum(max(found) + 1 - len(found) for found in numbers.values())


def arrivals(pieces: Sequence[Piece]) -> list[Arrival]:
    """Return the lines of hosts. A line arrives with its end."""
    found, rest = [], b""
    for piece in pieces:
        *lines, rest = (rest + piece.data).split(b"\n")
        for match in filter(None, map(PATTERN.search, lines)):
            found.append(Arrival(match[2], int(match[1]), float(match[3]), piece.time))
    return found


class _Reader:
    """Reads what a command prints. It only keeps it, so that it takes little of the processor from the command."""

    def __init__(self, source: int, hosts: int) -> None:
        self._source, self._hosts = source, hosts
        self._pieces: list[Piece] = []
        self._seen: set[bytes] = set()

    def read(self, until: float, *, until_all: bool = False) -> bool:
        """Read to a time (epoch s) or, with ``until_all``, until all hosts have printed. Return whether the output has
        ended."""
        while (left := until - time.time()) > 0:
            if select.select([self._source], [], [], left)[0]:
                data = os.read(self._source, 1 << 20)
                if not data:
                    return True
                self._pieces.append(Piece(time.time(), data))
                if until_all:
                    self._seen.update(match[2] for match in PATTERN.finditer(data))
                    if len(self._seen) >= self._hosts:
                        break
        return False

    def arrivals(self) -> list[Arrival]:
        return arrivals(self._pieces)

    def text(self) -> str:
        return b"".join(piece.data for piece in self._pieces).decode(errors="replace")
