"""Ask the hosts that get no task of a job whether a job of that name has run there, or still runs."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfctl.errors import Busy
from tfctl.model.host import Host
from tfctl.node import names, wire
from tfctl.node.judge import ALIVE
from tfctl.remote.fleet import Fleet, HostOutcome
from tfctl.remote.session import ask_node

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

#: Seconds in which the hosts without a task have to answer. Then the start continues without their answers.
ANSWER_S = 5.0
#: How many of the hosts that have not answered are named.
_NAMED = 5


class OtherHosts:
    """The hosts without a task. A context manager, which closes their connections.

    Their connections are a fleet of their own, so that the job's hosts never wait for one of them.
    """

    def __init__(self, job: str, hosts: Iterable[Host], say: Callable[[str], None]) -> None:
        self._job, self._say = job, say
        self._fleet = Fleet(hosts)
        self._outcomes: queue.SimpleQueue[HostOutcome[wire.Shown]] = queue.SimpleQueue()
        self._until: float | None = None
        self._answers: dict[str, wire.Shown] | None = None

    def __enter__(self) -> OtherHosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.close()

    def ask(self) -> None:
        """Ask all hosts at once, and return. From now on they have ANSWER_S to answer."""
        self._until = time.monotonic() + ANSWER_S
        self._fleet.begin(self._ask_one, self._outcomes.put)

    def highest(self) -> int:
        """Wait for the answers. Return the job's highest attempt on these hosts, or 0.

        Name the hosts that have not answered through ``say``, once. Raise Busy if a task of the job is alive on one, or
        if a guard is about to start its next attempt.
        """
        if self._answers is None:
            self._answers = self._collect()
            self._fleet.close()
            self._report([host.name for host in self._fleet.hosts if host.name not in self._answers])
        found: dict[str, list[wire.JobStatus | wire.BriefStatus]] = {
            host: [*shown.jobs, *shown.brief] for host, shown in self._answers.items()
        }
        _require_ended(found)
        return max((job.attempt for jobs in found.values() for job in jobs), default=0)

    def _ask_one(self, connection: Connection) -> wire.Shown:
        return ask_node(connection, wire.ShowRequest(self._job, brief=True), wire.Shown, ANSWER_S)

    def _collect(self) -> dict[str, wire.Shown]:
        """Return the answers that arrive in time, by host. A host that fails in any way has no answer."""
        if self._until is None:
            self.ask()
        answers: dict[str, wire.Shown] = {}
        for _ in self._fleet.hosts:
            outcome = self._next()
            if outcome is None:
                break
            if outcome.value is not None:
                answers[outcome.host.name] = outcome.value
        return answers

    def _next(self) -> HostOutcome[wire.Shown] | None:
        """Return the next outcome, or None if there is none in time. Wake once a second, as in tfctl.remote.fleet."""
        assert self._until is not None
        while True:
            left = self._until - time.monotonic()
            with contextlib.suppress(queue.Empty):
                return self._outcomes.get(timeout=min(1.0, max(0.0, left)))
            if left <= 0:
                return None

    def _report(self, silent: list[str]) -> None:
        if silent:
            more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
            self._say(
                f"{', '.join(silent[:_NAMED])}{more} did not answer within {ANSWER_S:.0f} s, so {self._job} may also "
                "run there; `tfctl nodes` shows why"
            )


def _require_ended(found: Mapping[str, Sequence[wire.JobStatus | wire.BriefStatus]]) -> None:
    """Raise Busy if a task is alive, or will be soon. ``found``: the job on each host, if the host knows it."""
    lines: list[str] = []
    job = ""
    for host, status in ((host, status) for host, jobs in found.items() for status in jobs):
        job = status.job
        tasks = [names.task(*task.name) for task in status.tasks if task.state in ALIVE]
        run = f"run {status.run}, attempt {status.attempt}"
        if tasks:
            lines.append(f"{host}: job {status.job} runs there already ({run}): {', '.join(tasks)}")
        elif _awaits_retry(status):
            lines.append(
                f"{host}: job {status.job} failed there ({run}), and its guard will start the next attempt soon"
            )
    if lines:
        raise Busy("\n".join(lines), f"stop it first: tfctl stop {job}")


def _awaits_retry(status: wire.JobStatus | wire.BriefStatus) -> bool:
    """Return whether the guard of the job is about to start the next attempt."""
    noted = status.guard if status.guarded and status.stopped is None else None
    return noted is not None and noted.retry_at is not None
