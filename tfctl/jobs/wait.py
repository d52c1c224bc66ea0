"""Follow a job's state until it has ended, then stop what is still running (`policy: clean`)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tfctl.errors import NotFound, TfctlError, Unreachable, of_hosts, together
from tfctl.jobs import reasons, show, state
from tfctl.jobs.answers import Answer, Answers
from tfctl.jobs.state import JobState, TaskState
from tfctl.jobs.stop import stop
from tfctl.node import judge, wire
from tfctl.remote.fleet import Fleet
from tfctl.wording import Lines, abbreviated

Say = Callable[[str], None]

_TICK_S = 5.0
#: How often (s) to compute the state of the job at most.
_PACE_S = 0.25
#: Give up waiting when no host has answered for this long.
_ALONE_S = 30.0
#: Give up waiting when one host has not answered for this long. It is longer than the default lease of a job, after
#: which the guards decide.
HOST_TIMEOUT_S = 900.0


class Deleted(NotFound):
    """No host has the attempt any more. It was deleted, so it does not run."""


class Silence:
    """Report hosts that fall silent or come back, and how long (s) they have been silent."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._since: dict[str, float] = {}

    def note(self, host: str, error: TfctlError | None) -> None:
        """Record that ``host`` has answered, or the ``error`` that it gave instead."""
        if error is not None and host not in self._since:
            self._since[host] = time.monotonic()
            self._say(f"~~ {error.message}; the states of its tasks are unknown; trying again")
        elif error is None and (since := self._since.pop(host, None)) is not None:
            self._say(f"~~ {host} is back after {time.monotonic() - since:.0f} s")

    def longer_than(self, seconds: float) -> list[str]:
        """Return the hosts that have been silent for more than ``seconds``."""
        return [host for host, since in self._since.items() if time.monotonic() - since > seconds]


class Cleaned(NamedTuple):
    """What a cleanup has done. ``names``: the tasks that need no more cleaning. ``stopped``: those that were alive."""

    names: Sequence[wire.TaskName] = ()
    stopped: Sequence[TaskState] = ()


def wait(
    fleet: Fleet,
    job: str,
    attempt: int,
    say: Say,
    timeout: float | None = None,
    host_timeout: float = HOST_TIMEOUT_S,
    silence: Silence | None = None,
    watch: Callable[[JobState], object] = lambda _: None,
    answers: Answers | None = None,
    alive: Collection[wire.TaskName] = (),
) -> JobState:
    """Return the job's state once it has ended and been cleaned up as its policy says, or after ``timeout`` (s), or
    once one of its hosts has been silent for ``host_timeout`` (s) although the guards have not finished.

    The guards of the job clean up. Where one of them is missing, as after a reboot of its host, this function does so.

    The fleet must hold exactly the job's hosts. ``silence`` reports silent hosts; by default through ``say``. ``watch``
    gets each state. ``answers``: see `changes`. ``alive``: the tasks known to have been started, or seen running,
    before the call. Those of them that the guards stop before the first answer are reported as well. Raise Unreachable
    if no host has answered for 30 s, Deleted if all answer and none knows the job, and NotFound if the end of the job
    depends on a host that the fleet lacks.
    """
    silence = silence or Silence(say)
    end = None if timeout is None else time.monotonic() + timeout
    latest: JobState | None = None
    cleaned: Collection[wire.TaskName] = ()
    ours: set[wire.TaskName] = set()  # the tasks that this function has stopped
    announced: set[wire.TaskName] = set()
    before = {*alive}
    ran: float | None = None  # when it was last seen not to have ended: its hosts' clocks may be wrong
    say_once = _each_once(say)
    for latest in changes(fleet, job, attempt, silence, end, answers):
        watch(latest)
        _require_deciders(fleet, latest)
        ran = ran if latest.ended else time.monotonic()
        before.update(task.name for task in latest.tasks if task.alive)
        last = going(latest, None if ran is None else time.monotonic() - ran)
        _announce(last, announced, say)
        if latest.state == "running" and latest.cause:
            say_once(latest.cause)
        if not latest.over or _cleaned_by_guards(latest):
            if silent := silence.longer_than(host_timeout):
                say(
                    f"gave up after {host_timeout:.0f} s without an answer from {abbreviated(silent)}; "
                    f"to wait longer: tfctl wait {job} --host-timeout 1h"
                )
                return latest
            continue
        if latest.guarded or not last:
            break
        if not cleaned:
            cleaned, stopped = clean(fleet, latest, say_once, draining=[task.name for task in last])
            ours.update(task.name for task in stopped)
            if stopped:
                say(reasons.stopped(latest, stopped))
    if latest is None:
        raise Unreachable(f"job {job}: no host has reported its state")
    if not latest.over:
        return latest
    names, stopped = Cleaned() if latest.guarded else clean(fleet, latest, say_once, cleaned=cleaned)
    ours.update(task.name for task in stopped)
    final = _seen_again(fleet, latest, ours, {*cleaned, *names} - ours)
    by_guard = [task for task in final.tasks if task.name in before - ours and task.state == "stopped"]
    if stopped or (by_guard and latest.state != "stopped"):
        say(reasons.stopped(final, [*by_guard, *stopped]))
    return final


