"""Read the progress of a task from the lines that it prints: the formats that tfctl knows, and patterns of users.

A pattern is a regular expression of Python's. The number of each named group is that of the name; these have a meaning:

step                       steps so far; where it does not increase, another epoch has begun
total                      how many steps the whole job makes; without a step, how many epochs; with ``epochs``, how
                           many steps an epoch has
epoch                      the number of the epoch, from 1
epochs                     how many epochs there are; ``step`` then counts those of an epoch
examples                   examples so far
examples_per_second, rate  of the task that prints the line
total_examples_per_second  of the whole job
step_time                  a duration with its unit, such as 13ms; without one, in seconds
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable, NamedTuple, Optional

from . import wire
from .regex import compiled

#: The groups that tell how far or how fast a task is. A pattern needs at least one of them.
SPEEDS = (
    "step", "epoch", "examples", "examples_per_second", "rate", "total_examples_per_second", "step_time",
)  # fmt: skip
#: The groups that have a meaning. Any other is a figure, as the loss is.
GROUPS = (*SPEEDS, "total", "epochs")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "": 1.0}
_LARGEST = 1e15
#: Searches a line, perhaps with a time limit.
Search = Callable[["re.Pattern[str]", str], Optional["re.Match[str]"]]
#: How many figures of a task are kept.
_FIGURES = 20
#: For how long (s) a sample is kept to compute a pace from, and over what time paces and the time left are computed.
_KEPT_S, _PACE_S, _LEFT_S = 3600.0, 60.0, 600.0


class ProgressFormat(NamedTuple):
    """How progress is printed.

    ``mean``: the rate in a line is the mean since the beginning, so the last one counts. Otherwise it is that of the
    steps since the line before. ``leader_only``: one task prints for all. ``epoch_line``: matches the line that begins
    an epoch of the training, if something else prints lines of this format too. ``live``: a pattern that also matches
    what is printed within an epoch. ``figures``: matches the name and the value of each figure behind it.
    """

    name: str
    pattern: str
    mean: bool = False
    leader_only: bool = False
    epoch_line: str = ""
    live: str = ""
    figures: str = ""

    @property
    def expression(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    @property
    def lines(self) -> re.Pattern[str]:
        """Match the lines that a host sends: those of the format, and those that begin an epoch."""
        epoch_line = re.sub(r"\(\?P<\w+>", "(?:", self.epoch_line)
        return compiled(f"{self.pattern}|{epoch_line}" if epoch_line else self.pattern)


#: The formats that need no pattern, recognised by their lines.
#: Sources: benchmark_cnn.py of tf_cnn_benchmarks; the files *_synthetic_benchmark.py in Horovod's examples; Progbar of
#: Keras 2 and 3 (what ends an epoch, also with verbose=2; `live`: its bar, too).
FORMATS: Mapping[str, ProgressFormat] = {
    found.name: found
    for found in (
        ProgressFormat(
            "tf_cnn_benchmarks",
            rf"^(?P<step>[0-9]+)\s+images/sec: (?P<examples_per_second>{_NUMBER}) \+/- {_NUMBER} "
            rf"\(jitter = {_NUMBER}\)(?:\s+(?P<loss>{_NUMBER}))?",
            mean=True,
        ),
        ProgressFormat(
            "horovod",
            rf"^(?:Iter #[0-9]+: (?P<examples_per_second>{_NUMBER}) img/sec per \w+$"
            rf"|Total img/sec on [0-9]+ \w+\(s\): (?P<total_examples_per_second>{_NUMBER}) )",
            leader_only=True,
        ),
        ProgressFormat(
            "keras",
            # By default, Keras rewrites one line, and Keras 3 colors it.
            r"(?:^|\r)\s*(?:\x1b\[1m)?(?P<step>[0-9]+)/(?P=step)(?:\x1b\[0m)? "
            r"(?:\[=+\] - |(?:\x1b\[32m)?━+(?:\x1b\[[0-9]+m)* (?:\x1b\[1m)?|- )[0-9]+m?s\b"
            rf"(?=(?:.* (?P<step_time>{_NUMBER}[mun]?s)/step)?)(?=(?:.*\bloss: (?P<loss>{_NUMBER}))?)",
            # Without it, the line is one of `evaluate` or `predict`.
            epoch_line=r"(?:^|\r)Epoch (?P<epoch>[0-9]+)/(?P<epochs>[0-9]+)\s*$",
            live=r"^\s*(?:\x1b\[1m)?(?P<step>[0-9]+)/(?P<total>[0-9]+)(?:\x1b\[0m)? "
            rf"(?:\[[=>.]+\] - |(?:\x1b\[[0-9]+m)?━|- [0-9]+m?s\b)(?=(?:.* (?P<step_time>{_NUMBER}[mun]?s)/step)?)",
            figures=rf"\b([A-Za-z]\w*): (-?{_NUMBER})",
        ),
    )
}


def progress(text: str) -> str:
    """Return ``progress`` of a job file if it is the name of a format or a pattern. Raise ValueError."""
    if text in FORMATS:
        return text
    try:
        groups = compiled(text).groupindex
    except ValueError as error:
        raise ValueError(f"{text!r} is neither {_names()} nor a regular expression: {error}") from None
    if not any(name in groups for name in SPEEDS):
        raise ValueError(
            f"{text!r} is none of the formats ({_names()}), and has no named group for the progress of the task, such "
            f"as (?P<step>[0-9]+); these groups are {', '.join(SPEEDS)}"
        )
    return text


def format_of(text: str) -> ProgressFormat:
    """Return the format that ``progress`` of a job file means."""
    return FORMATS.get(text) or ProgressFormat("progress", text, leader_only="total_examples_per_second" in text)


def any_format() -> re.Pattern[str]:
    """Return a pattern that matches the lines of all formats, and perhaps others. It has no groups."""
    without = (re.sub(r"\(\?P=\w+\)", "[0-9]+", each.lines.pattern) for each in FORMATS.values())
    return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in without))


def values(match: re.Match[str]) -> dict[str, float]:
    """Return the numbers of the groups that have matched. The program that prints them may print anything."""
    return _numbers((name, text) for name, text in match.groupdict().items() if text)


def _numbers(texts: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return what are numbers: those with a meaning must not be negative. Durations are in seconds."""
    found = {}
    for name, text in texts:
        parts = re.fullmatch(r"\s*([0-9.eE+-]{1,40})\s*([mun]?s)?\s*", text)
        with suppress(ValueError):
            value = float(parts[1]) * _UNITS[parts[2] or ""] if parts else math.nan
            if -_LARGEST < value < _LARGEST and (value >= 0 or name not in GROUPS):
                found[name] = value
    return found


