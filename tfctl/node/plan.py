"""Validation of client input: the fields of requests and the PLAN of tfctl.node.wire."""

from __future__ import annotations

import posixpath
import re
from typing import Any, NamedTuple

from . import names, unitfile
from .talk import Refused
from .world import PROVISION

_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_ON_PATH = re.compile(rf'^PATH="{names.STACKS}/({names.STACK.pattern})/bin', re.MULTILINE)
#: Paths that can be quoted in a unit without escapes.
_PATH = re.compile(r"/[A-Za-z0-9._/@:,+~ -]{1,200}")


class Planned(NamedTuple):
    """One task of the plan. ``task`` is (role, index); ``program`` is the first word of its command."""

    task: tuple[str, int]
    ports: list[int]
    gpus: list[str]
    program: str
    unit: str
    env: str

    @property
    def name(self) -> str:
        return names.task(*self.task)

    @property
    def stack(self) -> str:
        """The stack that comes first on its PATH, or ``none``."""
        return stack_of(self.env)


class Plan(NamedTuple):
    """What this host has to create and start. ``code`` is a digest, or empty."""

    job: str
    attempt: int
    run: str
    record: dict[str, Any]
    code: str
    output: str
    stack: str
    tasks: list[Planned]

    @property
    def units(self) -> list[str]:
        return [names.unit(self.job, *one.task) for one in self.tasks]


def read(value: Any, job: str, code: str) -> Plan:
    """Parse a plan, which must be for the ``job`` and ``code`` of the start's request. Raises Refused."""
    fields = _object(value, "plan")
    plan = Plan(
        job=match(names.JOB, fields.get("job"), "a job's name"),
        attempt=number(fields.get("attempt"), "an attempt", 1, 10**6),
        run=match(names.RUN, fields.get("run"), "a run"),
        record=_object(fields.get("record"), "record"),
        code=match(names.DIGEST, fields.get("code"), "a digest") if fields.get("code") is not None else "",
        output=match(_PATH, fields.get("output"), "an output directory tfctl can use"),
        stack=match(names.STACK, fields.get("stack"), "a stack's name"),
        tasks=[_planned(one) for one in _list(fields.get("tasks"), "tasks")],
    )
    if (plan.job, plan.code) != (job, code):
        raise Refused(2, "the plan is not for the job and the code that the request named")
    if posixpath.normpath(plan.output) != plan.output:
        raise Refused(3, f"output {plan.output} is not a plain path", "write it without . and .. and double slashes")
    if len({one.task for one in plan.tasks}) != len(plan.tasks):
        raise Refused(2, "the plan has a task twice")
    _check_record(plan)
    for one in plan.tasks:
        _check_unit(plan, one)
    return plan


def stack_of(env: str) -> str:
    """Return the stack that comes first on the PATH of an environment file, or ``none``."""
    found = _ON_PATH.search(env)
    return found.group(1) if found else "none"


def tasks_wanted(value: Any) -> list[tuple[str, int]] | None:
    """Parse ``[[ROLE, INDEX]]``; None means all tasks. Raises Refused."""
    if value is None:
        return None
    found = []
    for pair in _list(value, "tasks"):
        role, index = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        found.append(_pair(role, index))
    return found


def match(pattern: re.Pattern[str], value: Any, what: str) -> str:
    """Return ``value`` if it is a string that matches the whole pattern. Raises Refused."""
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Refused(2, f"{value!r:.80} is not {what}")
    return value


def number(value: Any, what: str, least: int, most: int) -> int:
    """Return ``value`` if it is an integer within the bounds, inclusive. Raises Refused."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(2, f"{value!r:.80} is not {what}")
    return value


def attempt_wanted(value: Any) -> int | None:
    """Return an attempt's number, or None for the latest. Raises Refused."""
    return None if value is None else number(value, "an attempt", 1, 10**6)


def text_list(value: Any, what: str) -> list[str]:
    """Return ``value`` if it is a list of strings. Raises Refused."""
    found = _list(value, what)
    if not all(isinstance(one, str) and len(one) < 256 for one in found):
        raise Refused(2, f"{what} is not a list of texts")
    return found


def _planned(value: Any) -> Planned:
    fields = _object(value, "task")
    texts = {name: fields.get(name) for name in ("program", "unit", "env")}
    if not all(isinstance(text, str) and "\0" not in text for text in texts.values()):
        raise Refused(2, "program, unit and env of a task are texts")
    return Planned(
        _pair(fields.get("role"), fields.get("index")),
        [number(port, "a port", 1, 65535) for port in _list(fields.get("ports"), "ports")],
        [match(_GPU, gpu, "a GPU") for gpu in _list(fields.get("gpus"), "gpus")],
        *map(str, texts.values()),
    )


def _check_record(plan: Plan) -> None:
    """Check that the record is of this attempt and lists each task of the plan."""
    if any(plan.record.get(name) != value for name, value in zip(("job", "attempt", "run"), plan)):
        raise Refused(2, "the plan's record is of another attempt")
    known = [_object(one, "a task of the record") for one in _list(plan.record.get("tasks"), "the record's tasks")]
    pairs = {_pair(one.get("role"), one.get("index")) for one in known}
    if not pairs.issuperset(one.task for one in plan.tasks):
        raise Refused(2, "the plan has a task that its record lacks")


def _check_unit(plan: Plan, one: Planned) -> None:
    role, index = one.task
    try:
        unitfile.check(
            one.unit, job=plan.job, attempt=plan.attempt, run=plan.run, role=role, index=index,
            output=plan.output, ports=one.ports, gpus=one.gpus,
        )  # fmt: skip
    except unitfile.NotAllowed as error:
        raise Refused(8, f"the unit of {one.name} is not one that this host takes: {error}", PROVISION) from None


def _pair(role: Any, index: Any) -> tuple[str, int]:
    return match(names.ROLE, role, "a role"), number(index, "an index", 0, 10**6)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(2, f"{what} is not an object")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(2, f"{what} is not a list")
    return value
