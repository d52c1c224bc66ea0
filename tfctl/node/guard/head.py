"""The guard of the head: it knows the states of all tasks, follows the rules and gives orders to all hosts."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from .. import judge, wire
from . import link, rules
from .host_access import HostAccess, RequestFailed
from .member import FIRST_CONTACT_S, LOOK_S, carry_out

#: Added to the lease before the tasks of a silent host count as lost (s), at least: it may have to end them first.
_GRACE_S = 30.0
#: How much longer (s) than the grace period that may take.
_AFTER_GRACE_S = 15.0
#: How long a client may take to mark the tasks of a job on all hosts (s), before the guards do the rest of its stop.
_CLIENT_S = 5.0
#: How long an order may take beyond the grace period of the tasks (s).
_ORDER_S = 90.0
#: How long to wait at least before starting an attempt again that could not be started (s).
_AGAIN_S = 10.0
#: How long the members may take to hear that the job is over (s).
_END_S = 3.0
#: Smaller differences between clocks (s) are not corrected, as clients do not correct them.
_CLOCK_S = 2.0
#: How many connections may wait to be accepted: asyncio sets this again on the socket that systemd has opened.
_BACKLOG = 4096
#: How many connections may be authenticating at a time: tasks can connect too.
_STRANGERS = 256


Tell = Callable[[wire.Record, judge.Verdict], Awaitable[None]]


class _Member:
    """Another host. ``silent_since``: on the monotonic clock; None once it has reported the current attempt over its
    connection. ``ahead``: by how much its clock is ahead of this host's (s), as far as its reports tell."""

    def __init__(self) -> None:
        self.link: link.Link | None = None
        self.report: link.MemberReport | None = None
        self.silent_since: float | None = time.monotonic()
        self.ahead: float | None = None

    def connect(self, connection: link.Link) -> None:
        self.link, self.ahead = connection, None

    def take(self, report: link.MemberReport) -> None:
        """Note a report, and what it tells about the member's clock. Of several over one connection, the one that was
        on its way for the shortest time tells most."""
        self.report = report
        if report.time is not None:
            found = report.time - time.time()
            stepped = self.ahead is not None and found < self.ahead - wire.FOLLOW_SILENCE_S  # no report takes so long
            self.ahead = found if self.ahead is None or stepped else max(self.ahead, found)

    def by_our_clock(self, tasks: Iterable[wire.TaskStatus]) -> list[wire.TaskStatus]:
        """Return the member's tasks with their times by the clock of this host, because they are compared."""
        ahead = self.ahead or 0.0
        if abs(ahead) <= _CLOCK_S:
            return [*tasks]
        return [
            task._replace(
                started=None if task.started is None else task.started - ahead,
                finished=None if task.finished is None else task.finished - ahead,
            )
            for task in tasks
        ]

    def heard(self, run: str) -> None:
        """Note whether the member is silent about the attempt with this run. It is if it has undone its start."""
        if self.link is not None and self.report is not None and self.report.run == run:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = time.monotonic()


