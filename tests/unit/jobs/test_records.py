"""The record of a job is asked of one host, and of another if that one fails."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from records import make_record

from tfctl.errors import Unreachable
from tfctl.model.host import Host, Ssh
from tfctl.node import wire
from tfctl.remote.records import Records

RECORD = make_record()


def brief(record: wire.Record) -> wire.BriefStatus:
    """Return what a host answers that has this record."""
    digest = hashlib.sha256(wire.record_file(record)).hexdigest()
    return wire.BriefStatus(record.job, 1, record.run, digest, None, ())


STATUS = brief(RECORD)
SHOWN = wire.Shown((), brief=(STATUS,))


class Channel:
    """A node part that answers every request with the whole job, or breaks off."""

    command = "tfctl-node"
    ended = False

    def __init__(self, host: str, asked: list[str], works: bool, jobs: Sequence[wire.JobStatus]) -> None:
        self.host, self._asked, self._works, self._jobs = host, asked, works, tuple(jobs)

    def send(self, data: bytes) -> None:
        assert wire.parse(data)["verb"] == "show"
        self._asked.append(self.host)

    def readline(self, _timeout: float | None) -> bytes:
        if not self._works:
            raise Unreachable(f"{self.host}: the connection broke")
        return wire.line(wire.Shown(self._jobs))

    def close(self) -> None:
        pass


class Connection:
    """A connection to such a node part. ``asked``: the hosts that were. ``jobs``: what the host has."""

    is_root = True

    def __init__(
        self, name: str, asked: list[str], works: bool = True, jobs: Sequence[wire.JobStatus] = (STATUS.whole(RECORD),)
    ) -> None:
        self.spares: list[Any] = []
        self.host, self._asked, self._works, self._jobs = Host(name, Ssh("10.0.0.1")), asked, works, jobs

    def exec(self, _words: Sequence[str], _window: int | None = None) -> Channel:
        return Channel(self.host.name, self._asked, self._works, self._jobs)

    def close(self) -> None:
        pass


def test_one_of_many_hosts_is_asked_for_the_record() -> None:
    asked: list[str] = []
    records = Records()
    found: list[tuple[wire.JobStatus, ...]] = []

    def answer(number: int) -> None:
        found.append(records.whole(Connection(f"node{number}", asked), SHOWN))  # type: ignore[arg-type]

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [(STATUS.whole(RECORD),)] * 50
    assert all(jobs[0].record is found[0][0].record for jobs in found), "it is in memory once"
    assert len(asked) == 1


def test_another_host_is_asked_when_one_breaks_off() -> None:
    asked: list[str] = []
    records = Records()
    with pytest.raises(Unreachable, match="node1"):
        records.whole(Connection("node1", asked, works=False), SHOWN)  # type: ignore[arg-type]
    assert records.whole(Connection("node2", asked), SHOWN)[0].record == RECORD  # type: ignore[arg-type]
    assert asked == ["node1", "node2"]


def test_nobody_is_asked_when_an_older_host_has_sent_the_record() -> None:
    asked: list[str] = []
    shown = wire.Shown((STATUS.whole(RECORD),))
    assert Records().whole(Connection("node1", asked), shown) == shown.jobs  # type: ignore[arg-type]
    assert asked == []


def test_attempt_that_was_deleted_meanwhile_is_left_out() -> None:
    assert Records().whole(Connection("node1", [], jobs=()), SHOWN) == ()  # type: ignore[arg-type]


def test_all_records_that_an_answer_lacks_are_asked_for_at_once() -> None:
    records = [make_record(job=f"job{number}") for number in range(12)]
    statuses = [brief(each) for each in records]
    whole = tuple(status.whole(record) for status, record in zip(statuses, records, strict=True))
    asked: list[str] = []
    answer = wire.Shown((), brief=tuple(statuses))
    assert Records().whole(Connection("node1", asked, jobs=whole), answer) == whole  # type: ignore[arg-type]
    assert len(asked) == 2, "10 at most at a time"


def test_a_record_that_is_missing_in_an_answer_about_several_is_asked_for_alone() -> None:
    gone = wire.BriefStatus("gone", 1, "ffffffff", "d2", None, ())
    asked: list[str] = []
    answer = wire.Shown((), brief=(STATUS, gone))
    assert Records().whole(Connection("node1", asked), answer) == (STATUS.whole(RECORD),)  # type: ignore[arg-type]
    assert len(asked) == 2


@pytest.mark.parametrize("several", [False, True])
def test_a_host_cannot_replace_the_record_of_the_job_on_other_hosts(several: bool) -> None:
    """``several``: it is asked for several records at once."""
    more = brief(make_record(job="other"))
    shown = wire.Shown((), brief=(STATUS, more) if several else (STATUS,))
    forged = RECORD._replace(output="/srv/elsewhere")
    asked: list[str] = []
    records = Records()
    liar = Connection("node1", asked, jobs=[STATUS.whole(forged), more.whole(make_record(job="other"))])
    assert records.whole(liar, shown)[0].record == forged  # type: ignore[arg-type]
    for name in ("node2", "node3"):
        assert records.whole(Connection(name, asked), SHOWN) == (STATUS.whole(RECORD),)  # type: ignore[arg-type]
    assert asked.count("node2") == 1 and "node3" not in asked


def test_all_hosts_are_asked_at_once_when_several_have_sent_another_record() -> None:
    """They do not wait for one another, for example because this tfctl does not know all fields of the record."""
    forged = RECORD._replace(output="/srv/elsewhere")
    asked: list[str] = []
    records = Records()
    for number in range(5):
        liar = Connection(f"node{number}", asked, jobs=[STATUS.whole(forged)])
        assert records.whole(liar, SHOWN)[0].record == forged  # type: ignore[arg-type]
    assert asked == [f"node{number}" for number in range(5)]
    assert records.whole(Connection("node9", asked), SHOWN)[0].record == RECORD  # type: ignore[arg-type]