class _Point(NamedTuple):
    """How far a task was at a time (s). ``done``: the part of the whole, from 0 to 1."""

    time: float
    step: float | None
    examples: float | None
    done: float | None


class Progress:
    """The progress of one task. ``total``: how many steps, or epochs, the job file says that there are."""

    def __init__(self, kinds: Sequence[ProgressFormat], total: int | None = None) -> None:
        self._kinds, self._total = kinds, total
        self._read: dict[str, float] = {}
        #: The steps of the epochs that are over, if lines count those of an epoch and do not say how many there are.
        self._before = 0.0
        #: How many steps the bar of this epoch has. One of another length is that of `evaluate`.
        self._bar: float | None = None
        self._figures: dict[str, float] = {}
        self._points: deque[_Point] = deque()
        self._timed: dict[str, float] = {}

    def read(self, line: str, search: Search) -> None:
        """Read a line that the task has printed. ``search`` may raise anything, which ends this."""
        # A progress bar rewrites its line: its last state counts.
        for text in reversed(re.split("[\r\n\x08]+", line)):
            for kind in self._kinds:
                for pattern in filter(None, (kind.epoch_line, kind.live or kind.pattern)):
                    match = search(compiled(pattern), text)
                    if match:
                        self._kinds = (kind,)
                        figures = re.findall(kind.figures, text[match.end() :]) if kind.figures else ()
                        self._take(kind, values(match), _numbers(figures))
                        return

    def _take(self, kind: ProgressFormat, found: dict[str, float], figures: Mapping[str, float]) -> None:
        if "rate" in found:
            found["examples_per_second"] = found.pop("rate")
        if kind.epoch_line and "epochs" in found:
            self._bar = None
            self._read.pop("step", None)
        elif kind.epoch_line:
            self._bar = self._bar or found.get("total")
            if found.get("total") != self._bar:
                return
        elif found.get("step", math.inf) <= self._read.get("step", -1.0):
            self._before += self._read["step"]
        for name, value in (*found.items(), *figures.items()):
            if name in GROUPS:
                self._read[name] = value
            elif name in self._figures or len(self._figures) < _FIGURES:
                self._figures[name] = value

    def take_timings(self, line: Mapping[str, Any]) -> None:
        """Take the last line that tfctl_runtime has recorded. Any process of the jobs' user may have written it."""
        numbers = ("time", "steps", "examples", "total", "epoch")
        self._timed = {
            name: float(line[name])
            for name in numbers
            if isinstance(line.get(name), (int, float)) and 0 <= line[name] < _LARGEST
        }

    def sample(self, now: float) -> dict[str, Any]:
        """Return the fields of a wire.TaskSample that say how far the task is, at ``now`` (epoch s)."""
        step, total, epoch, done = self._position()
        timed = self._timed
        examples = timed.get("examples", self._read.get("examples"))
        at = min(now, timed["time"]) if "time" in timed and "steps" in timed else now
        self._note(_Point(at, step, examples, done))
        step_time = self._read.get("step_time")
        pace = self._per_second("step", _PACE_S)
        if pace is None and step_time:
            pace = 1 / step_time
        rate = self._read.get("examples_per_second")
        return {
            "step": None if step is None else int(step),
            "total": None if total is None else int(total),
            "epoch": None if epoch is None else int(epoch),
            "percent": None if done is None else round(100 * done, 1),
            "left": self._left(done),
            "rate": _short(rate if rate is not None and "examples" not in timed else self._per_second("examples")),
            "job_rate": _short(self._read.get("total_examples_per_second")),
            "pace": _short(pace),
            "figures": {name: wire.Figure(f"{value:.6g}") for name, value in self._figures.items()} or None,
        }

    def _position(self) -> tuple[float | None, float | None, float | None, float | None]:
        """Return the step, the number of steps, the epoch, and which part of the whole is done."""
        read, timed = self._read, self._timed
        step, total, epoch = read.get("step"), read.get("total"), read.get("epoch")
        epochs = read.get("epochs")
        if "steps" in timed:
            total = self._total or timed.get("total")
            return timed["steps"], total, timed.get("epoch", epoch), _part(timed["steps"], total)
        if epochs and epoch:
            if total is None:
                return None, None, epoch, _part(epoch - 1, epochs)
            step = (epoch - 1) * total + (step or 0.0)
            return step, epochs * total, epoch, _part(step, epochs * total)
        if step is not None and self._total:
            step, total = step + self._before, float(self._total)
        if step is None:
            return None, None, epoch, _part(epoch, self._total or total)
        return step, total, epoch, _part(step, total)

    def _note(self, point: _Point) -> None:
        last = self._points[-1] if self._points else None
        if last is not None and (_less(point.step, last.step) or _less(point.done, last.done)):
            self._points.clear()  # the task was started again
        elif last is not None and point[1:] == last[1:] and len(self._points) > 1 and self._points[-2][1:] == last[1:]:
            self._points.pop()  # of a standstill, its beginning and its end are enough
        self._points.append(point)
        while self._points[0].time < point.time - _KEPT_S:
            self._points.popleft()

    def _per_second(self, name: str, within: float = _PACE_S) -> float | None:
        """Return how much a value has grown per second: over this time, or since it last grew before."""
        points = [point for point in self._points if getattr(point, name) is not None]
        if len(points) < 2:
            return None
        last = points[-1]
        value = getattr(last, name)
        first = next(point for point in points if point.time >= last.time - within)
        if getattr(first, name) == value:
            # Nothing has been reported for that long: as with lines that are rarer.
            older = [point for point in points if getattr(point, name) < value]
            if not older:
                return None
            first = older[-1]
        passed = last.time - first.time
        return (value - getattr(first, name)) / passed if passed > 0 else None

    def _left(self, done: float | None) -> float | None:
        pace = self._per_second("done", _LEFT_S)
        return None if done is None or not pace else round((1 - done) / pace, 1)


def _part(done: float | None, whole: float | None) -> float | None:
    return None if done is None or not whole else min(1.0, done / whole)


def _less(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value < other


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _names() -> str:
    return ", ".join(FORMATS)
