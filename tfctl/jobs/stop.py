"""Stop a job or some of its tasks: SIGTERM, grace period, SIGKILL, and a check that nothing is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tfctl.errors import TfctlError, together
from tfctl.jobs.state import unknown
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import open_node

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection

Name = tuple[str, int]

#: Limits silence, not duration: a host that is still stopping says so every wire.BEAT_S.
_SILENCE_S = 30.0


def stop(
    fleet: Fleet, job: str, tasks: Mapping[str, Iterable[Name]] | None = None, attempt: int | None = None
) -> list[str]:
    """Stop the whole job, or ``tasks`` (by host), in ``attempt`` or the latest; return the names (``worker/3``).

    Asks every host, or only those in ``tasks``. Raise NotFound if no host knows the job. Raise the hosts' errors once
    all have been asked, and TfctlError for anything that is left.
    """

    def ask(connection: Connection) -> Any:
        chosen = None if tasks is None else [list(name) for name in tasks[connection.host.name]]
        request = wire.request("stop", job=job, attempt=attempt, tasks=chosen)
        with open_node(connection, request) as channel:
            return channel.receive(_SILENCE_S)[1]

    hosts = None if tasks is None else [host for host in fleet.hosts if host.name in tasks]
    outcomes = fleet.map(ask, hosts)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    answers = {outcome.host.name: outcome.get() for outcome in outcomes if outcome.error is None}
    errors += [TfctlError(f"{host}: {what}") for host, answer in answers.items() for what in answer["left"]]
    if errors:
        raise together(errors)
    if not any(answer["attempt"] or answer["tasks"] for answer in answers.values()):
        raise unknown(job)
    return [f"{role}/{index}" for answer in answers.values() for role, index in answer["tasks"]]
