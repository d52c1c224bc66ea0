"""What the head's guard does next, from the states of all tasks. Pure functions."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Sequence
from typing import NamedTuple, Union

from .. import judge, names, wire
from . import stalls
from .link import Pace

#: The pause before the second attempt (s). Each further one doubles it.
_BACKOFF_S = 10.0
_LONGEST_BACKOFF_S = 300.0
#: How long (s) to wait once the job has failed, for reports of tasks that have failed before. The head sees its own
#: tasks at once, and a member looks once a second.
_FIRST_S = 2.0
#: How long (s) the members may take to report what they have seen before to a guard that was started again.
_REPORTS_S = 15.0


class View(NamedTuple):
    """What the head knows. Ages are in seconds.

    ``tasks``: one per task of the record, `unknown` on silent hosts and `lost` on those that were silent for too long.
    ``stopped``: the time of the job's stop mark on any host. ``age``: of the job. ``attempt_age``: of this attempt.
    ``ended_for``: how long ago the verdict was first final. ``listened``: the tasks that have been seen to listen.
    ``watched_for``: how long this guard has watched the attempt since it was started, or started again.
    ``cleaned``: the tasks that were stopped after the verdict. ``failure``: why the guard has failed the job, or empty.
    ``failed_at``: when it did, in epoch seconds. ``final``: no other attempt follows.
    ``pace``: which tasks make progress, as far as it is known. ``stall``: what was noted about the stall that goes on.
    """

    record: wire.Record
    tasks: Sequence[wire.TaskStatus]
    stopped: float | None
    age: float
    attempt_age: float
    ended_for: float = 0.0
    listened: Collection[wire.TaskName] = ()
    cleaned: Collection[wire.TaskName] = ()
    failure: str = ""
    failed_at: float | None = None
    final: bool = False
    watched_for: float = float("inf")
    pace: Pace = Pace()
    stall: wire.Stall | None = None


class StopTasks(NamedTuple):
    """End these tasks. ``failure``: why this fails the job, if it does not follow from the tasks' states."""

    tasks: tuple[wire.TaskName, ...]
    reason: str
    overdue: bool = False
    failure: str = ""


class GiveUp(NamedTuple):
    """Do not start these tasks again: they fail at once."""

    tasks: tuple[wire.TaskName, ...]


class StopEverywhere(NamedTuple):
    """Stop the job on all hosts: it was stopped on one."""


class Retry(NamedTuple):
    """Start the next attempt after ``pause`` (s)."""

    pause: float


class NoteStall(NamedTuple):
    """The job makes no progress because of these tasks. Note it and, unless the policy wants only a report, fail it."""

    tasks: tuple[wire.TaskName, ...]
    reason: str


class NoteProgress(NamedTuple):
    """The job that has stalled makes progress again."""


class Finish(NamedTuple):
    """Nothing is left to do."""


Action = Union[StopTasks, GiveUp, StopEverywhere, Retry, NoteStall, NoteProgress, Finish]


def verdict(view: View) -> judge.Verdict:
    """Return the state of the job."""
    if view.failure:
        return judge.Verdict("failed", view.failure, view.failed_at)
    return judge.judge(view.record, view.tasks, view.stopped)


def next_action(view: View) -> Action | None:
    """Return what to do now, or None to wait."""
    found = verdict(view)
    alive = tuple(task.name for task in view.tasks if task.state in judge.ALIVE)
    unknown = any(task.state == "unknown" for task in view.tasks)
    if view.stopped is not None and found.state not in ("succeeded", "failed"):
        return StopEverywhere() if alive else None if unknown else Finish()
    if found.state == "stopped":
        return Finish()
    if found.state in ("succeeded", "failed"):
        return _after(view, found, alive, unknown)
    doomed = judge.to_give_up(view.tasks)
    return GiveUp(tuple(doomed)) if doomed else _limits(view, alive)


