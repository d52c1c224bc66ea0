"""Ask the hosts about their jobs. One exec per host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfctl.errors import NotFound, TfctlError, UsageError, together
from tfctl.jobs import state
from tfctl.jobs.state import JobState
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import open_node

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection

_ANSWER_S = 30.0


def ask(fleet: Fleet, request: bytes) -> tuple[dict[str, Any], list[TfctlError]]:
    """Return each host's answer to ``request`` (from wire.request), or None, and the errors of those without one.

    Raise those errors as one if no host answers.
    """

    def ask_one(connection: Connection) -> Any:
        with open_node(connection, request) as channel:
            return channel.receive(_ANSWER_S)[1]

    outcomes = fleet.map(ask_one)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if len(errors) == len(outcomes):
        raise together(errors)
    return {outcome.host.name: outcome.value for outcome in outcomes}, errors


def jobs(fleet: Fleet, job: str | None = None) -> tuple[list[JobState], list[TfctlError]]:
    """Return every job, or that one, the last started first, and the errors of silent hosts. Raises as `ask`."""
    answers, errors = ask(fleet, wire.request("show", job=job, attempt=None, follow=False))
    return state.jobs({host: answer and answer["jobs"] for host, answer in answers.items()}), errors


def one(fleet: Fleet, job: str | None, changes: bool = False) -> tuple[JobState, list[TfctlError]]:
    """Return the named job. Without a name, return the only one that has not ended, else the one started last.

    With ``changes``, the command alters the job, so the name may be omitted only if exactly one job runs or, if none
    runs, exactly one ended job still has live tasks. Raise NotFound, or UsageError if a name is needed.
    """
    found, errors = jobs(fleet, job)
    if job is not None:
        if not found:
            raise state.unknown(job)
        return found[0], errors
    going = [each for each in found if not each.ended]
    if changes and not going:
        going = [each for each in found if each.alive]
    if len(going) == 1:
        return going[0], errors
    if changes:
        names = ", ".join(each.job for each in going) or "none"
        raise UsageError(f"which job? running: {names}", "name it")
    if not found:
        raise NotFound("no host knows a job", "start one: tfctl start job.yaml")
    return found[0], errors