class Head:
    """``tell`` is awaited with the outcome of the job, to notify people."""

    def __init__(
        self, here: HostAccess, key: bytes, seen: wire.JobStatus, began: float,
        listener: socket.socket | None = None, tell: Tell | None = None,
    ) -> None:  # fmt: skip
        self._here, self._key, self._seen, self._began = here, key, seen, began
        self._listener, self._tell = listener, tell
        self._members = {task.host: _Member() for task in seen.record.tasks if task.host != here.host}
        self._strangers = asyncio.Semaphore(_STRANGERS)
        self._woken = asyncio.Event()
        self._answers: dict[int, tuple[str, asyncio.Future[str | None]]] = {}
        self._orders = 0
        self._retry_at: float | None = None
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
        # By the clock of this host, and from the disk: the limit of the start does not begin again with this guard.
        self._attempt_began, self._watched_since = self._here.began(self._record.attempt), time.monotonic()
        self._retry_at, self._failure, self._succeeded = noted.retry_at, noted.reason, noted.succeeded
        self._failed_at, self._silent = noted.finished, noted.silent
        ago = None if self._succeeded is None else max(0.0, time.time() - self._succeeded)
        self._ended_at = None if ago is None else time.monotonic() - ago
        self._retry_until, self._final, self._over = None, bool(noted.final), bool(noted.over)
        self._listened, self._cleaned = set(self._guard.servers if noted.listened else ()), set()
        self._first_tried, self._stop_seen = {}, None
        self._all_listened = noted.listened
        self._rebooted = self._here.rebooted(self._record.attempt)
        for member in self._members.values():
            member.silent_since = None
            member.heard(self._record.run)

    @property
    def _record(self) -> wire.Record:
        return self._seen.record

    @property
    def _guard(self) -> wire.RecordedGuard:
        assert self._record.guard
        return self._record.guard

    @property
    def _patience(self) -> float:
        """How long (s) a host may be silent, or may be unable to end its tasks."""
        return self._guard.lease + max(_GRACE_S, self._record.policy.grace + _AFTER_GRACE_S)

    async def run(self) -> None:
        """Return when the guard may leave."""
        server = None
        if self._listener is not None:
            server = await asyncio.start_server(self._accept, sock=self._listener, limit=link.LIMIT, backlog=_BACKLOG)
        beating = asyncio.ensure_future(self._beat())
        try:
            while not self._over and not await self._step():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), LOOK_S)
                self._woken.clear()
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
        for report in self._reports().values():
            self._listened.update(report.listening)
        if self._guard.start_timeout is not None:
            self._listened.update(self._here.listening(self._record.tasks))
        # A task that has run and ended has come up.
        self._listened.update(task.name for task in tasks if task.state in judge.ENDED)
        limited = self._guard.start_timeout is not None
        if limited and not self._all_listened and self._listened >= {*self._guard.servers}:
            self._all_listened = True
            self._report()
        view = rules.View(
            self._record, tasks, self._stopped(), time.time() - self._began, time.time() - self._attempt_began,
            listened=self._listened, cleaned=self._cleaned, failure=self._failure, final=self._final,
            watched_for=time.monotonic() - self._watched_since,
        )  # fmt: skip
        return view._replace(ended_for=self._ended_for(rules.verdict(view).state))

    def _ended_for(self, state: str) -> float:
        """Return how long ago the job has ended. If it has succeeded, note when, for a guard that is started again."""
        if state in judge.ENDED and self._ended_at is None:
            self._ended_at = time.monotonic()
            if state == "succeeded":
                self._succeeded = time.time()
                self._report()
                self._send_beats()  # before any task is stopped for that reason
        elif state not in judge.ENDED and state != "unknown":  # it is unknown until all members have reported
            self._ended_at = self._succeeded = None
        return 0.0 if self._ended_at is None else time.monotonic() - self._ended_at

    def _statuses(self) -> list[wire.TaskStatus]:
        """Return the status of each task. What a silent host has reported stays true of tasks that had ended.

        The others are lost once the host has been silent for too long, or a client has seen that it was rebooted.
        """
        reports: dict[str, Sequence[wire.TaskStatus] | None] = dict.fromkeys(self._members)
        reports.update((host, self._members[host].by_our_clock(one.tasks)) for host, one in self._reports().items())
        reports[self._here.host] = self._seen.tasks
        silent, gone = set(), set()
        for host, member in self._members.items():
            if member.silent_since is not None:
                silent.add(host)
                late = time.monotonic() - member.silent_since > self._patience
                if late or host in self._rebooted:
                    reports[host] = [one for one in reports[host] or () if one.state in judge.ENDED]
                    gone.add(host)
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
        marks = [self._seen.stopped, *(report.stopped for report in self._reports().values())]
        return min((mark for mark in marks if mark is not None), default=None)

    def _reports(self) -> dict[str, link.MemberReport]:
        """Return what members have reported about the current attempt."""
        found = {host: member.report for host, member in self._members.items()}
        return {host: report for host, report in found.items() if report and report.run == self._record.run}

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
        elif isinstance(action, rules.Finish):
            await self._finish(view)
            return True
        return False

    def _report_silent(self) -> None:
        """Record the hosts whose guards may be about to give the job up, because they cannot reach this one."""
        # The two ends of a connection notice within a beat of one another that it is broken.
        limit = min(FIRST_CONTACT_S, self._guard.lease) - wire.FOLLOW_SILENCE_S - wire.BEAT_S
        now = time.monotonic()
        silent = tuple(
            host for host, member in self._members.items()
            if member.silent_since is not None
            and (host in (self._silent or ()) or now - member.silent_since > max(0.0, limit))
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
        return await self._order(
            by_host, lambda number, host: link.StopOrder(number, run, tuple(by_host[host]), reason, overdue, give_up)
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

    def _client_is_late(self) -> bool:
        """Return whether the client that stops the job has had the time to mark the tasks on all hosts. Before, the
        events would name the guard as the one that has stopped them."""
        if self._stop_seen is None:
            self._stop_seen = time.monotonic()
        return time.monotonic() - self._stop_seen >= _CLIENT_S

    async def _stop_everywhere(self) -> None:
        unmarked = [self._here.host] if self._seen.stopped is None else []
        unmarked += [host for host, member in self._members.items() if not (member.report and member.report.stopped)]
        run = self._record.run
        await self._order(
            unmarked, lambda number, _: link.StopOrder(number, run, None, "it was stopped on another host")
        )

    def _plan_retry(self, view: rules.View, pause: float) -> None:
        self._retry_at = time.time() + pause
        self._retry_until = self._retry_at + self._guard.lease
        why = rules.verdict(view).reason
        self._here.note(self._record.attempt, "retry", f"{why}; attempt {self._record.attempt + 1} in {pause:.0f} s")
        self._report()

    async def _await_retry(self, view: rules.View) -> bool:
        """Start the next attempt when its time has come. Return whether the job is over instead."""
        if view.stopped is None and time.time() < (self._retry_at or 0.0):
            return False
        if view.stopped is not None:
            if not self._client_is_late():
                return False
            self._retry_at = None
            self._report()
            await self._stop_everywhere()
            await self._finish(view)
            return True
        guard = self._guard._replace(number=self._guard.number + 1)
        record = self._record._replace(
            attempt=self._record.attempt + 1, run=secrets.token_hex(4), started=time.time(), guard=guard
        )
        trouble = await self._start(record)
        if trouble and self._here.is_stopped(self._record.attempt):
            with suppress(RequestFailed):  # the next step then stops the job everywhere
                self._seen = await self._here.show() or self._seen
            return False
        if trouble:
            self._retry_later(rules.verdict(view).reason, f"attempt {record.attempt} could not be started: {trouble}")
            return False
        self._here.note(record.attempt, "start", f"after the failure of attempt {self._record.attempt}")
        kept = await self._kept(record.run)
        if kept is not None:
            self._seen = kept
            self._begin_attempt()
        return False

    def _retry_later(self, why: str, trouble: str) -> None:
        """Try again until the lease has passed, then fail the job."""
        now = time.time()
        if self._retry_until is None:  # this guard was started again
            self._retry_until = now + self._guard.lease
        if now < self._retry_until:
            tried_for = now - (self._retry_until - self._guard.lease)
            pause = max(_AGAIN_S, tried_for)  # twice as long each time
            self._retry_at = now + pause
            self._here.note(self._record.attempt, "retry", f"{trouble}; trying again in {pause:.0f} s")
            self._report()
            return
        self._retry_at, self._final = None, True  # noted, so that it holds after a restart of this guard
        self._fail(f"{why}; {trouble}")

    async def _start(self, record: wire.Record) -> str:
        """Start an attempt on all hosts or on none. Return why it cannot be started, or "".

        It goes on once this host has kept it. A host that does not confirm this may have kept it, and then reports it
        when its connection is back. Otherwise it counts as silent.
        """
        hosts = list(dict.fromkeys(task.host for task in record.tasks))
        silent = [host for host in hosts if host in self._members and self._members[host].link is None]
        if silent:
            return f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        first, *others = sorted(hosts)
        trouble = await self._prepare([first], record) or await self._prepare(others, record)
        trouble = trouble or await self._order(hosts, lambda number, _: link.LaunchOrder(number))
        if not trouble and self._here.is_stopped(self._record.attempt):  # meanwhile
            trouble = {self._here.host: "the job was stopped"}
        if not trouble:
            trouble = await self._order([self._here.host], lambda number, _: link.KeepOrder(number))
            if trouble and await self._kept(record.run):
                trouble = {}
        if trouble:
            await self._order(hosts, lambda number, _: link.AbortOrder(number))
            return "; ".join(trouble.values())
        await self._order(self._members, lambda number, _: link.KeepOrder(number))
        return ""

    async def _kept(self, run: str) -> wire.JobStatus | None:
        """Return the attempt with this run once this host has kept it, or None if it has undone it.

        Until one of the two has happened, the other hosts cannot be told what to do. So this waits however long the
        node part takes.
        """
        while True:
            with suppress(RequestFailed):
                seen = await self._here.show()
                if seen is None or seen.run != run:
                    return None
                if seen.kept:
                    return seen
            await asyncio.sleep(LOOK_S)

    async def _prepare(self, hosts: Iterable[str], record: wire.Record) -> Mapping[str, str]:
        """Have these hosts reserve the attempt, and return the errors by host."""
        limit = wire.RESERVE_S + _ORDER_S
        return await self._order(hosts, lambda number, _: link.PrepareOrder(number, record), limit)

    async def _order(
        self, hosts: Iterable[str], order: Callable[[int, str], link.Order], limit: float | None = None
    ) -> Mapping[str, str]:
        """Give an order to these hosts at once, and return the errors by host. ``limit``: how long it may take (s)."""
        within = self._record.policy.grace + _ORDER_S if limit is None else limit

        async def give(host: str) -> str | None:
            self._orders += 1
            number = self._orders
            if host == self._here.host:
                return await carry_out(self._here, order(number, host))
            connection = self._members[host].link
            if connection is None:
                return f"{host} does not answer"
            answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._answers[number] = host, answer
            connection.send(order(number, host))
            try:
                return await asyncio.wait_for(answer, within)
            except asyncio.TimeoutError:
                return f"{host} did not carry out an order in time"
            finally:
                self._answers.pop(number, None)

        wanted = list(hosts)
        errors = await asyncio.gather(*(give(host) for host in wanted))
        return {host: error for host, error in zip(wanted, errors) if error is not None}

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
                self._final or None, self._over or None,
            ),
        )  # fmt: skip

    async def _finish(self, view: rules.View) -> None:
        """Tell the members, and people, that the job is over."""
        self._report_loss(view, "reboot")  # the host may not answer clients again
        for member in self._members.values():
            if member.link is not None:
                member.link.send(link.JobOver(self._failure, self._failed_at))
        until = time.monotonic() + _END_S
        while time.monotonic() < until and any(member.link is not None for member in self._members.values()):
            await asyncio.sleep(0.05)
        self._over = True
        self._report()  # a guard that is started again now only leaves: it would notify people twice
        found = rules.verdict(view)
        if self._tell is not None and view.stopped is None and found.state in ("succeeded", "failed"):
            await self._tell(self._record, found)

    # The members.

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._strangers:
                connection, hello = await link.accept(reader, writer, self._key, set(self._members))
        except link.Broken:
            writer.close()
            return
        member = self._members[hello.host]
        if member.link is not None:
            member.link.close()
            self._answer_all(hello.host)
        member.connect(connection)
        connection.send(self._sign_of_life())
        try:
            while True:
                message = await connection.receive(wire.FOLLOW_SILENCE_S)
                if isinstance(message, link.MemberReport):
                    member.take(message)
                    member.heard(self._record.run)
                    self._woken.set()
                elif isinstance(message, link.OrderResult):
                    self._answer(hello.host, message.id, message.error)
        except link.Broken:
            pass
        finally:
            connection.close()
            if member.link is connection:
                member.link = None
                member.heard(self._record.run)
                self._answer_all(hello.host)
            self._woken.set()

    def _answer_all(self, host: str) -> None:
        """Let all orders fail that were given to this host over a connection that has ended."""
        for number in list(self._answers):
            self._answer(host, number, f"{host} does not answer any more")

    def _answer(self, host: str, number: int, error: str | None) -> None:
        asked, answer = self._answers.get(number, ("", None))
        if asked == host and answer is not None and not answer.done():
            answer.set_result(error)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(wire.BEAT_S)
            self._send_beats()

    def _send_beats(self) -> None:
        for member in self._members.values():
            if member.link is not None:
                member.link.send(self._sign_of_life())

    def _sign_of_life(self) -> link.GuardBeat:
        return link.GuardBeat(None if self._succeeded is None else True)
