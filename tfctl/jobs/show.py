"""Ask the hosts about their jobs. One exec per host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tfctl.errors import NotFound, TfctlError, UsageError, together
from tfctl.jobs import clocks, known, state
from tfctl.jobs.state import JobState
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import open_session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

T = TypeVar("T")


def ask(fleet: Fleet, request: wire.Request, answer: type[T]) -> tuple[dict[str, T | None], list[TfctlError]]:
    """Return each host's answer to ``request``, or None, and the errors of those without one.

    Raise those errors as one if no host answers.
    """

    def ask_one(connection: Connection) -> T:
        asked = time.time()
        with open_session(connection, request) as session:
            found = session.expect(answer, wire.SILENCE_S)
        if isinstance(found, wire.Shown):
            fleet.clock_offsets[connection.host.name] = clocks.offset(asked, found.time, time.time())
        return found

    outcomes = fleet.map(ask_one)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) == len(outcomes):
        raise together(errors)
    return {outcome.host.name: outcome.value for outcome in outcomes}, errors


def jobs(fleet: Fleet, job: str | None = None, lines: bool = False) -> tuple[list[JobState], list[TfctlError]]:
    """Return every job, or that one, the last started first, and the errors of silent hosts. Raises as `ask`."""
    answers, errors = ask(fleet, wire.ShowRequest(job, lines=lines), wire.Shown)
    found = state.jobs({host: answer and answer.jobs for host, answer in answers.items()})
    roles = {each.job: [task.role for task in each.tasks] for each in found}
    known.note(roles, [host.name for host in fleet.hosts], everything=job is None and not errors)
    return found, errors


def one(fleet: Fleet, job: str | None, changes: bool = False, lines: bool = False) -> tuple[JobState, list[TfctlError]]:
    """Return the named job. Without a name, return the only one that has not ended, else the one started last.

    With ``changes``, the command alters the job, so the name may be omitted only if exactly one job runs or, if none
    runs, exactly one ended job still has live tasks. ``lines``: also ask for the ages of tasks' last lines. Raise
    NotFound, or UsageError if a name is needed.
    """
    found, errors = jobs(fleet, job, lines)
    if job is not None:
        if not found:
            raise state.unknown(job)
        return found[0], errors
    return default(found, changes), errors


def named(fleet: Fleet, word: str, changes: bool = False, lines: bool = False) -> tuple[JobState, list[TfctlError]]:
    """Return the job that ``word`` means: the one chosen without a name if it has a role of that name, else the job
    of that name. Raise as `one`."""
    found, errors = jobs(fleet, None, lines)
    chosen = None
    with suppress(NotFound, UsageError):
        chosen = default(found, changes)
    if chosen and any(task.role == word for task in chosen.tasks):
        return chosen, errors
    for each in found:
        if each.job == word:
            return each, errors
    unknown = state.unknown(word)
    if chosen is None:
        raise unknown
    roles = ", ".join(dict.fromkeys(task.role for task in chosen.tasks))
    raise NotFound(f"{unknown.message}, and {chosen.job} has no role {word}", f"it has {roles}; {unknown.remedy}")


def default(found: Sequence[JobState], changes: bool = False) -> JobState:
    """Return the job that is meant if none is named. Raise as `one`. ``found``: all jobs, the last started first."""
    going = [each for each in found if not each.ended]
    if changes and not going:
        going = [each for each in found if each.alive]
    if len(going) == 1:
        return going[0]
    if changes:
        if not going:
            raise UsageError("no job runs", "name the one that is meant: tfctl list shows all")
        raise UsageError(f"several jobs run: {', '.join(each.job for each in going)}", "name the one that is meant")
    if not found:
        raise NotFound("no host knows a job", "start one: tfctl start job.yaml")
    return found[0]
