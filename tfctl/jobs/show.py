"""Ask the hosts about their jobs. One exec per host."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from tfctl.errors import NotFound, TfctlError, UsageError, together
from tfctl.jobs import clocks, completion_cache, past, state
from tfctl.jobs.past import PastJob
from tfctl.jobs.state import JobState
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import ask_node, window

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

T = TypeVar("T")

#: Asks a host about all of its jobs: for summaries of those that are over.
OVERVIEW = wire.ShowRequest(summaries=True, samples=True)
#: How many jobs to ask for at a time.
_AT_ONCE = 50


def ask(
    fleet: Fleet, request: wire.Request, answer: type[T], hosts: Sequence[Host] | None = None
) -> tuple[dict[str, T | None], list[TfctlError]]:
    """Return each host's answer to ``request``, or None, and the errors of those without one. ``hosts``: only these.

    Jobs have their records.

    Raise those errors as one if no host answers.
    """
    outcomes = fleet.map(lambda connection: ask_host(fleet, connection, request, answer), hosts)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) == len(outcomes):
        raise together(errors)
    return {outcome.host.name: outcome.value for outcome in outcomes}, errors


def ask_host(fleet: Fleet, connection: Connection, request: wire.Request, answer: type[T]) -> T:
    """Return the answer of one host, as `ask` does. Raise its error."""
    if isinstance(request, (wire.ShowRequest, wire.EventsRequest)):
        request = request._replace(brief=True)
    asked = time.time()
    received = ask_node(connection, request, answer, wire.SILENCE_S, window(len(fleet.hosts)))
    if isinstance(received, (wire.Shown, wire.Events)):
        fleet.clock_offsets[connection.host.name] = clocks.offset(asked, received.time, time.time())
        return cast("T", received._replace(jobs=fleet.records.whole(connection, received), brief=()))
    return received


def jobs(fleet: Fleet, job: str | None = None) -> tuple[list[JobState], list[TfctlError]]:
    """Return every job, or that one, the last started first, and the errors of silent hosts. Raises as `ask`."""
    if job is not None:
        return _asked(fleet, wire.ShowRequest(job, samples=True))
    listed, errors = overview(fleet)
    whole = {each.job: each for each in _in_full(fleet, [each.job for each in listed if isinstance(each, PastJob)])}
    states = [each if isinstance(each, JobState) else whole.get(each.job) for each in listed]
    return [each for each in states if each], errors


def overview(fleet: Fleet, lines: bool = False) -> tuple[list[JobState | PastJob], list[TfctlError]]:
    """Return every job, the last started first, and the errors of silent hosts. Jobs that are over lack their tasks.

    The hosts answer with summaries, so that many past jobs cost little. ``lines``: also ask for the ages of last lines.
    Raises as `ask`.
    """
    answers, errors = ask(fleet, OVERVIEW._replace(lines=lines), wire.Shown)
    all_jobs = merged(fleet, answers)
    _note(fleet, all_jobs, everything=not errors)
    return all_jobs, errors


def merged(fleet: Fleet, answers: Mapping[str, wire.Shown | None]) -> list[JobState | PastJob]:
    """Return every job, from the answers to `OVERVIEW`. Ask the hosts that have answered about those jobs for which
    that is not enough. Raises as `ask`."""
    offsets = fleet.clock_offsets
    wrong = any(clocks.ahead(offsets, host) for host in answers)
    over, open_ = past.merged(
        {
            host: [clocks.corrected_summary(each, host, offsets) for each in answer.past] if wrong else answer.past
            for host, answer in answers.items()
            if answer
        }
    )
    whole = {each.job for answer in answers.values() if answer for each in answer.jobs}
    states = _states(fleet, answers)
    late = [each.job for each in states if each.unreported]  # hosts may have answered before the run began
    # What is over on one host may go on on another, which does not know the tasks of the first.
    asked = dict.fromkeys([*(each.job for each in over), *open_, *late])
    again = [job for job in asked if job in whole or job in open_]
    once: list[JobState | PastJob] = [*states, *over]
    answering = [host for host in fleet.hosts if answers.get(host.name)]
    all_jobs = [*(each for each in once if each.job not in again), *_in_full(fleet, again, answering)]
    return sorted(all_jobs, key=lambda each: -each.started)


def one(fleet: Fleet, job: str | None, changes: bool = False, lines: bool = False) -> tuple[JobState, list[TfctlError]]:
    """Return the named job. Without a name, return the only one that has not ended, else the one started last.

    With ``changes``, the command alters the job, so the name may be omitted only if exactly one job runs or, if none
    runs, exactly one ended job still has live tasks. ``lines``: also ask for the ages of tasks' last lines. Raise
    UsageError if a name is needed, NotFound if there is no such job, and the errors of silent hosts if these may have
    it.
    """
    if job is None:
        all_jobs, errors = overview(fleet, lines)
        return _whole(fleet, default(all_jobs, errors, changes)), errors
    return _one(fleet, job, lines)


def named(fleet: Fleet, word: str, changes: bool = False, lines: bool = False) -> tuple[JobState, list[TfctlError]]:
    """Return the job that ``word`` means: the one chosen without a name if it has a role of that name, else the job
    of that name. Raise as `one`."""
    all_jobs, errors = overview(fleet, lines)
    chosen = None
    with suppress(NotFound, UsageError):
        chosen = _whole(fleet, default(all_jobs, (), changes))
    if chosen and any(task.role == word for task in chosen.tasks):
        return chosen, errors
    for each in all_jobs:
        if each.job == word:
            return _whole(fleet, each), errors
    unknown = state.unknown(word)
    if chosen is not None:
        roles = ", ".join(dict.fromkeys(task.role for task in chosen.tasks))
        what = f"{unknown.message}, and {chosen.job} has no role {word}"
        unknown = NotFound(what, f"it has {roles}; {unknown.remedy}")
    raise state.unless_silent(unknown, errors)


def about_run(fleet: Fleet, job: JobState, hosts: Collection[str]) -> dict[str, wire.Shown | None]:
    """Ask these hosts about the attempt of ``job``, now that another host has reported it.

    They may have answered before it began. Only their next answer says whether they have lost it.
    """
    chosen = [host for host in fleet.hosts if host.name in hosts]
    try:
        return ask(fleet, wire.ShowRequest(job.job, job.attempt, samples=True), wire.Shown, chosen)[0]
    except TfctlError:
        return dict.fromkeys(hosts)


def tell_head(fleet: Fleet, job: JobState) -> None:
    """Tell the guard of the head which hosts were rebooted: they have no guard any more that could do so."""
    assert job.record.guard
    head = [host for host in fleet.hosts if host.name == job.record.guard.head]
    with suppress(TfctlError):
        ask(fleet, wire.ShowRequest(job.job, job.attempt, rebooted=job.rebooted), wire.Shown, head)


def _one(fleet: Fleet, job: str, lines: bool = False) -> tuple[JobState, list[TfctlError]]:
    states, errors = _asked(fleet, wire.ShowRequest(job, lines=lines, samples=True))
    if not states:
        raise state.unknown(job, errors)
    return states[0], errors


def _asked(fleet: Fleet, request: wire.ShowRequest) -> tuple[list[JobState], list[TfctlError]]:
    answers, errors = ask(fleet, request, wire.Shown)
    states = _states(fleet, answers)
    if states and states[0].unreported:
        states = _states(fleet, {**answers, **about_run(fleet, states[0], states[0].unreported)})
    if states and states[0].rebooted:
        tell_head(fleet, states[0])
    _note(fleet, states, everything=False)
    return states, errors


def _states(fleet: Fleet, answers: Mapping[str, wire.Shown | None]) -> list[JobState]:
    """Return the jobs as the hosts show them, with times by this machine's clock."""
    return state.jobs({host: answer and answer.jobs for host, answer in answers.items()}, fleet.clock_offsets)


