"""What happened to a job, in order of time. One exec per host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfctl.errors import TfctlError
from tfctl.jobs import clocks, show, state
from tfctl.jobs.state import JobState
from tfctl.node import names, wire
from tfctl.remote.fleet import Fleet

#: Order of events with equal times: tasks begin after their job starts and end before it ends.
_RANK = {"start": 0, "succeeded": 2, "failed": 2}


@dataclass(frozen=True)
class Event:
    """One event: start, stop or restart (by a user), begin or end (of a task's run), succeeded or failed (of the job).

    ``time`` is in epoch seconds, corrected if ``host``'s clock is wrong. ``role``, ``index`` and ``host`` are None for
    the whole job.
    """

    time: float
    attempt: int
    event: str
    role: str | None = None
    index: int | None = None
    host: str | None = None
    by: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    oom: bool | None = None
    reason: str = ""

    @property
    def task(self) -> str:
        return "" if self.role is None or self.index is None else names.task(self.role, self.index)


def events(fleet: Fleet, job: str) -> tuple[JobState, list[Event], list[TfctlError]]:
    """Return the job's current state, the events of all its attempts, and the errors of hosts that did not answer.

    Raise as show.one if no host that answers knows the job; otherwise raises as show.ask.
    """
    answers, errors = show.ask(fleet, wire.EventsRequest(job), wire.Events)
    shown = {host: answer and answer.jobs for host, answer in answers.items()}
    known = state.jobs(shown, fleet.clock_offsets)
    if not known:
        raise state.unknown(job, errors)
    reported = {host: answer.events for host, answer in answers.items() if answer}
    return known[0], merged(known[0], reported, fleet.clock_offsets), errors


def merged(
    now: JobState, reported: Mapping[str, Sequence[wire.Event]], offsets: Mapping[str, float] | None = None
) -> list[Event]:
    """Merge what each host reported. Every host reports events of the whole job; keep the earliest of those that differ
    only in time.

    ``offsets``: by how many seconds the clocks of hosts are ahead of this machine's.
    """
    found: list[Event] = []
    whole: dict[tuple[int, str, str | None, str], Event] = {}
    for host, events in reported.items():
        ahead = clocks.ahead(offsets, host)
        for one in (event._replace(time=event.time - ahead) for event in events):
            if one.role is not None:
                found.append(_event(one, host))
                continue
            event = _event(one)
            # A guard may do several things of one name, as to notify by a program and by a POST. But the start of an
            # attempt is one event: its hosts note it without a reason, and the head, which knows the reason, too.
            key = (event.attempt, event.event, event.by, "" if event.event == "start" else event.reason or "")
            before = whole.get(key, event)
            whole[key] = replace(min(before, event, key=lambda one: one.time), reason=before.reason or event.reason)
    found += whole.values()
    if now.state in ("succeeded", "failed") and now.finished is not None:
        found.append(Event(now.finished, now.attempt, now.state, reason=now.reason))
    return sorted(found, key=lambda event: (round(event.time, 3), _RANK.get(event.event, 1)))


def _event(reported: wire.Event, host: str | None = None) -> Event:
    return Event(host=host, **reported._asdict())
