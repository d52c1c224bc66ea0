"""The records of jobs. Each is asked for once, of one host, although all hosts of a job have it.

A host that sends another record than the one that it names can mislead about its own tasks only: the digest of each
record is compared.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError, Unreachable
from tfctl.node import wire
from tfctl.remote.session import ask_node

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


#: How many records to ask for at once: the length of an answer is limited.
_AT_ONCE = 10
#: So many hosts are asked for a record one after the other if they send another one. Then all are asked at once.
_AT_MOST = 3
#: How many records are kept: those that became known last.
_KEPT = 500


class Records:
    """The records that are known so far, by their digests. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, wire.Record] = {}
        self._others: Counter[str] = Counter()  # how many hosts have sent another record, by the digest it should have
        self._asking: dict[str, threading.Lock] = {}
        self._asking_at_once = threading.Lock()
        self._lock = threading.Lock()

    def whole(self, connection: Connection, answer: wire.Shown | wire.Events) -> tuple[wire.JobStatus, ...]:
        """Return the jobs of a host's answer, all with their records, without attempts that were deleted meanwhile.

        The first thread that lacks a record asks for it over ``connection``, and the others wait. If it fails, the next
        one asks its own host. Raises TfctlError.
        """
        self._ask_at_once(connection, answer.brief)
        found = [(one, self._record(connection, one)) for one in answer.brief]
        return *answer.jobs, *(one.whole(record) for one, record in found if record)

    def _ask_at_once(self, connection: Connection, statuses: Sequence[wire.BriefStatus]) -> None:
        """Ask for the records that are not known, if there are several. An answer may lack some or be too long."""
        if sum(one.digest not in self._known for one in statuses) < 2:
            return
        with self._asking_at_once:
            unknown = [one for one in statuses if one.digest not in self._known]
            for first in range(0, len(unknown), _AT_ONCE):
                asked = {(one.job, one.attempt, one.run): one.digest for one in unknown[first : first + _AT_ONCE]}
                request = wire.ShowRequest(jobs=tuple(job for job, _, _ in asked))
                try:
                    shown = ask_node(connection, request, wire.Shown, wire.SILENCE_S)
                except Unreachable:
                    raise
                except TfctlError:
                    return
                for job in shown.jobs:
                    if digest := asked.get((job.job, job.attempt, job.run)):
                        self._note(digest, job.record)

    def _record(self, connection: Connection, status: wire.BriefStatus) -> wire.Record | None:
        digest = status.digest
        if digest not in self._known and self._others[digest] < _AT_MOST:
            with self._lock:
                asking = self._asking.setdefault(digest, threading.Lock())
            with asking:
                if digest not in self._known:
                    return self._note(digest, _ask(connection, status))
        return self._known.get(digest) or self._note(digest, _ask(connection, status))

    def _note(self, digest: str, record: wire.Record | None) -> wire.Record | None:
        """Note the record if it is the one with this digest. Return it in any case, for the host that has sent it.

        Without that, a host could replace the record of a job on other hosts. It may also differ in good faith, if it
        has fields that only a newer tfctl knows.
        """
        if record is None:
            return None
        if hashlib.sha256(wire.record_file(record)).hexdigest() != digest:
            self._others[digest] += 1
            return record
        with self._lock:
            found = self._known.setdefault(digest, record)
            if len(self._known) > _KEPT:  # a client that serves metrics may run for months
                del self._known[next(iter(self._known))]
            return found


def _ask(connection: Connection, status: wire.BriefStatus) -> wire.Record | None:
    shown = ask_node(connection, wire.ShowRequest(status.job, status.attempt), wire.Shown, wire.SILENCE_S)
    for job in shown.jobs:
        if (job.attempt, job.run) == (status.attempt, status.run):
            return job.record
    return None
