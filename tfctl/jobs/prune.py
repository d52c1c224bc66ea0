"""Delete attempts that are over on all hosts: their records, code and restart files. Outputs stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfctl.errors import Busy, TfctlError
from tfctl.jobs import show
from tfctl.jobs.state import unknown
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import ask_node
from tfctl.wording import listed

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


@dataclass(frozen=True)
class Attempt:
    """An attempt as its hosts keep it. ``started`` is in epoch seconds, ``age`` the seconds since its end.

    ``mib``: None if unknown. ``alive``: its job runs, is being started or has a guard on one of these hosts.
    ``missing``: how many of its hosts did not report it.
    """

    name: wire.AttemptName
    started: float
    age: float
    hosts: tuple[str, ...]
    mib: int | None
    alive: bool
    missing: int


@dataclass(frozen=True)
class PruneResult:
    """``mib``: what was deleted, with code; None if unknown. ``errors``: of hosts on which not everything was."""

    attempts: tuple[Attempt, ...]
    mib: int | None
    kept: tuple[str, ...]
    errors: tuple[TfctlError, ...]


def stored(fleet: Fleet, job: str | None) -> tuple[list[Attempt], list[TfctlError]]:
    """Return all attempts of one job or of all, the last started first, and the errors of hosts that do not answer.

    Raise NotFound if no host has one of ``job``, and otherwise as `show.ask`.
    """
    answers, errors = show.ask(fleet, wire.PruneRequest(job), wire.Stored)
    found = merged({host: answer.attempts for host, answer in answers.items() if answer})
    if job is not None and not found:
        raise errors[0] if errors else unknown(job)
    return found, errors


def merged(answers: dict[str, Sequence[wire.StoredAttempt]]) -> list[Attempt]:
    """Put together what the hosts keep, the last started first."""
    parts: dict[wire.AttemptName, dict[str, wire.StoredAttempt]] = {}
    for host, attempts in answers.items():
        for each in attempts:
            parts.setdefault(wire.AttemptName(each.job, each.attempt, each.run), {})[host] = each
    alive = {each.job for attempts in answers.values() for each in attempts if each.alive}
    found = [_merged(name, by_host, name.job in alive) for name, by_host in parts.items()]
    return sorted(found, key=lambda attempt: -attempt.started)


def _merged(name: wire.AttemptName, by_host: dict[str, wire.StoredAttempt], alive: bool) -> Attempt:
    sizes = [part.mib for part in by_host.values() if part.mib is not None]
    return Attempt(
        name,
        started=max(part.started for part in by_host.values()),
        age=min(part.age for part in by_host.values()),
        hosts=tuple(by_host),
        mib=sum(sizes) if len(sizes) == len(by_host) else None,
        alive=alive,
        missing=max(0, max(part.hosts for part in by_host.values()) - len(by_host)),
    )


def choose(
    found: Sequence[Attempt],
    older_than: float | None,
    keep: int,
    silent: bool,
    say: Callable[[str], None],
    job: str | None = None,
) -> list[Attempt]:
    """Return the attempts to delete: those that are over for more than ``older_than`` (s), but for the last ``keep``.

    ``silent``: not all hosts have answered. Then an attempt that a silent host may have is kept, because it may run
    there. Raise Busy if ``job``, the only one that is meant, runs.
    """
    if job is not None and any(attempt.alive for attempt in found):
        raise Busy(f"{job} runs, or is being started; nothing of it was deleted", f"stop it first: tfctl stop {job}")
    over = [attempt for attempt in found if not attempt.alive]
    chosen = [attempt for attempt in over[keep:] if older_than is None or attempt.age > older_than]
    unsure = [attempt for attempt in chosen if silent and attempt.missing]
    if unsure:
        jobs = listed(list(dict.fromkeys(attempt.name.job for attempt in unsure)))
        say(f"{jobs}: kept, because hosts that do not answer may still run tasks")
    return [attempt for attempt in chosen if not (silent and attempt.missing)]


def prune(fleet: Fleet, chosen: Sequence[Attempt]) -> PruneResult:
    """Delete these attempts on all their hosts. What has begun to run meanwhile is kept."""
    wanted: dict[str, list[wire.AttemptName]] = {}
    for each in chosen:
        for host in each.hosts:
            wanted.setdefault(host, []).append(each.name)

    def ask(connection: Connection) -> wire.Pruned:
        request = wire.PruneRequest(attempts=tuple(wanted[connection.host.name]))
        return ask_node(connection, request, wire.Pruned, wire.SILENCE_S)

    outcomes = fleet.map(ask, [host for host in fleet.hosts if host.name in wanted])
    answers = {outcome.host.name: outcome.value for outcome in outcomes if outcome.value}
    sizes = [answer.mib for answer in answers.values() if answer.mib is not None]
    gone = {(host, name) for host, answer in answers.items() for name in answer.attempts}
    return PruneResult(
        tuple(each for each in chosen if any((host, each.name) in gone for host in each.hosts)),
        mib=sum(sizes) if len(sizes) == len(outcomes) else None,
        kept=tuple(f"{host}: {what}" for host, answer in answers.items() for what in answer.kept),
        errors=tuple(outcome.error for outcome in outcomes if outcome.error is not None),
    )
