"""How fast one task trains, from what tfctl_runtime has recorded or from the lines that the task has printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tfctl.node.progress import FORMATS, ProgressFormat, values


@dataclass(frozen=True)
class Pace:
    """What is known about a task's training. Unknown values are None.

    ``seconds``: how long it has trained. ``examples_per_second`` and ``steps_per_second`` leave out the first step,
    which includes the compilation, and the evaluations between steps. ``first_step``: its duration in seconds.
    ``input_wait``: the part of the time of the other steps in which they waited for their batches, from 0 to 1.
    ``total``: the examples per second of the job, if the task says so. ``leader_only``: it prints for all tasks.
    """

    source: Literal["timings", "log"]
    steps: int | None = None
    examples: int | None = None
    seconds: float | None = None
    examples_per_second: float | None = None
    steps_per_second: float | None = None
    first_step: float | None = None
    input_wait: float | None = None
    total: float | None = None
    loss: float | None = None
    leader_only: bool = False


def of_timings(text: str) -> Pace | None:
    """Return the pace that the last valid line of a timings file shows (tfctl_runtime), or None if there is none.

    Anything may be in the file: the jobs' user writes it.
    """
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
            steps, seconds = int(found["steps"]), _number(found["seconds"])
            first, first_steps = _number(found["first_step"]), int(found["first_steps"])
            examples, wait = found["examples"], _number(found["input_wait"])
            evaluation = _number(found.get("evaluation")) or 0.0  # older tfctl_runtimes did not measure it
            if steps < 1 or seconds is None or not 0 <= first_steps <= steps:
                continue
            count = None if examples is None else int(examples)
            return _pace(steps, count, seconds, first, first_steps, wait, evaluation)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
    return None


def of_lines(lines: Sequence[str], progress: ProgressFormat | None) -> Pace | None:
    """Return the pace that a task has printed. Without a format, it is the only known one that the lines have."""
    known = [progress] if progress else list(FORMATS.values())
    read = [(each, _of_training(each, lines)) for each in known]
    matching = [(each, matches) for each, matches in read if matches]
    if len(matching) != 1:
        return None
    [(kind, matches)] = matching
    return _printed(kind, [values(match) for match in matches])


def _pace(
    steps: int,
    examples: int | None,
    seconds: float,
    first: float | None,
    first_steps: int,
    wait: float | None,
    evaluation: float,
) -> Pace:
    pace = Pace("timings", steps, examples, seconds, first_step=first)
    # Without a first step, as under parameter_server, the rates include the compilation.
    rest, left = (seconds - first, steps - first_steps) if first is not None else (seconds, steps)
    rest -= evaluation
    if rest <= 0 or left < 1:
        return pace
    return replace(
        pace,
        steps_per_second=left / rest,
        examples_per_second=None if examples is None else examples / steps * left / rest,
        input_wait=None if wait is None else min(1.0, wait / rest),
    )


def _of_training(kind: ProgressFormat, lines: Sequence[str]) -> list[re.Match[str]]:
    """Return the matches of the lines that show progress of the training.

    Keras prints the same lines at the end of `evaluate` and `predict`. Only before those of `fit`, it prints which
    epoch begins. It does not do so if there is one epoch: then take the lines that have as many steps as the first one.
    """
    found: list[re.Match[str]] = []
    of_epochs: list[re.Match[str]] = []
    begun = announced = False
    for line in lines:
        if kind.epoch_line and re.search(kind.epoch_line, line):
            begun = announced = True
        elif match := kind.expression.search(line):
            found.append(match)
            if begun:
                of_epochs.append(match)
            begun = False
    if not kind.epoch_line:
        return found
    return of_epochs if announced else [match for match in found if match["step"] == found[0]["step"]]


def _printed(kind: ProgressFormat, read: Sequence[Mapping[str, float]]) -> Pace:
    def known(name: str) -> list[float]:
        return [value[name] for value in read if name in value]

    steps, examples = _added(known("step")), _added(known("examples"))
    rates = _after_the_first(known("examples_per_second") or known("rate"))
    totals = _after_the_first(known("total_examples_per_second"))
    times = _after_the_first([time for time in known("step_time") if time])
    losses = known("loss")
    return Pace(
        "log",
        steps=None if steps is None else int(steps),
        examples=None if examples is None else int(examples),
        examples_per_second=(rates[-1] if kind.mean else _mean(rates)) if rates else None,
        steps_per_second=1 / _mean(times) if times else None,
        total=_mean(totals) if totals else None,
        loss=losses[-1] if losses else None,
        leader_only=kind.leader_only,
    )


def _added(counts: Iterable[float]) -> float | None:
    """Return the whole of a count that begins again with each epoch; None if there is none."""
    total, last = None, 0.0
    for count in counts:
        total = (total or 0.0) + (count - last if count > last else count)
        last = count
    return total


def _after_the_first(values: Sequence[float]) -> Sequence[float]:
    """Leave out the first value if there are others: it includes the compilation."""
    return values[1:] or values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _number(value: object) -> float | None:
    """Return a finite number that is not negative, or None. Raise TypeError or ValueError for anything but null."""
    if value is None:
        return None
    number = float(value)  # type: ignore[arg-type]
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(value)
    return number