def _in_full(fleet: Fleet, names: Sequence[str], hosts: Sequence[Host] | None = None) -> list[JobState]:
    """Return these jobs with their tasks. Ask for a few at a time: the length of an answer is limited. ``hosts``: only
    these; the others do not answer."""
    silent = dict.fromkeys(host.name for host in fleet.hosts)
    states: list[JobState] = []
    for first in range(0, len(names), _AT_ONCE):
        request = wire.ShowRequest(jobs=tuple(names[first : first + _AT_ONCE]), samples=True)
        answers, _ = ask(fleet, request, wire.Shown, hosts)
        states += _states(fleet, {**silent, **answers})
    return states


def _whole(fleet: Fleet, job: JobState | PastJob) -> JobState:
    """Return a job with its tasks. Raise as `one` if no host knows it any more."""
    return job if isinstance(job, JobState) else _one(fleet, job.job)[0]


def _note(fleet: Fleet, known: Sequence[JobState | PastJob], *, everything: bool) -> None:
    """Note the jobs for completion. The roles of a job that is over stay as they are known."""
    roles = {each.job: [task.role for task in each.tasks] if isinstance(each, JobState) else None for each in known}
    completion_cache.note(roles, [host.name for host in fleet.hosts], everything=everything)


def default(
    all_jobs: Sequence[JobState | PastJob], errors: Sequence[TfctlError], changes: bool = False
) -> JobState | PastJob:
    """Return the job that is meant if none is named. Raise as `one`. ``all_jobs``, ``errors``: those of `overview`."""
    going = [each for each in all_jobs if not each.ended]
    if changes and not going:
        going = [each for each in all_jobs if each.alive]
    if len(going) == 1:
        return going[0]
    if changes:
        if not going:
            raise state.unless_silent(UsageError("no job is running", "name a job: tfctl list shows all"), errors)
        raise UsageError(f"several jobs are running: {', '.join(each.job for each in going)}", "name one of them")
    if not all_jobs:
        raise state.unless_silent(NotFound("no host has a job", "start one: tfctl start job.yaml"), errors)
    return all_jobs[0]
