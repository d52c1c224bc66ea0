"""Check the values of a client's fields. Their types have been checked already (tfctl.node.wire)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from . import names
from .exits import Exit
from .session import RequestRefused
from .wire import TaskName


def match(pattern: re.Pattern[str], value: str, what: str) -> str:
    """Return ``value`` if the whole of it matches the pattern. Raises RequestRefused."""
    if not pattern.fullmatch(value):
        raise RequestRefused(Exit.USAGE, f"{value!r:.80} is not {what}")
    return value


def number(value: int, what: str, least: int, most: int) -> int:
    """Return ``value`` if it is within the bounds, inclusive. Raises RequestRefused."""
    if not least <= value <= most:
        raise RequestRefused(Exit.USAGE, f"{value!r:.80} is not {what}")
    return value


def job_name(value: str) -> str:
    return match(names.JOB, value, "a job's name")


def attempt_number(value: int) -> int:
    return number(value, "an attempt", 1, 10**6)


def optional_attempt(value: int | None) -> int | None:
    return None if value is None else attempt_number(value)


def optional_run(value: str | None) -> str | None:
    return None if value is None else match(names.RUN, value, "a run")


def task_names(wanted: Iterable[TaskName]) -> list[TaskName]:
    return [task_name(task) for task in wanted]


def task_name(task: TaskName) -> TaskName:
    role, index = task
    return match(names.ROLE, role, "a role"), number(index, "an index", 0, 10**6)