def _after(view: View, found: judge.Verdict, alive: tuple[wire.TaskName, ...], unknown: bool) -> Action | None:
    """Return what to do once the job has succeeded or failed."""
    if found.state == "failed" and view.ended_for < _FIRST_S:
        return None
    draining = judge.draining(view.record, view.tasks, view.ended_for) if found.state == "succeeded" else {}
    again = found.state == "failed" and retries(view, found)
    ended = judge.to_clean(view.record, view.tasks, draining)
    if again and not ended:  # the next attempt needs the ports and GPUs of all tasks, whatever `clean` says
        ended = [*alive]
    out_of_reach = {task.name for task in view.tasks if task.state in ("unknown", "lost")}
    wanted = [name for name in ended if name not in view.cleaned and name not in out_of_reach]
    if wanted:
        return StopTasks(tuple(wanted), _why(view, found))
    waits = again or view.record.policy.clean != "none"
    if waits and (unknown or any(name not in view.cleaned for name in alive)):
        return None
    if again:
        assert view.record.guard
        return Retry(_pause(view.record.guard))
    return Finish()


def _limits(view: View, alive: tuple[wire.TaskName, ...]) -> Action | None:
    """Return what to do with a job that is going on."""
    guard = view.record.guard
    assert guard
    # During the first attempt, a timer beside each unit ends it at its deadline, also where there is no guard.
    if guard.deadline is not None and guard.number > 1 and view.age > guard.deadline:
        return StopTasks(alive, f"the deadline of {guard.deadline} s has passed", overdue=True)
    limit = guard.start_timeout
    if limit is not None and view.attempt_age > limit and view.watched_for > min(limit, _REPORTS_S):
        silent = {task.name for task in view.tasks if task.state == "unknown"}  # the lease decides about them
        heard = {*view.listened, *silent}
        deaf = [task for task in view.record.tasks if task.name in guard.servers and task.name not in heard]
        if deaf:
            first = f"{names.task(*deaf[0].name)} on {deaf[0].host} did not listen on port {deaf[0].port}"
            more = f", nor did {len(deaf) - 1} other tasks on theirs," if len(deaf) > 1 else ""
            why = f"{first}{more} within {limit} s of the start (policy: start_timeout)"
            return StopTasks(alive, "not every task started in time", failure=why)
    return None if guard.stall is None else _stall(view, guard.stall)


def _stall(view: View, limit: int) -> Action | None:
    """Return what to do about a job that makes no progress, or does so again."""
    tasks = stalls.stalled(view.tasks, view.pace)
    # A guard that was started again between its note and the failure begins anew.
    assert view.record.guard
    if tasks and (view.stall is None or view.record.guard.on_stall != "report"):
        hosts = {task.name: task.host for task in view.record.tasks}
        return NoteStall(tasks, stalls.reason(tasks, view.pace, hosts, limit))
    unknown = any(task.state == "unknown" for task in view.tasks)
    return NoteProgress() if view.stall is not None and view.pace.moving and not tasks and not unknown else None


def retries(view: View, found: judge.Verdict) -> bool:
    """Return whether the policy asks for another attempt after this failure."""
    guard = view.record.guard
    if guard is None or guard.number >= guard.max_attempts or view.stopped is not None or view.final:
        return False
    if guard.deadline is not None and view.age + _pause(guard) > guard.deadline:
        return False
    if view.stall is not None and view.failure == view.stall.reason:
        return True
    culprit = next((task for task in view.tasks if task.name == found.culprit), None)
    code = _exit_code(culprit) if culprit else None
    if code in guard.fail_exit_codes or (culprit and (culprit.overdue or culprit.loss == "reboot")):
        return False
    return not guard.retry_exit_codes or code in guard.retry_exit_codes


def _pause(guard: wire.RecordedGuard) -> float:
    """Return how long to wait before the next attempt (s)."""
    return min(_LONGEST_BACKOFF_S, _BACKOFF_S * 2.0 ** (guard.number - 1))


def _exit_code(task: wire.TaskStatus) -> int | None:
    """Return the exit code as a shell reports it: 128 and the number of the signal that has ended the task."""
    with contextlib.suppress(KeyError):
        return 128 + signal.Signals[task.signal or ""]
    return task.exit_code


def _why(view: View, found: judge.Verdict) -> str:
    if found.state == "succeeded":
        deciders = view.record.deciders
        if len(deciders) == 1:
            return f"{names.task(*deciders[0])} has succeeded"
        return "all deciders have succeeded"
    if found.culprit is not None:
        return f"{names.task(*found.culprit)} has failed"
    return "the job has failed"
