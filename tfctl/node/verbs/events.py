"""The verb `events`: list what happened to a job on this host, and who did it.

User actions are recorded by start, stop and restart. Ends are read from the end lines. The begin of later
invocations of a task's unit is read from the journal, where systemd's own message has the invocation ID, as the end
line does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from .. import fields, guards, jobstore, names, statuses, wire
from ..session import NodeSession, RequestRefused
from ..system import System
from ..system import run as run_to_end
from ..units import InstalledUnit, installed_units
from ..wire import Event, TaskName

#: sd-messages(3), SD_MESSAGE_UNIT_STARTED.
_UNIT_STARTED = "39f53479d3a045ac8e11786248231fbf"
_FIELDS = "INVOCATION_ID"


def run(system: System, session: NodeSession, request: wire.EventsRequest) -> None:
    """Send one answer, empty for a job that is not known here. Raises RequestRefused."""
    job = fields.job_name(request.job)
    found = sorted(_events(system, job), key=lambda event: event.time)
    whole, brief = statuses.brief(system, statuses.of_jobs(system, [job]), request.brief)
    session.send(wire.Events(whole, tuple(found), time.time(), brief))


def _events(system: System, job: str) -> Iterator[Event]:
    units = installed_units(system, job)
    begins: dict[str, float] | None = None
    for attempt in jobstore.attempts(system, job):
        began = jobstore.began(system, job, attempt)
        yield from _actions(system, job, attempt, min(began.values(), default=None))
        for task in jobstore.tasks(system, job, attempt):
            key = names.task_key(*task)
            if key in began:
                yield _event(began[key], attempt, "begin", task)
            ends = jobstore.ends(system, job, attempt, *task)
            for end in ends:
                if end.time is not None:
                    event = _event(end.time, attempt, "end", task)
                    yield event._replace(exit_code=end.exit_code, signal=end.signal, oom=end.oom or None)
            invocations = [*(end.invocation for end in ends), *_current_invocations(system, job, attempt, task, units)]
            later = list(dict.fromkeys(invocations))[1:]
            if later and begins is None:
                begins = _begins(system, job)
            for invocation in later:
                if begins and invocation in begins:
                    yield _event(begins[invocation], attempt, "begin", task)


def _actions(system: System, job: str, attempt: int, first: float | None) -> Iterator[Event]:
    """Yield the user actions, one per job or per task affected. A start is noted late: use the time ``first``."""
    for action in [*jobstore.actions(system, job, attempt), *guards.actions(system, job, attempt)]:
        when = first if action.deed == "start" and first is not None else action.time
        for task in action.tasks or [None]:
            yield _event(when, attempt, action.deed, task)._replace(by=action.by, reason=action.reason)


def _current_invocations(
    system: System, job: str, attempt: int, task: TaskName, units: list[InstalledUnit]
) -> Iterator[str]:
    record = jobstore.record(system, job, attempt)
    for unit in units:
        if record and unit.live and (unit.run, unit.task) == (record.run, task):
            yield unit.properties.get("InvocationID", "")


def _event(when: float, attempt: int, event: str, task: TaskName | None) -> Event:
    role, index = task or (None, None)
    return Event(round(when, 3), attempt, event, role, index, by=None, exit_code=None, signal=None)


def _begins(system: System, job: str) -> dict[str, float]:
    """Return when each invocation began, as far back as the journal goes; empty if it cannot be read."""
    attempts = jobstore.attempts(system, job)
    tasks = {task for attempt in attempts for task in jobstore.tasks(system, job, attempt)}
    units = (f"UNIT={names.unit(job, *task)}" for task in sorted(tasks))
    words = ["-q", "--no-pager", "-o", "json", f"--output-fields={_FIELDS}", "_PID=1", f"MESSAGE_ID={_UNIT_STARTED}"]
    found = {}
    with contextlib.suppress(RequestRefused):
        for line in run_to_end([*system.journalctl, *words, *units], 20.0).output.splitlines():
            with contextlib.suppress(wire.Malformed, KeyError, ValueError):
                entry = wire.parse(line.encode())
                found[str(entry["INVOCATION_ID"])] = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
    return found
