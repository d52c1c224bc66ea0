"""Read the figures of jobs from their hosts: a round trip for each few jobs, then one for what tasks have printed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tfctl.errors import NotFound, TfctlError, together
from tfctl.jobs import clocks, logs, state
from tfctl.jobs.journal import Line, Query
from tfctl.jobs.state import JobState, TaskState
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy
from tfctl.node import wire
from tfctl.node.names import task as task_name
from tfctl.node.progress import any_format, format_of
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import open_session
from tfctl.report import pace
from tfctl.report.figures import RunFigures, task_figures, throughput
from tfctl.report.pace import Pace

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

Fail = Callable[[TfctlError], object]

#: How many jobs to ask for at a time, in a session each. sshd allows ten sessions (MaxSessions), and those that have
#: just been closed count until their programs have ended.
_AT_ONCE = 5


def read(fleet: Fleet, names: Sequence[str], fail: Fail) -> list[RunFigures]:
    """Return the figures of the latest attempt of each job, in the order of the names.

    ``fail`` is called for each host that does not answer. Raise NotFound for a job that no host knows, and the errors
    of silent hosts if these may know it.
    """
    states, errors = _states(fleet, names)
    found = {each.job: each for each in states}
    for name in names:
        if name not in found:
            raise state.unknown(name, errors)
    for error in errors:
        fail(error)
    return [_run(fleet, found[name], fail) for name in dict.fromkeys(names)]


def run_figures(job: JobState, paces: dict[str, Pace | None], now: float) -> RunFigures:
    """Return the figures of a job. ``paces``: by task. ``now``: in epoch seconds."""
    strategy, known = job.record.strategy, STRATEGIES.get(job.record.strategy)
    tasks = tuple(
        task_figures(
            task.role,
            task.index,
            task.host,
            task.state,
            run_time=_run_time(task, now),
            pace=paces.get(str(task)),
            computes=_computes(known, task.role),
            gpus=len(task.record.gpus),
            restarts=task.status.restarts,
        )
        for task in job.tasks
    )
    computing = [str(task) for task in tasks if task.computes]
    return RunFigures(
        job.job,
        job.attempt,
        strategy,
        job.state,
        tasks,
        throughput(paces, computing, leads=known is not None and known.chief_counts),
        synchronous=known is not None and known.synchronous,
        continues=job.record.guard is not None and job.record.guard.number > 1,
    )


def _states(fleet: Fleet, names: Sequence[str]) -> tuple[list[JobState], list[TfctlError]]:
    """Ask all hosts about all jobs, and return the errors of silent hosts too. One host is asked for a long
    record."""
    requests = [wire.ShowRequest(name, timings=True, brief=True) for name in dict.fromkeys(names)]

    def ask(connection: Connection) -> list[wire.JobStatus]:
        answers: list[wire.Shown] = []
        asked = time.time()
        for first in range(0, len(requests), _AT_ONCE):
            with ExitStack() as stack:
                some = requests[first : first + _AT_ONCE]
                sessions = [stack.enter_context(open_session(connection, request)) for request in some]
                answers += [session.expect(wire.Shown, wire.SILENCE_S) for session in sessions]
            if first == 0:
                fleet.clock_offsets[connection.host.name] = clocks.offset(asked, answers[0].time, time.time())
        return [job for shown in answers for job in fleet.records.whole(connection, shown)]

    outcomes = fleet.map(ask)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) == len(outcomes):
        raise together(errors)
    return state.jobs({outcome.host.name: outcome.value for outcome in outcomes}, fleet.clock_offsets), errors


def _run(fleet: Fleet, job: JobState, fail: Fail) -> RunFigures:
    paces = {str(task): pace.of_timings(task.status.timings or "") for task in job.tasks}
    if job.record.progress or not any(paces.values()):
        printed = _printed(fleet, job, fail)
        paces = {task: recorded or printed[task] for task, recorded in paces.items()}
    return run_figures(job, paces, time.time())


def _printed(fleet: Fleet, job: JobState, fail: Fail) -> dict[str, Pace | None]:
    """Return the pace of each task that its lines show. The hosts send only lines that may match."""
    progress = format_of(job.record.progress) if job.record.progress else None
    lines: dict[str, list[str]] = {str(task): [] for task in job.tasks}
    try:
        pattern = progress.lines if progress else any_format()
        for item in logs.read(fleet, job, Query(grep=pattern), fail):
            if isinstance(item, Line):
                # A progress bar without a line end rewrites its line. What is logged at once may have several lines.
                lines[task_name(item.role, item.index)] += re.split("[\r\n]", item.text)
    except (NotFound, ValueError) as error:  # its hosts are no longer in the inventory; an older tfctl has started it
        fail(error if isinstance(error, NotFound) else TfctlError(f"{job.job}: progress: {error}"))
    return {task: pace.of_lines(found, progress) for task, found in lines.items()}


def _computes(strategy: Strategy | None, role: str) -> bool:
    rule = strategy.rule(role) if strategy else None
    return rule.gpu if rule else True


def _run_time(task: TaskState, now: float) -> float | None:
    """Return how long the task has run, until now if it has not ended. A lost task has no end."""
    status = task.status
    if status.started is None or (status.finished is None and not task.alive):
        return None
    return max(0.0, (status.finished or now) - status.started)