def _each_once(say: Say) -> Say:
    """Return a function that passes each text to ``say`` once: what fails is tried again."""
    said: set[str] = set()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_once


def _require_deciders(fleet: Fleet, job: JobState) -> None:
    """Raise NotFound if the fleet lacks a host whose tasks decide how the job ends: it would never answer."""
    if not job.over:
        deciders = set(job.record.deciders)
        hosts = {task.host for task in job.tasks if task.name in deciders}
        if missing := of_hosts(state.absent(job, fleet.hosts), hosts):
            raise together(missing)


def _cleaned_by_guards(job: JobState) -> bool:
    """Return whether the guards of the job are about to stop tasks."""
    return job.guarded and job.record.policy.clean != "none" and any(task.alive for task in job.tasks)


def _announce(last: Mapping[TaskState, float], announced: set[wire.TaskName], say: Say) -> None:
    """Report each evaluator that may continue, once."""
    for task, left in last.items():
        if task.role == "evaluator" and task.name not in announced:
            announced.add(task.name)
            say(f"{task} may run for up to {left:.0f} s more to evaluate the last checkpoint")


def changes(
    fleet: Fleet, job: str, attempt: int, silence: Silence, end: float | None = None, answers: Answers | None = None
) -> Iterator[JobState]:
    """Yield the job's state now, at every change and every 5 s, until ``end`` (time.monotonic) or the caller stops.
    It is that of ``attempt`` or of the last attempt that the job's guard has started after it.

    A host without a sign of life for 15 s is reported to ``silence`` and asked again over a new connection; until it
    answers, its tasks are unknown. ``answers``: those of the hosts, if others follow lines meanwhile. Raise Unreachable
    if all have been silent for 30 s, Deleted if all answer and none knows the job.
    """
    answers = answers or Answers(fleet, job, attempt)
    answers.begin()
    collected = _LatestAnswers(fleet, silence)
    before: JobState | None = None
    computed = yielded = 0.0
    limit = None if end is None else max(end, time.monotonic() + _ALONE_S)  # allow time for one first answer
    try:
        while limit is None or time.monotonic() < limit:
            collected.note(_next_answers(answers, computed + _PACE_S, limit), answers.since)
            if not collected.complete:
                continue
            computed = time.monotonic()
            latest = collected.job()
            if latest is None and collected.all_answer:
                raise Deleted(f"no host has attempt {attempt} of job {job!r} any more")
            if latest and (latest != before or time.monotonic() > yielded + _TICK_S):
                before, yielded, limit = latest, time.monotonic(), end
                yield latest
    finally:
        answers.end()


