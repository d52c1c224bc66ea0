"""All jobs and all hosts, each host asked once, and within a limit of time: for `tfctl metrics` and the page."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError, Unreachable
from tfctl.jobs import show
from tfctl.jobs.past import PastJob
from tfctl.jobs.state import JobState
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet, HostOutcome

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

#: How long (s) a scrape waits for hosts. Prometheus waits for ten seconds by default.
LIMIT_S = 8.0


@dataclass(frozen=True)
class Scrape:
    """``hosts``: each host of the inventory, and what it has answered or None. ``errors``: what has failed. ``time``:
    when it began, in epoch seconds; ``seconds``: how long it has taken. ``silent``: the hosts that have not answered,
    with their last errors, or None as long as there may still be an answer."""

    jobs: Sequence[JobState | PastJob]
    hosts: Sequence[tuple[Host, wire.Node | None]]
    errors: Sequence[TfctlError] = ()
    time: float = 0.0
    seconds: float = 0.0
    silent: Mapping[str, TfctlError | None] = field(default_factory=dict)


class Scraper:
    """Asks the hosts of a fleet again and again. Thread-safe.

    ``limit``: how long (s) to wait for hosts; without one, as long as other commands do. A host that has not answered
    by then counts as silent, and is not asked again before its answer or an error has arrived. ``nodes_every``: how
    old (s) an answer about a host itself, its GPUs and disks, may be.
    """

    def __init__(self, fleet: Fleet, limit: float | None = None, nodes_every: float = 0.0) -> None:
        self._fleet, self._limit, self._nodes_every = fleet, limit, nodes_every
        self._asked: set[str] = set()  # hosts
        self._failed: dict[str, TfctlError] = {}  # why hosts have not answered when they were asked last
        self._nodes: dict[str, tuple[float, wire.Node]] = {}  # with the time of the answer (time.monotonic)
        self._scraping = threading.Lock()
        self._last: tuple[float, Scrape] | None = None

    def scrape(self) -> Scrape:
        """Ask all hosts. Callers that have waited while another one asked get the same answers."""
        called = time.monotonic()
        with self._scraping:
            if self._last is None or self._last[0] < called:
                found = self._scrape()
                self._last = time.monotonic(), found
            return self._last[1]

    def _scrape(self) -> Scrape:
        began, now = time.monotonic(), time.time()
        outcomes = self._ask_all()
        shown = {name: outcome.value and outcome.value[0] for name, outcome in outcomes.items()}
        nodes = [(host, (value := outcomes[host.name].value) and value[1]) for host in self._fleet.hosts]
        errors = [outcome.error for outcome in outcomes.values() if outcome.error]
        jobs: list[JobState | PastJob] = []
        try:
            jobs = show.merged(self._fleet, shown)
        except TfctlError as error:  # no host has answered the second question
            errors.append(error)
        silent = {name: self._failed.get(name) for name, outcome in outcomes.items() if outcome.error is not None}
        return Scrape(jobs, nodes, errors, now, time.monotonic() - began, silent)

    def _ask_all(self) -> dict[str, HostOutcome[tuple[wire.Shown, wire.Node]]]:
        """Return the outcome of every host."""
        end = time.monotonic() + (float("inf") if self._limit is None else self._limit)
        hosts = [host for host in self._fleet.hosts if host.name not in self._asked]
        outcomes: dict[str, HostOutcome[tuple[wire.Shown, wire.Node]]] = {}
        over = threading.Event()

        def done(outcome: HostOutcome[tuple[wire.Shown, wire.Node]]) -> None:
            name = outcome.host.name
            if outcome.error is None:
                self._failed.pop(name, None)
            else:
                self._failed[name] = outcome.error
            self._asked.discard(name)
            outcomes[name] = outcome
            if len(outcomes) == len(hosts):
                over.set()

        self._asked.update(host.name for host in hosts)
        self._fleet.begin(self._ask, done, hosts)
        # Wake once a second, because Ctrl-C does not end a wait that is just about to begin.
        while hosts and not over.wait(max(0.0, min(1.0, end - time.monotonic()))) and time.monotonic() < end:
            pass
        late = {
            host.name: HostOutcome[tuple[wire.Shown, wire.Node]](host, error=_late(host)) for host in self._fleet.hosts
        }
        return {**late, **outcomes}

    def _ask(self, connection: Connection) -> tuple[wire.Shown, wire.Node]:
        name = connection.host.name
        shown = show.ask_host(self._fleet, connection, show.OVERVIEW, wire.Shown)
        asked, node = self._nodes.get(name, (0.0, None))
        if node is None or time.monotonic() - asked >= self._nodes_every:
            node = show.ask_host(self._fleet, connection, wire.NodesRequest(brief=True), wire.Node)
            self._nodes[name] = time.monotonic(), node
        return shown, node


def _late(host: Host) -> Unreachable:
    error = Unreachable(f"{host.name}: no answer in time", "tfctl nodes shows why")
    error.hosts = (host.name,)
    return error
