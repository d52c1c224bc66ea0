"""The records of jobs. Each is asked for once, of one host, although all hosts of a job have it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tfctl.node import wire
from tfctl.remote.session import open_session

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


class Records:
    """The records that are known so far, by their digests. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, wire.Record] = {}
        self._asking: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def whole(self, connection: Connection, answer: wire.Shown | wire.Events) -> tuple[wire.JobStatus, ...]:
        """Return the jobs of a host's answer, all with their records, without attempts that were deleted meanwhile.

        The first thread that lacks a record asks for it over ``connection``, and the others wait. If it fails, the next
        one asks its own host. Raises TfctlError.
        """
        found = [(one, self._record(connection, one)) for one in answer.brief]
        return *answer.jobs, *(one.whole(record) for one, record in found if record)

    def _record(self, connection: Connection, status: wire.BriefStatus) -> wire.Record | None:
        if status.digest not in self._known:
            with self._lock:
                asking = self._asking.setdefault(status.digest, threading.Lock())
            with asking:
                if status.digest not in self._known and (record := _ask(connection, status)):
                    self._known[status.digest] = record
        return self._known.get(status.digest)


def _ask(connection: Connection, status: wire.BriefStatus) -> wire.Record | None:
    with open_session(connection, wire.ShowRequest(status.job, status.attempt)) as session:
        shown = session.expect(wire.Shown, wire.SILENCE_S)
    for job in shown.jobs:
        if (job.attempt, job.run) == (status.attempt, status.run):
            return job.record
    return None
