"""The guard of a host that is not the head: report to the head, carry out its orders, end the tasks if it is silent."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from .. import judge, wire
from . import link
from .host_access import HostAccess, RequestFailed
from .stalls import Watcher

#: How often to look for changes (s).
LOOK_S = 1.0
#: How long the first contact with the head may take (s).
FIRST_CONTACT_S = 60.0
_RECONNECT_S = 2.0
#: How long to wait before trying again to end tasks (s).
_AGAIN_S = 10.0
#: How long a member whose job was stopped tries to tell the head (s).
_STOPPED_S = 60.0


class Member:
    """``seen``: the job as `HostAccess.show` first reports it. ``watcher``: knows which tasks make progress, if that
    has a limit."""

    def __init__(self, here: HostAccess, key: bytes, seen: wire.JobStatus, watcher: Watcher | None = None) -> None:
        self._here, self._key, self._seen, self._watcher = here, key, seen, watcher
        self._contact = time.monotonic()
        self._met = self._succeeded = False
        self._link: link.Link | None = None
        self._listening: tuple[wire.TaskName, ...] = ()
        self._pace: link.Pace | None = None
        self._ended: link.JobOver | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Return when the guard may leave."""
        connecting = asyncio.ensure_future(self._stay_connected())
        try:
            while self._ended is None and not self._is_alone():
                await asyncio.sleep(LOOK_S)
                if self._here.changed():
                    await self._look()
                if self._more_tasks_listen() or self._pace_has_changed():
                    self._tell()
        finally:
            connecting.cancel()
        if self._ended is not None:
            self._note(self._ended.reason, self._ended.finished)
        else:
            await self._give_up()

    @property
    def _guard(self) -> wire.RecordedGuard:
        assert self._seen.record.guard
        return self._seen.record.guard

    async def _look(self) -> None:
        with suppress(RequestFailed):
            before, self._seen = self._seen.run, await self._here.show() or self._seen
            if self._seen.run != before:
                self._listening = ()
            self._tell()

    def _more_tasks_listen(self) -> bool:
        """Return whether more tasks listen than before. It matters only if the start has a limit, and until all listen:
        to read the connections of a busy server every second takes much time."""
        here = {task.name for task in self._seen.record.tasks if task.host == self._here.host}
        if self._guard.start_timeout is None or set(self._listening) >= here & set(self._guard.servers):
            return False
        before, self._listening = self._listening, self._here.listening(self._seen.record.tasks)
        return set(self._listening) != set(before)

    def _pace_has_changed(self) -> bool:
        """Return whether other tasks make progress than before."""
        before, self._pace = self._pace, None if self._watcher is None else self._watcher.pace(self._seen.attempt)
        return (before and before.names) != (self._pace and self._pace.names)

    def _tell(self) -> None:
        if self._link is not None:
            seen = self._seen
            self._link.send(
                link.MemberReport(seen.run, seen.tasks, seen.stopped, self._listening, time.time(), self._pace)
            )

    @property
    def _alive(self) -> tuple[wire.TaskName, ...]:
        return tuple(task.name for task in self._seen.tasks if task.state in judge.ALIVE)

    @property
    def _limit(self) -> float:
        """How long (s) the head may be silent."""
        return self._guard.lease if self._met else min(FIRST_CONTACT_S, self._guard.lease)

    def _is_alone(self) -> bool:
        """Return whether the head has been silent for too long."""
        is_over = self._seen.stopped is not None and not self._alive
        return time.monotonic() - self._contact > (_STOPPED_S if is_over else self._limit)

    async def _give_up(self) -> None:
        """End the tasks of this host, because the head has been silent for too long.

        That fails the job if the silence keeps it from going on, but not if it had succeeded or had nothing left to do
        here.
        """
        limit, head = self._limit, self._guard.head
        why = f"{self._here.host} has not heard from the guard on {head} for {limit:.0f} s (policy: lease)"
        failed = not self._succeeded and bool(self._alive or self._may_await_retry())
        await self._here.abort()
        await self._end_tasks(why)
        if failed:
            self._note(why, time.time())
        while self._alive:  # nobody else would end them
            await asyncio.sleep(_AGAIN_S)
            await self._end_tasks(why)

    async def _end_tasks(self, why: str) -> None:
        """Try to end the tasks that are alive, and look what is left of them."""
        if self._alive:
            request = wire.StopRequest(self._here.job, None, self._alive, self._seen.run, reason=why)
            with suppress(RequestFailed):
                await self._here.stop(request)
            await self._look()

    def _may_await_retry(self) -> bool:
        """Return whether the job may be between two attempts: the head has stopped tasks here, and no user has."""
        return self._seen.stopped is None and any(task.state == "stopped" for task in self._seen.tasks)

    def _note(self, reason: str, finished: float | None) -> None:
        if reason:
            self._here.report(self._seen.attempt, wire.GuardReport(None, reason, finished))

    async def _stay_connected(self) -> None:
        while True:
            guard = self._guard
            with suppress(link.Broken):
                self._link = await link.connect(
                    guard.address, guard.port, self._key, self._here.host, self._seen.record.run
                )
                self._contact, self._met = time.monotonic(), True
                beating = asyncio.ensure_future(_beat(self._link))
                try:
                    self._tell()
                    await self._obey(self._link)
                finally:
                    beating.cancel()
                    self._link.close()
                    self._link = None
            await self._here.abort()
            await asyncio.sleep(_RECONNECT_S)

    async def _obey(self, connection: link.Link) -> None:
        while True:
            message = await connection.receive(wire.FOLLOW_SILENCE_S)
            self._contact = time.monotonic()
            if isinstance(message, link.GuardBeat):
                self._succeeded = bool(message.succeeded)
            if isinstance(message, link.JobOver):
                self._ended = message
                return
            if isinstance(
                message,
                (link.StopOrder, link.PrepareOrder, link.LaunchOrder, link.KeepOrder, link.AbortOrder,
                 link.NoteStallOrder),
            ):  # fmt: skip
                # In a task of its own, so that this one hears the head while the tasks take their time to end.
                task = asyncio.ensure_future(self._carry_out(connection, message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _carry_out(self, connection: link.Link, order: link.Order) -> None:
        error = await carry_out(self._here, order)
        await self._look()
        connection.send(link.OrderResult(order.id, error))


async def carry_out(here: HostAccess, order: link.Order) -> str | None:
    """Carry out an order on this host. Return why it failed, or None."""
    try:
        if isinstance(order, link.StopOrder):
            await here.stop(
                wire.StopRequest(
                    here.job,
                    None,
                    order.tasks,
                    order.run,
                    reason=order.reason,
                    overdue=order.overdue,
                    give_up=order.give_up,
                )
            )
        elif isinstance(order, link.PrepareOrder):
            await here.prepare(order.record)
        elif isinstance(order, link.LaunchOrder):
            await here.launch()
        elif isinstance(order, link.KeepOrder):
            await here.keep()
        elif isinstance(order, link.NoteStallOrder):
            await here.note_stall(order.run, order.attempt)
        else:
            await here.abort()
    except RequestFailed as failed:
        return str(failed)
    return None


async def _beat(connection: link.Link) -> None:
    while True:
        await asyncio.sleep(wire.BEAT_S)
        connection.send(link.GuardBeat())
