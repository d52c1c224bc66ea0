"""The verb `samples`: send what the guard has kept of the samples of a job and, with follow, those that come."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .. import fields, jobstore, samples, wire
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System, host

#: How many tasks there may be in the samples of a message.
_ROWS = 20_000
#: How often (s) to look for new samples.
_LOOK_S = 1.0


def run(system: System, session: NodeSession, request: wire.SamplesRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    job = fields.job_name(request.job)
    attempt = fields.optional_attempt(request.attempt) or jobstore.latest(system, job)
    if not attempt or jobstore.record(system, job, attempt) is None:
        raise RequestRefused(Exit.NOT_FOUND, f"{host()} has no attempt of job {job}", "tfctl list shows the jobs")
    stamp, since = samples.stamp(system, job, attempt), request.since or 0.0
    found = samples.read(system, job, attempt, since)
    _send(session, attempt, found)
    beat = session.heartbeat()
    while request.follow and not session.heard_of_end(_LOOK_S):
        beat()
        if request.attempt is None and jobstore.latest(system, job) != attempt:
            attempt, found, since = jobstore.latest(system, job), [], 0.0
        if found:
            since = found[-1].time
        if samples.stamp(system, job, attempt) != stamp:
            stamp = samples.stamp(system, job, attempt)
            found = samples.read(system, job, attempt, since)
            _send(session, attempt, found)


def _send(session: NodeSession, attempt: int, found: Sequence[wire.Sample]) -> None:
    each = max(1, _ROWS // max(1, max((len(one.tasks) for one in found), default=1)))
    for start in range(0, max(1, len(found)), each):
        some = tuple(found[start : start + each])
        session.send(wire.Samples(attempt, some, last=start + each >= len(found), time=time.time()))
