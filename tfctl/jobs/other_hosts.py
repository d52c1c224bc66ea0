"""Ask the hosts that get no task of a job whether a job of that name has run there, runs, or is being started.

Each host admits one start of a job at a time, but does not know what happens on another. So a start asks twice: before
it reserves anything, and once all its hosts have reserved (`OtherHosts.require_alone`). A host shows a start from
before it has made anything until it has undone everything. So of two starts on different hosts, at least the one that
has reserved last sees the other one.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfctl.errors import Busy, Taken, TfctlError, together
from tfctl.model.host import Host
from tfctl.node import names, wire
from tfctl.node.judge import ALIVE
from tfctl.remote.fleet import Fleet, HostOutcome
from tfctl.remote.session import ask_node
from tfctl.wording import Lines

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

#: Seconds in which the hosts without a task have to answer. Then the start continues without their answers.
ANSWER_S = 5.0
#: How often (s) to look whether another start has ended.
_LOOK_S = 0.3
#: How many of the hosts that have not answered are named.
_NAMED = 5

#: What each host that has answered knows of the job.
_Found = Mapping[str, Sequence["wire.JobStatus | wire.BriefStatus"]]


class Outrun(Taken):
    """Another start was faster. Trying again may help, because that one may fail. ``first``: what it has."""

    def __init__(self, errors: Sequence[TfctlError]) -> None:
        error = together(errors)
        super().__init__(error.message, error.remedy)
        self.first = errors[0].message


class OtherHosts:
    """The hosts without a task. A context manager, which closes their connections.

    Their connections are a fleet of their own, so that the job's hosts never wait for one of them.
    """

    def __init__(self, job: str, hosts: Iterable[Host], say: Callable[[str], None]) -> None:
        self._job, self._say = job, say
        self._fleet = Fleet(hosts)
        self._hosts = self._fleet.hosts  # those that have answered so far
        self._question: _Question | None = None

    def __enter__(self) -> OtherHosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.close()

    def ask(self) -> None:
        """Ask all hosts at once, and return. From now on they have ANSWER_S to answer `highest`."""
        self._question = self._begin(self._hosts)

    def highest(self) -> int:
        """Wait for the answers. Return the job's highest attempt on these hosts, or 0.

        Name the hosts that have not answered through ``say``, once. Raise Busy if a task of the job runs on one, or if
        a guard is about to start its next attempt, and Outrun if another start or a guard has not decided yet.
        """
        if self._question is None:
            self.ask()
        assert self._question
        found, self._question = self._answers(self._question), None
        _require_ended(found)
        _require_none(_starts(found))
        return _highest(found)

    def require_alone(self, run: str, attempt: int, patience: float) -> None:
        """Ask again, now that all hosts of the job have reserved this attempt. Close the connections.

        Raise Outrun while another start has reserved too, unless its run sorts after ours. Such a start gives up if it
        sees ours, but may have asked before. So wait until it has either ended or started its units, at most
        ``patience`` seconds. Raise Busy as `highest` does, and Outrun if the job has run meanwhile.
        """
        until, said = time.monotonic() + patience, False
        chosen: set[str] = set()  # the hosts where another start goes on, or none to ask all
        while True:
            found = self._answers(self._begin([host for host in self._hosts if not chosen or host.name in chosen]))
            _require_ended(found)
            starts = _starts(found)
            _require_none(starts if time.monotonic() > until else [start for start in starts if start.run <= run])
            if not starts and not chosen:
                break
            chosen = {start.host for start in starts}
            if starts and not said:
                self._say(f"{starts[0].error.message}; waiting until it has ended")
                said = True
            if starts:
                time.sleep(_LOOK_S)
        if _highest(found) >= attempt:
            raise Outrun([Busy(f"{self._job} has been started and has ended meanwhile", "start it again")])
        self._fleet.close()

    def _begin(self, hosts: Sequence[Host]) -> _Question:
        outcomes: queue.SimpleQueue[HostOutcome[wire.Shown]] = queue.SimpleQueue()
        give_up = self._fleet.begin(self._ask_one, outcomes.put, hosts)
        return _Question(hosts, outcomes, time.monotonic() + ANSWER_S, give_up)

    def _ask_one(self, connection: Connection) -> wire.Shown:
        return ask_node(connection, wire.ShowRequest(self._job, brief=True), wire.Shown, ANSWER_S)

    def _answers(self, question: _Question) -> _Found:
        """Wait for the answers. Ask no host again that does not answer in time or fails in any way, and report it."""
        found: dict[str, Sequence[wire.JobStatus | wire.BriefStatus]] = {}
        for _ in question.hosts:
            outcome = question.next()
            if outcome is None:
                question.give_up()
                break
            if outcome.value is not None:
                found[outcome.host.name] = (*outcome.value.jobs, *outcome.value.brief)
        silent = [host.name for host in question.hosts if host.name not in found]
        if silent:
            self._hosts = tuple(host for host in self._hosts if host.name not in silent)
            self._report(silent)
        return found

    def _report(self, silent: list[str]) -> None:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        self._say(
            f"{', '.join(silent[:_NAMED])}{more} did not answer within {ANSWER_S:.0f} s, so {self._job} may also "
            "run there; `tfctl nodes` shows why"
        )


class _Question(NamedTuple):
    """A question to these hosts. ``until``: when their answers must be there, by time.monotonic. ``give_up``: ask no
    host that could not be asked by then."""

    hosts: Sequence[Host]
    outcomes: queue.SimpleQueue[HostOutcome[wire.Shown]]
    until: float
    give_up: Callable[[], None]

    def next(self) -> HostOutcome[wire.Shown] | None:
        """Return the next outcome, or None if there is none in time. Wake once a second, as in tfctl.remote.fleet."""
        while True:
            left = self.until - time.monotonic()
            with contextlib.suppress(queue.Empty):
                return self.outcomes.get(timeout=min(1.0, max(0.0, left)))
            if left <= 0:
                return None


class _Start(NamedTuple):
    """What may still start tasks of the job on a host: another start, whose ``run`` this is, or its guard, which gives
    up for nobody, so that ``run`` is empty."""

    host: str
    run: str
    error: TfctlError


def _highest(found: _Found) -> int:
    return max((status.attempt for jobs in found.values() for status in jobs), default=0)


def _starts(found: _Found) -> list[_Start]:
    """Return the starts of the job that go on, and the guards that have not yet decided what follows its end."""
    starts = []
    for host, status in ((host, status) for host, jobs in found.items() for status in jobs):
        which = f"(run {status.run}, attempt {status.attempt})"
        if status.kept is False:
            what = f"{host}: another start of job {status.job} is in progress there {which}"
            starts.append(_Start(host, status.run, Busy(what, "try again")))
        elif status.guarded and status.stopped is None and not (status.guard and status.guard.over):
            what = f"{host}: the guard of job {status.job} still runs there {which}"
            starts.append(_Start(host, "", Busy(what, f"stop it first: tfctl stop {status.job}")))
    return starts


def _require_none(starts: Sequence[_Start]) -> None:
    if starts:
        raise Outrun([start.error for start in starts])


def _require_ended(found: _Found) -> None:
    """Raise Busy if a task runs, or will run soon."""
    lines: list[str] = []
    job = ""
    for host, status in ((host, status) for host, jobs in found.items() for status in jobs):
        job = status.job
        states = {names.task(*task.name): task.state for task in status.tasks if task.state in ALIVE}
        run = f"run {status.run}, attempt {status.attempt}"
        if any(state != "pending" for state in states.values()):
            lines.append(f"{host}: job {status.job} runs there already ({run}): {', '.join(states)}")
        elif _awaits_retry(status):
            lines.append(
                f"{host}: job {status.job} failed there ({run}), and its guard will start the next attempt soon"
            )
    if lines:
        raise Busy(Lines(*lines), f"stop it first: tfctl stop {job}")


def _awaits_retry(status: wire.JobStatus | wire.BriefStatus) -> bool:
    """Return whether the guard of the job is about to start the next attempt."""
    noted = status.guard if status.guarded and status.stopped is None else None
    return noted is not None and noted.retry_at is not None
