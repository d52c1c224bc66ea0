"""Read the progress of a task from the lines that it prints: the formats that tfctl knows, and patterns of users.

A pattern is a regular expression of Python's whose named groups say what the numbers are:

step                       steps so far; where it does not increase, another epoch has begun
examples                   examples so far
examples_per_second        of the task that prints the line
total_examples_per_second  of the whole job
step_time                  a duration with its unit, such as 13ms; without one, in seconds
loss
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfctl.model.regex import compiled

GROUPS = ("step", "examples", "examples_per_second", "total_examples_per_second", "step_time", "loss")
#: The groups that tell how fast a task is. A pattern needs at least one of them.
_SPEEDS = GROUPS[:-1]
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


@dataclass(frozen=True)
class ProgressFormat:
    """How progress is printed.

    ``mean``: the rate in a line is the mean since the beginning, so the last one counts. Otherwise it is that of the
    steps since the line before. ``leader_only``: one task prints for all. ``epoch``: matches the line that begins an
    epoch of the training, if something else prints lines of this format too.
    """

    name: str
    pattern: str
    mean: bool = False
    leader_only: bool = False
    epoch: str = ""

    @property
    def expression(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    @property
    def lines(self) -> re.Pattern[str]:
        """Match the lines that a host sends: those of the format, and those that begin an epoch."""
        return compiled(f"{self.pattern}|{self.epoch}" if self.epoch else self.pattern)


#: The formats that need no pattern, recognised by their lines.
#: Sources: benchmark_cnn.py of tf_cnn_benchmarks; the files *_synthetic_benchmark.py in Horovod's examples; Progbar of
#: Keras 2 and 3 (what ends an epoch, also with verbose=2).
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
            epoch=r"(?:^|\r)Epoch [0-9]+/[0-9]+\s*$",
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
    if unknown := [name for name in groups if name not in GROUPS]:
        raise ValueError(f"the group {unknown[0]} is not known; the groups are {', '.join(GROUPS)}")
    if not any(name in groups for name in _SPEEDS):
        raise ValueError(
            f"{text!r} is none of the formats ({_names()}), and has no named group for the speed of the task, such as "
            "(?P<examples_per_second>[0-9.]+)"
        )
    return text


def format_of(text: str) -> ProgressFormat:
    """Return the format that ``progress`` of a job file means."""
    return FORMATS.get(text) or ProgressFormat("progress", text, leader_only="total_examples_per_second" in text)


def any_format() -> re.Pattern[str]:
    """Return a pattern that matches the lines of all formats, and perhaps others. It has no groups."""
    without = (re.sub(r"\(\?P=\w+\)", "[0-9]+", each.lines.pattern) for each in FORMATS.values())
    return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern in without))


def _names() -> str:
    return ", ".join(FORMATS)
