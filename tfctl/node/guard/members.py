"""The other hosts of the job, as the guard of the head sees them: their connections, reports and orders."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from .. import clocks, wire
from . import link
from .host_access import HostAccess
from .member import carry_out
from .strangers import Strangers

#: How long an order may take beyond the grace period of the tasks (s).
ORDER_S = 90.0
#: The longest message of a member (bytes): the states of the tasks of one host.
_REPORT_LIMIT = 1 << 19


class _Member:
    """Another host. ``silent_since``: on the monotonic clock; None once it has reported the current attempt over its
    connection. ``ahead``: by how much its clock is ahead of this host's (s), as far as its reports tell. ``met``:
    whether it has ever connected to this guard."""

    def __init__(self) -> None:
        self.link: link.Link | None = None
        self.report: link.MemberReport | None = None
        self.silent_since: float | None = time.monotonic()
        self.ahead: float | None = None
        self.met = False

    def connect(self, connection: link.Link) -> None:
        self.link, self.ahead, self.met = connection, None, True

    def take(self, report: link.MemberReport) -> None:
        """Note a report, and what it tells about the member's clock. Of several over one connection, the one that was
        on its way for the shortest time tells most."""
        self.report = report
        if report.time is not None:
            seen = report.time - time.time()
            stepped = self.ahead is not None and seen < self.ahead - wire.FOLLOW_SILENCE_S  # no report takes so long
            self.ahead = seen if self.ahead is None or stepped else max(self.ahead, seen)

    def heard(self, run: str) -> None:
        """Note whether the member is silent about the attempt with this run. It is if it has undone its start."""
        if self.link is not None and self.report is not None and self.report.run == run:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = time.monotonic()


class Members:
    """The hosts of the job's record other than the head, ``here``. ``sign_of_life`` returns the beat to send.

    ``woken`` is set when a member has reported or its connection has ended.
    """

    def __init__(
        self, here: HostAccess, key: bytes, record: wire.Record, sign_of_life: Callable[[], link.GuardBeat]
    ) -> None:
        self._here, self._key, self._sign_of_life = here, key, sign_of_life
        self._members = {task.host: _Member() for task in record.tasks if task.host != here.host}
        self._run, self._order_limit = record.run, record.policy.grace + ORDER_S
        self._addresses = {task.address for task in record.tasks if task.host != here.host}
        self._serving: set[asyncio.Task[None]] = set()
        self._answers: dict[int, tuple[str, asyncio.Future[str | None]]] = {}
        self._orders = 0
        self.woken = asyncio.Event()

    def watch(self, run: str) -> None:
        """Begin to watch the attempt with this run."""
        self._run = run
        for member in self._members.values():
            member.silent_since = None
            member.heard(run)

    async def listen(self, listener: socket.socket) -> asyncio.AbstractServer:
        """Accept the connections of the members."""
        strangers = Strangers(self._key, self._members, self._addresses, self._welcome, _REPORT_LIMIT)
        return await strangers.listen(listener)

    # What they have reported.

    def reports(self) -> dict[str, link.MemberReport]:
        """Return what members have reported about the current attempt, by host."""
        reports = {host: member.report for host, member in self._members.items()}
        return {host: report for host, report in reports.items() if report and report.run == self._run}

    def tasks(self) -> dict[str, Sequence[wire.TaskStatus] | None]:
        """Return the tasks of each member as it has last reported them, or None, with times by this host's clock."""
        reports = self.reports()
        return {
            host: clocks.corrected_tasks(reports[host].tasks, clocks.correction(member.ahead))
            if host in reports
            else None
            for host, member in self._members.items()
        }

    def silent_for(self) -> dict[str, float]:
        """Return the hosts that do not report the current attempt at present, and for how long they have not (s)."""
        now = time.monotonic()
        return {
            host: now - member.silent_since for host, member in self._members.items() if member.silent_since is not None
        }

    def never_met(self) -> set[str]:
        """Return the hosts that have never connected to this guard."""
        return {host for host, member in self._members.items() if not member.met}

    def disconnected(self) -> list[str]:
        """Return the hosts that have no connection to this one."""
        return [host for host, member in self._members.items() if member.link is None]

    # What they are told.

    def beat(self) -> None:
        """Give all members a sign of life."""
        self._send(self._sign_of_life())

    async def dismiss(self, over: link.JobOver, within: float) -> None:
        """Tell the members that the job is over, and wait ``within`` seconds at most for them to leave."""
        self._send(over)
        until = time.monotonic() + within
        while time.monotonic() < until and len(self.disconnected()) < len(self._members):
            await asyncio.sleep(0.05)

    async def order(
        self, hosts: Iterable[str], order: Callable[[int, str], link.Order], within: float | None = None
    ) -> Mapping[str, str]:
        """Give an order to these hosts at once, and return the errors by host. The head may be one of them.

        ``order``: returns the order from its number and the name of the host. ``within``: how long a host may take (s);
        if None, as long as it may take to end tasks.
        """
        wanted = list(hosts)
        limit = self._order_limit if within is None else within
        errors = await asyncio.gather(*(self._give(host, order, limit) for host in wanted))
        return {host: error for host, error in zip(wanted, errors) if error is not None}

    async def _give(self, host: str, order: Callable[[int, str], link.Order], within: float) -> str | None:
        """Return why the host has not carried out the order, or None."""
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

    def _send(self, message: link.Message) -> None:
        for member in self._members.values():
            if member.link is not None:
                member.link.send(message)

    # Their connections.

    def _welcome(self, connection: link.Link, hello: link.MemberHello) -> None:
        task = asyncio.ensure_future(self._serve(connection, hello.host))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: link.Link, host: str) -> None:
        """Hear a member until its connection breaks. It takes the place of an earlier one."""
        member = self._members[host]
        if member.link is not None:
            member.link.close()
            self._answer_all(host)
        member.connect(connection)
        connection.send(self._sign_of_life())
        try:
            with suppress(link.Broken):
                await self._hear(connection, host)
        finally:
            connection.close()
            if member.link is connection:
                member.link = None
                member.heard(self._run)
                self._answer_all(host)
            self.woken.set()

    async def _hear(self, connection: link.Link, host: str) -> None:
        """Process the messages of a member until the connection breaks. Raises Broken."""
        member = self._members[host]
        while True:
            message = await connection.receive(wire.FOLLOW_SILENCE_S)
            if isinstance(message, link.MemberReport):
                member.take(message)
                member.heard(self._run)
                self.woken.set()
            elif isinstance(message, link.OrderResult):
                self._answer(host, message.id, message.error)

    def _answer_all(self, host: str) -> None:
        """Let all orders fail that were given to this host over a connection that has ended."""
        for number in list(self._answers):
            self._answer(host, number, f"{host} does not answer any more")

    def _answer(self, host: str, number: int, error: str | None) -> None:
        asked, answer = self._answers.get(number, ("", None))
        if asked == host and answer is not None and not answer.done():
            answer.set_result(error)