class _LatestAnswers:
    """The latest answer of each host of a job, and the job state derived from these answers."""

    def __init__(self, fleet: Fleet, silence: Silence) -> None:
        self._fleet, self._silence = fleet, silence
        #: By host; None for one that does not answer.
        self._answers: dict[str, Sequence[wire.JobStatus] | None] = {}
        self._errors: dict[str, TfctlError] = {}
        self._last_answer = time.monotonic()
        self._run = ""
        #: Hosts that do not know the run although it has begun.
        self._without_run: set[str] = set()
        #: The rebooted hosts that the guard of the head has been told about.
        self._told: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether there is an answer or an error of every host."""
        return len(self._answers) == len(self._fleet.hosts)

    @property
    def all_answer(self) -> bool:
        """Whether every host that has said anything answers now."""
        return None not in self._answers.values()

    def note(self, answers: Iterable[Answer], since: float) -> None:
        """Record the answers of hosts. ``since``: the time (time.monotonic) from which they could answer. Raise
        Unreachable if all have been silent for 30 s, or their errors if trying again is no use."""
        for name, answer in answers:
            self._errors.pop(name, None)
            if isinstance(answer, TfctlError):
                self._answers[name], self._errors[name] = None, answer
            else:
                self._answers[name] = answer
            self._silence.note(name, self._errors.get(name))
        if any(answer is not None for answer in self._answers.values()):
            self._last_answer = time.monotonic()
        elif time.monotonic() - max(self._last_answer, since) > _ALONE_S or _hopeless(self._errors, self._fleet):
            raise together(list(self._errors.values())) if self._errors else Unreachable("no host answers")

    def job(self) -> JobState | None:
        """Return the state of the job, or None if no host knows it. Ask the hosts that should know its run and do not,
        and tell the guard of the head which hosts were rebooted."""
        job = self._state(self._answers)
        if job and job.run != self._run:
            self._run, self._without_run, self._told = job.run, set(), ()
        if job and (late := set(job.unreported) - self._without_run):
            job = self._asked_again(job, late)
        if job and job.rebooted not in ((), self._told):
            self._told = job.rebooted
            show.tell_head(self._fleet, job)
        return job

    def _asked_again(self, job: JobState, late: Collection[str]) -> JobState | None:
        """Ask hosts that have not reported the run. Return the state of the job by their answers."""
        fresh = {name: shown and shown.jobs for name, shown in show.about_run(self._fleet, job, late).items()}
        for name, newer in fresh.items():
            if newer is not None:  # otherwise ask again: the session that follows may have nothing to report
                self._answers[name] = newer
                if not any(each.run == self._run for each in newer):
                    self._without_run.add(name)
        return self._state({**self._answers, **fresh})

    def _state(self, answers: Mapping[str, Sequence[wire.JobStatus] | None]) -> JobState | None:
        return next(iter(state.jobs(answers, self._fleet.clock_offsets)), None)


def _next_answers(answers: Answers, due: float, limit: float | None) -> list[Answer]:
    """Return the next answers of hosts, once there is one and the time ``due`` has come; nothing after a second.

    ``limit``: do not wait longer. A thousand hosts that change at the same moment cost one look at the job, not a
    thousand.
    """
    limit = float("inf") if limit is None else limit
    return answers.incoming.take(min(1.0, max(0.01, limit - time.monotonic())), min(due, limit))


def going(ended: JobState, since: float | None = None) -> dict[TaskState, float]:
    """Return the tasks of a succeeded job that may keep running, and for how long (s).

    An evaluator may still evaluate the last checkpoint; a worker may still shut down. ``since`` is how long ago (s) the
    job ended; if None, the end was not observed and the hosts' clocks decide.
    """
    if ended.state != "succeeded" or ended.finished is None:
        return {}
    since = time.time() - ended.finished if since is None else since
    left = judge.draining(ended.record, ended.statuses, since)
    return {task: left[task.name] for task in ended.tasks if task.name in left}


def clean(
    fleet: Fleet,
    ended: JobState,
    say: Say,
    draining: Collection[wire.TaskName] = (),
    cleaned: Collection[wire.TaskName] = (),
) -> Cleaned:
    """Clean up a job that has ended.

    With `policy/clean: running`, stop the tasks that still run; with `all`, also remove the units of tasks that have
    ended by themselves. Failures are reported through ``say``. Tasks that are ``draining`` may continue; those that are
    ``cleaned`` need nothing more.
    """
    wanted = judge.to_clean(ended.record, ended.statuses, draining)
    chosen = [task for task in ended.tasks if task.name in wanted and task.name not in cleaned]
    tasks: dict[str, list[wire.TaskName]] = defaultdict(list)
    for task in chosen:
        tasks[task.host].append(task.name)
    if not tasks:
        return Cleaned()
    try:
        stopped = _stop_tasks(fleet, ended, tasks)
    except TfctlError as error:
        say(Lines("not everything was stopped: " + error.message, f"`tfctl stop {ended.job}` stops the rest"))
        return Cleaned()
    return Cleaned([task.name for task in chosen], [task for task in chosen if str(task) in stopped])


def _stop_tasks(fleet: Fleet, ended: JobState, tasks: Mapping[str, Sequence[wire.TaskName]]) -> Collection[str]:
    """Stop these tasks, by host, and return the names of those that ran. Ask hosts that do not answer once more: the
    connections to them may have died while this machine slept, and are closed now."""
    try:
        return stop(fleet, ended.job, tasks, ended.attempt, ended.run)
    except Unreachable as error:
        silent = {host: chosen for host, chosen in tasks.items() if host in error.hosts}
        if not silent:
            raise
    reached = {name for host, chosen in tasks.items() if host not in silent for name in chosen}
    stopped = [str(task) for task in ended.tasks if task.alive and task.name in reached]
    return [*stopped, *stop(fleet, ended.job, silent, ended.attempt, ended.run)]


def _seen_again(
    fleet: Fleet, ended: JobState, stopped: Collection[wire.TaskName], not_stopped: Collection[wire.TaskName]
) -> JobState:
    """Return the state of a job that has ended. Ask the hosts again if tasks were still alive in ``ended``.

    A host may report a failure after another host has reported a later one. Later commands see both, so this one must
    name the same task as they do. ``stopped``: the tasks that this client has stopped. ``not_stopped``: those that it
    tried to stop, but that had already ended. If they were alive in ``ended``, a guard or another client may have
    stopped them in between. Of a host that does not answer now, the state is what it was in ``ended``.
    """
    alive = {task.name for task in ended.tasks if task.alive}
    if not alive or (ended.state != "failed" and not alive.intersection(not_stopped)):
        return ended
    known = {task.name: task for task in ended.tasks if task.name not in stopped}
    with suppress(TfctlError):
        answers, _ = show.ask(fleet, wire.ShowRequest(ended.job, ended.attempt), wire.Shown)
        for now in state.jobs({host: answer and answer.jobs for host, answer in answers.items()}, fleet.clock_offsets):
            if now.state == ended.state and now.record.run == ended.record.run:
                tasks = (known.get(task.name, task) if task.state == "unknown" else task for task in now.tasks)
                return replace(now, tasks=tuple(tasks))
    return ended


def _hopeless(errors: Mapping[str, TfctlError], fleet: Fleet) -> bool:
    """Return whether every host has failed in a way that retrying cannot fix."""
    return len(errors) == len(fleet.hosts) and not any(isinstance(error, Unreachable) for error in errors.values())
