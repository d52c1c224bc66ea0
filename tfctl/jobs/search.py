"""Search the lines of a job on its hosts: each sends what matches as soon as it is found."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError
from tfctl.jobs import clocks
from tfctl.jobs.journal import HostJournal, Item, Query
from tfctl.jobs.state import JobState
from tfctl.remote.fleet import Fleet, HostOutcome
from tfctl.remote.session import Session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


class Search:
    """A search of the hosts of a job for the lines of ``query``, in threads. `cancel` ends it early.

    ``found`` is called with the matches of one host, in order; ``done`` once for each host, with its error or None.
    Both are called from several threads.
    """

    def __init__(
        self,
        fleet: Fleet,
        state: JobState,
        query: Query,
        found: Callable[[Sequence[Item]], object],
        done: Callable[[str, TfctlError | None], object],
    ) -> None:
        self._found = found
        self._sessions: list[Session] = []
        self._cancelled = False
        self._lock = threading.Lock()
        wanted = {task.host for task in state.tasks if query.tasks is None or task.name in query.tasks}
        hosts = [host for host in fleet.hosts if host.name in wanted]
        #: How many hosts are searched.
        self.hosts = len(hosts)
        self._sources = {
            host.name: HostJournal(host, state, query, clocks.ahead(fleet.clock_offsets, host.name), len(hosts))
            for host in hosts
        }

        def over(outcome: HostOutcome[None]) -> None:
            done(outcome.host.name, outcome.error)

        self._give_up = fleet.begin(self._search, over, hosts)

    def cancel(self) -> None:
        """End the search."""
        self._give_up()
        with self._lock:
            self._cancelled = True
            sessions = [*self._sessions]
        for session in sessions:
            with suppress(TfctlError):
                session.close()

    def _search(self, connection: Connection) -> None:
        source = self._sources[connection.host.name]
        session = source.open(connection, follow=False)
        with self._lock:
            self._sessions.append(session)
            if self._cancelled:
                session.close()
                return
        for batch in source.batches(session):
            if batch and not self._cancelled:
                self._found(batch)
