"""The guard of the head: it knows the states of all tasks, follows the rules and gives orders to all hosts."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from .. import causes, judge, wire
from . import attempts, link, rules
from .host_access import HostAccess, RequestFailed
from .member import FIRST_CONTACT_S, LOOK_S
from .members import Members
from .stalls import Watcher

#: Added to the lease before the tasks of a silent host count as lost (s), at least: it may have to end them first.
_GRACE_S = 30.0
#: How much longer (s) than the grace period that may take.
_AFTER_GRACE_S = 15.0
#: How long a client may take to mark the tasks of a job on all hosts (s), before the guards do the rest of its stop.
_CLIENT_S = 5.0
#: How long to wait at least before starting an attempt again that could not be started (s).
_AGAIN_S = 10.0
#: How long the members may take to hear that the job is over (s).
_END_S = 3.0
#: How long the hosts may take to note what their tasks do when the job has stalled (s).
_STALL_S = 40.0


class Outcome(NamedTuple):
    """What people are told about a job. ``state``: succeeded, failed, or stalled while it goes on. ``culprit``: the
    task whose failure explains that of the job, if one does."""

    state: str
    reason: str
    finished: float | None = None
    culprit: causes.Culprit | None = None


Tell = Callable[[wire.Record, Outcome], Awaitable[None]]


def _monotonic(moment: float) -> float:
    """Return a time of the real clock (epoch s) as one of the monotonic clock, by which limits are kept: while a job
    runs, the real clock may be set."""
    return time.monotonic() + moment - time.time()


class Head:
    """``began``: when the first attempt began, by the clock of this host. ``tell`` is awaited with the outcome of the
    job, to notify people. ``watcher``: knows which tasks of this host make progress, if that has a limit.

    What is reported, such as `_retry_at`, is a time of the real clock. All others are of the monotonic clock.
    """

    def __init__(
        self, here: HostAccess, key: bytes, seen: wire.JobStatus, began: float,
        listener: socket.socket | None = None, tell: Tell | None = None, watcher: Watcher | None = None,
    ) -> None:  # fmt: skip
        self._here, self._seen, self._began = here, seen, _monotonic(began)
        self._listener, self._tell, self._watcher = listener, tell, watcher
        self._members = Members(here, key, seen.record, self._sign_of_life)
        self._retry_at: float | None = None
        self._retry_due = 0.0
        self._retry_until: float | None = None
        self._ended_at: float | None = None
        self._succeeded: float | None = None
        self._failed_at: float | None = None
        self._silent: tuple[str, ...] | None = None
        self._all_listened: bool | None = None
        self._listened: set[wire.TaskName] = set()
        self._cleaned: set[wire.TaskName] = set()
        self._first_tried: dict[wire.TaskName, float] = {}
        self._stop_seen: float | None = None
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        """Begin to watch an attempt, or, if this guard was started again, go on with what it had noted."""
        noted = self._seen.guard or wire.GuardReport()
        # A guard that was started again does not know which hosts had connected before.
        self._is_first = self._seen.guard is None and self._guard.number == 1
        # By the clock of this host, and from the disk: the limit of the start does not begin again with this guard.
        self._attempt_began = _monotonic(self._here.began(self._record.attempt))
        self._watched_since = time.monotonic()
        self._retry_at, self._failure, self._succeeded = noted.retry_at, noted.reason, noted.succeeded
        self._retry_due = 0.0 if self._retry_at is None else _monotonic(self._retry_at)
        self._failed_at, self._silent, self._stall = noted.finished, noted.silent, noted.stall
        self._ended_at = None if self._succeeded is None else min(time.monotonic(), _monotonic(self._succeeded))
        self._retry_until, self._final, self._over = None, bool(noted.final), bool(noted.over)
        self._listened, self._cleaned = set(self._guard.servers if noted.listened else ()), set()
        self._first_tried, self._stop_seen = {}, None
        self._all_listened = noted.listened
        self._rebooted = self._here.rebooted(self._record.attempt)
        self._members.watch(self._record.run)
        if self._seen.guard is None:
            self._report()  # so that a guard that is started again is not taken for the first one

    @property
    def _record(self) -> wire.Record:
        return self._seen.record

    @property
    def _guard(self) -> wire.RecordedGuard:
        assert self._record.guard
        return self._record.guard

    @property
    def _ending_s(self) -> float:
        """How long (s) a host that has given the job up may take to end its tasks."""
        return max(_GRACE_S, self._record.policy.grace + _AFTER_GRACE_S)

    @property
    def _patience(self) -> float:
        """How long (s) a host may be silent, or may be unable to end its tasks."""
        return self._guard.lease + self._ending_s

    @property
    def _first_patience(self) -> float:
        """The same of a host whose guard has never reached this one, and so gives the job up earlier."""
        return min(FIRST_CONTACT_S, self._guard.lease) + self._ending_s

    def _gone(self) -> set[str]:
        """Return the hosts that have been silent for too long, or that a client has seen to be rebooted."""
        strange = self._members.never_met() if self._is_first else ()
        return {
            host for host, age in self._members.silent_for().items()
            if age > (self._first_patience if host in strange else self._patience) or host in self._rebooted
        }  # fmt: skip

    async def run(self) -> None:
        """Return when the guard may leave."""
        server = None
        if self._listener is not None:
            server = await self._members.listen(self._listener)
        beating = asyncio.ensure_future(self._beat())
        try:
            while not self._over and not await self._step():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._members.woken.wait(), LOOK_S)
                self._members.woken.clear()
        finally:
            beating.cancel()
            if server is not None:
                server.close()

    # What the head knows.

    async def _look(self) -> None:
        if self._here.changed():
            with suppress(RequestFailed):
                self._seen = await self._here.show() or self._seen
                self._rebooted = self._here.rebooted(self._record.attempt)

    def _view(self) -> rules.View:
        tasks = self._statuses()
        for report in self._members.reports().values():
            self._listened.update(report.listening)
        # A task that has run and ended has come up.
        self._listened.update(task.name for task in tasks if task.state in judge.ENDED)
        if self._guard.start_timeout is not None and not self._all_listened:
            self._listened.update(self._here.listening(self._record.tasks))
            if self._listened >= {*self._guard.servers}:
                self._all_listened = True
                self._report()
        now = time.monotonic()
        view = rules.View(
            self._record, tasks, self._stopped(), now - self._began, now - self._attempt_began,
            listened=self._listened, cleaned=self._cleaned, failure=self._failure, final=self._final,
            watched_for=now - self._watched_since, failed_at=self._failed_at, pace=self._pace(), stall=self._stall,
        )  # fmt: skip
        return view._replace(ended_for=self._ended_for(rules.verdict(view).state))

    def _pace(self) -> link.Pace:
        """Return which tasks of all hosts make progress."""
        if self._watcher is None:
            return link.Pace()
        found = [
            self._watcher.pace(self._record.attempt),
            *(each.pace for each in self._members.reports().values() if each.pace),
        ]
        return link.Pace(
            tuple(name for pace in found for name in pace.moving),
            tuple(task for pace in found for task in pace.standing),
        )

    def _ended_for(self, state: str) -> float:
        """Return how long ago the job has ended. If it has succeeded, note when, for a guard that is started again."""
        if state in judge.ENDED and self._ended_at is None:
            self._ended_at = time.monotonic()
            if state == "succeeded":
                self._succeeded = time.time()
                self._report()
                self._members.beat()  # before any task is stopped for that reason
        elif state not in judge.ENDED and state != "unknown":  # it is unknown until all members have reported
            self._ended_at = self._succeeded = None
        return 0.0 if self._ended_at is None else time.monotonic() - self._ended_at

    def _statuses(self) -> list[wire.TaskStatus]:
        """Return the status of each task. What a silent host has reported stays true of tasks that had ended.

        The others are lost once the host has been silent for too long, or a client has seen that it was rebooted.
        """
        reports = {**self._members.tasks(), self._here.host: self._seen.tasks}
        silent, gone = self._members.silent_for(), self._gone()
        for host in gone:
            reports[host] = [task for task in reports[host] or () if task.state in judge.ENDED]
        found = []
        for task, status in zip(self._record.tasks, judge.statuses(self._record, reports)):
            alive = status.state in judge.ALIVE
            if alive and task.host in silent:
                status = status._replace(state="unknown")
            elif task.host in gone and status.state == "lost" and status.loss is None:
                status = status._replace(loss="reboot" if task.host in self._rebooted else "silence")
            found.append(status)
        return found

    def _stopped(self) -> float | None:
        marks = [self._seen.stopped, *(report.stopped for report in self._members.reports().values())]
        return min((mark for mark in marks if mark is not None), default=None)

    # What the head does.

    async def _step(self) -> bool:
        """Look, and do the next thing. Return whether the job is over."""
        await self._look()
        if self._seen.kept is False:
            return False
        self._report_silent()
        view = self._view()
        if self._retry_at is not None:
            return await self._await_retry(view)
        self._report_loss(view, "silence")  # clients cannot tell by themselves
        action = rules.next_action(view)
        if isinstance(action, rules.StopTasks):
            if action.failure:
                self._fail(self._failure or action.failure)
            failed = await self._end_tasks(action.tasks, action.reason, overdue=action.overdue or None)
            if rules.verdict(view).state in judge.ENDED:
                self._note_cleaned(action.tasks, failed)
        elif isinstance(action, rules.GiveUp):
            await self._end_tasks(action.tasks, "", give_up=True)
        elif isinstance(action, rules.StopEverywhere) and self._client_is_late():
            await self._stop_everywhere()
        elif isinstance(action, rules.Retry):
            self._plan_retry(view, action.pause)
        elif isinstance(action, rules.NoteStall):
            await self._note_stall(action)
        elif isinstance(action, rules.NoteProgress):
            self._stall = None
            self._here.note(self._record.attempt, "resume", "the job makes progress again")
            self._report()
        elif isinstance(action, rules.Finish):
            await self._finish(view)
            return True
        return False

    def _report_silent(self) -> None:
        """Record the hosts whose guards may be about to give the job up, because they cannot reach this one."""
        # The two ends of a connection notice within a beat of one another that it is broken.
        limit = min(FIRST_CONTACT_S, self._guard.lease) - wire.FOLLOW_SILENCE_S - wire.BEAT_S
        silent = tuple(
            host for host, age in self._members.silent_for().items()
            if host in (self._silent or ()) or age > max(0.0, limit)
        )  # fmt: skip
        if silent != (self._silent or ()):
            self._silent = silent
            self._report()

    def _report_loss(self, view: rules.View, loss: str) -> None:
        """Record the failure if the job has failed because a host was lost."""
        found = rules.verdict(view)
        culprit = next((task for task in view.tasks if task.name == found.culprit), None)
        if found.state == "failed" and culprit and culprit.loss == loss:
            self._fail(found.reason)

    async def _end_tasks(
        self, tasks: Iterable[wire.TaskName], reason: str, *, overdue: bool | None = None, give_up: bool | None = None
    ) -> Mapping[str, str]:
        """Have the hosts of these tasks end them. Return the errors by host."""
        by_host: dict[str, list[wire.TaskName]] = {}
        for task in self._record.tasks:
            if task.name in tasks:
                by_host.setdefault(task.host, []).append(task.name)
        run = self._record.run
        return await self._members.order(
            by_host,
            lambda number, host: link.StopOrder(number, run, tuple(by_host[host]), reason, overdue, give_up),
        )

    def _note_cleaned(self, tasks: Iterable[wire.TaskName], failed: Collection[str]) -> None:
        """Note the tasks that were stopped after the verdict. On the hosts that ``failed``, the order is given again,
        but not for ever: a process may not end at all."""
        now = time.monotonic()
        hosts = {task.name: task.host for task in self._record.tasks}
        for name in tasks:
            tried_for = now - self._first_tried.setdefault(name, now)
            if hosts[name] not in failed or tried_for > self._patience:
                self._cleaned.add(name)

    async def _note_stall(self, found: rules.NoteStall) -> None:
        """Note the stall with what all tasks do, and do what the policy says about it."""
        record = self._record
        self._stall = wire.Stall(time.time(), found.tasks, found.reason)
        self._here.note(record.attempt, "stall", found.reason, found.tasks)
        self._report()
        hosts = {task.host for task in record.tasks}
        await self._members.order(
            hosts, lambda number, _: link.NoteStallOrder(number, record.run, record.attempt), _STALL_S
        )
        await self._look()
        view = self._view()
        if view.stopped is not None or rules.verdict(view).state in judge.ENDED:  # in the meantime
            return
        if self._guard.on_stall != "report":
            self._final = self._guard.on_stall == "fail"
            self._fail(found.reason)
        if self._tell is not None and self._guard.on_stall != "fail":  # of the failure they hear anyway
            await self._tell(record, Outcome("stalled", found.reason))

    def _client_is_late(self) -> bool:
        """Return whether the client that stops the job has had the time to mark the tasks on all hosts. Before, the
        events would name the guard as the one that has stopped them."""
        if self._stop_seen is None:
            self._stop_seen = time.monotonic()
        return time.monotonic() - self._stop_seen >= _CLIENT_S

    async def _stop_everywhere(self) -> None:
        marks = {host: report.stopped for host, report in self._members.reports().items()}
        marks[self._here.host] = self._seen.stopped
        unmarked = {task.host for task in self._record.tasks if marks.get(task.host) is None}
        run = self._record.run
        await self._members.order(
            unmarked,
            lambda number, _: link.StopOrder(number, run, None, "it was stopped on another host"),
        )

    def _plan_retry(self, view: rules.View, pause: float) -> None:
        self._retry_in(pause)
        self._retry_until = self._retry_due + self._guard.lease
        why = rules.verdict(view).reason
        self._here.note(self._record.attempt, "retry", f"{why}; attempt {self._record.attempt + 1} in {pause:.0f} s")
        self._report()

    def _retry_in(self, pause: float) -> None:
        self._retry_at, self._retry_due = time.time() + pause, time.monotonic() + pause

    async def _await_retry(self, view: rules.View) -> bool:
        """Start the next attempt when its time has come. Return whether the job is over instead."""
        if view.stopped is None and time.monotonic() < self._retry_due:
            return False
        if view.stopped is not None:
            if not self._client_is_late():
                return False
            self._retry_at = None
            self._report()
            await self._stop_everywhere()
            await self._finish(view)
            return True
        if self._is_past_deadline():
            self._give_up_retry(f"{rules.verdict(view).reason}; the deadline has passed")
            return False
        guard = self._guard._replace(number=self._guard.number + 1)
        record = self._record._replace(
            attempt=self._record.attempt + 1, run=secrets.token_hex(4), started=time.time(), guard=guard
        )
        trouble = await attempts.start(self._here, self._members, record)
        if trouble and self._here.is_stopped(self._record.attempt):
            with suppress(RequestFailed):  # the next step then stops the job everywhere
                self._seen = await self._here.show() or self._seen
            return False
        if trouble:
            self._retry_later(rules.verdict(view).reason, f"attempt {record.attempt} could not be started: {trouble}")
            return False
        self._here.note(record.attempt, "start", f"after the failure of attempt {self._record.attempt}")
        kept = await attempts.kept(self._here, record.run)
        if kept is not None:
            self._seen = kept
            self._begin_attempt()
        return False

    def _retry_later(self, why: str, trouble: str) -> None:
        """Try again until the lease or the deadline has passed, then fail the job."""
        now = time.monotonic()
        if self._retry_until is None:  # this guard was started again
            self._retry_until = now + self._guard.lease
        tried_for = now - (self._retry_until - self._guard.lease)
        pause = max(_AGAIN_S, tried_for)  # twice as long each time
        late = self._is_past_deadline(within=pause)
        if now < self._retry_until and not late:
            self._retry_in(pause)
            self._here.note(self._record.attempt, "retry", f"{trouble}; trying again in {pause:.0f} s")
            self._report()
            return
        self._give_up_retry(f"{why}; {trouble}{'; the deadline leaves no time to try again' if late else ''}")

    def _is_past_deadline(self, within: float = 0.0) -> bool:
        """Return whether the deadline of the job has passed, or passes ``within`` so many seconds."""
        return self._guard.deadline is not None and time.monotonic() - self._began + within > self._guard.deadline

    def _give_up_retry(self, reason: str) -> None:
        """Fail the job in place of its next attempt."""
        self._retry_at, self._final = None, True  # noted, so that it holds after a restart of this guard
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Record why the job has failed, where it does not follow from the tasks' states."""
        self._failure, self._failed_at = reason, time.time()
        self._report()

    def _report(self) -> None:
        """Write what clients, and this guard after a restart, are to know about the attempt."""
        self._here.report(
            self._record.attempt,
            wire.GuardReport(
                self._retry_at, self._failure, self._failed_at, self._succeeded, self._silent, self._all_listened,
                self._final or None, self._over or None, self._stall,
            ),
        )  # fmt: skip

    async def _finish(self, view: rules.View) -> None:
        """Tell the members, and people, that the job is over."""
        self._report_loss(view, "reboot")  # the host may not answer clients again
        await self._members.dismiss(link.JobOver(self._failure, self._failed_at), _END_S)
        self._over = True
        self._report()  # a guard that is started again now only leaves: it would notify people twice
        found = rules.verdict(view)
        if self._tell is not None and view.stopped is None and found.state in ("succeeded", "failed"):
            culprit = causes.of_job(self._record.job, zip(self._record.tasks, view.tasks)) if found.culprit else None
            await self._tell(self._record, Outcome(found.state, found.reason, found.finished, culprit))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(wire.BEAT_S)
            self._members.beat()

    def _sign_of_life(self) -> link.GuardBeat:
        return link.GuardBeat(None if self._succeeded is None else True)
