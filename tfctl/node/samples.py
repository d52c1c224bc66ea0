"""The samples that the guard keeps of an attempt: every 10 s for an hour, every minute for a day, every ten minutes.

A file for each of these periods, with a sample a line: half a megabyte for each task and week, with a GPU and two
figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from . import jobstore, names, wire
from .system import System

#: Most bytes read of a file: the samples of a host with very many tasks.
_LARGEST = 1 << 26
#: Most bytes read to find the last sample.
_TAIL = 1 << 16


class _Period(NamedTuple):
    """``seconds``: between two samples. ``kept``: how many; all, if None. ``parts``: of how many of the period before
    one is made."""

    name: str
    seconds: float
    kept: int | None
    parts: int


PERIODS = (_Period("10s", 10, 360, 1), _Period("1m", 60, 1440, 6), _Period("10m", 600, None, 10))
#: A file is shortened when it has this part more lines than are kept.
_SPARE = 0.125
#: The fields of a task that are counts or states: of several samples, the last one counts, not the mean.
_LAST = {"role", "index", "silent", "step", "total", "epoch", "percent", "left", "figures"}


class Store:
    """Keeps the samples of one attempt in a directory, which it makes. It goes on where another one has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._lines = {period.name: len(_lines(folder / f"{period.name}.jsonl")) for period in PERIODS}
        self._waiting: dict[str, list[wire.Sample]] = {period.name: [] for period in PERIODS[1:]}

    def add(self, sample: wire.Sample) -> None:
        """Keep a sample. Raises OSError."""
        self._append(PERIODS[0], sample)
        for period in PERIODS[1:]:
            waiting = self._waiting[period.name]
            if waiting and int(waiting[0].time // period.seconds) != int(sample.time // period.seconds):
                self._append(period, mean(waiting))
                waiting.clear()
            waiting.append(sample)

    def _append(self, period: _Period, sample: wire.Sample) -> None:
        path = self._folder / f"{period.name}.jsonl"
        with path.open("a") as file:
            file.write(json.dumps(wire.encode(sample), separators=(",", ":")) + "\n")
        self._lines[period.name] += 1
        if period.kept and self._lines[period.name] > period.kept * (1 + _SPARE):
            lines = _lines(path)[-period.kept :]
            jobstore.write(path, b"".join(line + b"\n" for line in lines))
            self._lines[period.name] = len(lines)


def read(system: System, job: str, attempt: int, since: float = 0.0) -> list[wire.Sample]:
    """Return the samples of an attempt after a time (epoch s), oldest first: the finest of each time."""
    folder = system.at(names.samples_dir(job, attempt))
    found: list[wire.Sample] = []
    until = math.inf
    for period in PERIODS:
        lines = _lines(folder / f"{period.name}.jsonl")
        found[:0] = _decoded(line for line in lines if since < _time(line) < until)
        until = min(until, _time(lines[0])) if lines else until
        if until <= since:
            break
    return found


def last(system: System, job: str, attempt: int) -> wire.Sample | None:
    """Return the last sample of an attempt, or None if there is none."""
    path = system.at(names.samples_dir(job, attempt)) / f"{PERIODS[0].name}.jsonl"
    return _last(path, stamp(system, job, attempt))


@lru_cache(maxsize=64)
def _last(path: Path, _stamp: int) -> wire.Sample | None:
    for room in (_TAIL, _LARGEST):
        lines = _lines(path, room)
        found = list(_decoded(lines[-1:]))
        if found:
            return found[0]
    return None


def stamp(system: System, job: str, attempt: int) -> int:
    """Return a number that changes when a sample is added."""
    try:
        return (system.at(names.samples_dir(job, attempt)) / f"{PERIODS[0].name}.jsonl").stat().st_mtime_ns
    except OSError:
        return 0


def mean(samples: Sequence[wire.Sample]) -> wire.Sample:
    """Return one sample for the time of several."""
    tasks: dict[wire.TaskName, list[wire.TaskSample]] = {}
    for sample in samples:
        for task in sample.tasks:
            tasks.setdefault(task.name, []).append(task)
    return wire.Sample(
        samples[-1].time,
        _mean(sample.received for sample in samples),
        _mean(sample.sent for sample in samples),
        tuple(_mean_task(found) for found in tasks.values()),
    )


def _mean_task(found: Sequence[wire.TaskSample]) -> wire.TaskSample:
    means = {
        name: _mean(getattr(one, name) for one in found)
        for name in wire.TaskSample._fields
        if name not in _LAST and name != "gpus"
    }
    gpus = [one.gpus for one in found if one.gpus is not None]
    together = tuple(wire.GpuSample(*(_mean(values) for values in zip(*readings))) for readings in zip(*gpus))
    return found[-1]._replace(**means, gpus=together or None)


def _mean(values: Iterable[Any]) -> Any:
    """Return the mean of the values that are known: an integer if they are, else with four digits."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    total = sum(known) / len(known)
    return round(total) if all(isinstance(value, int) for value in known) else float(f"{total:.4g}")


def _lines(path: Path, room: int = _LARGEST) -> list[bytes]:
    """Return the whole lines in a file of the guard's, or in its end: one that is being written is left out."""
    try:
        data = jobstore.read_untrusted(path, room)
    except OSError:
        return []
    if len(data) == room:
        data = data.partition(b"\n")[2]
    return data[: data.rfind(b"\n") + 1].splitlines()


def _time(line: bytes) -> float:
    """Return the time of a sample, the first value of its line."""
    try:
        return float(line[1:].partition(b",")[0])
    except ValueError:
        return 0.0


def _decoded(lines: Iterable[bytes]) -> Iterator[wire.Sample]:
    for line in lines:
        with suppress(wire.Malformed, ValueError):
            yield wire.decode(wire.Sample, json.loads(line))
