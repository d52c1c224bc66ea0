"""Read the samples that hosts keep of a job: what its tasks use, and how far they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError
from tfctl.jobs import clocks
from tfctl.jobs.state import JobState
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import open_session, window

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


def read(
    fleet: Fleet, state: JobState, attempt: int, since: Mapping[str, float]
) -> tuple[dict[str, list[wire.Sample]], list[TfctlError]]:
    """Return the samples of an attempt by host, oldest first, and the errors of hosts that did not answer.

    ``since``: for a host, only those after this time. Times are in epoch seconds, corrected if a host's clock is wrong.
    """

    def ask(connection: Connection) -> list[wire.Sample]:
        host, asked = connection.host.name, time.time()
        ahead = clocks.ahead(fleet.clock_offsets, host)
        after = since[host] + ahead if host in since else None
        found: list[wire.Sample] = []
        with open_session(
            connection, wire.SamplesRequest(state.job, attempt, after), window(len(fleet.hosts))
        ) as open_:
            last = False
            while not last:
                part = open_.expect(wire.Samples, wire.SILENCE_S)
                found += part.samples
                last = part.last
            fleet.clock_offsets[host] = clocks.offset(asked, part.time, time.time())
        ahead = clocks.ahead(fleet.clock_offsets, host)
        return [sample._replace(time=sample.time - ahead) for sample in found] if ahead else found

    outcomes = fleet.map(ask, [host for host in fleet.hosts if host.name in state.hosts])
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    return {outcome.host.name: outcome.get() for outcome in outcomes if outcome.error is None}, errors
