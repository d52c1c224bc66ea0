"""What a host sends about the tasks of a job whose journal is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest
from records import make_record, make_state

from tfctl.errors import Exit, TfctlError
from tfctl.jobs.journal import HostJournal, Line, Query
from tfctl.jobs.state import JobState
from tfctl.model.host import Host, Ssh
from tfctl.node import names, wire

NODE = Host("node1", Ssh("10.0.0.1"))
STATE = JobState("digits", 1, "running", "", None, make_record(), (make_state(),))
OURS, OTHER = names.unit("digits", "worker", 0), names.unit("digits", "ps", 7)


class Channel:
    """A node part that sends ``lines`` about two units, of which the job has one task."""

    command = "tfctl-node"
    host = "node1"
    ended = False

    def __init__(self, lines: Iterable[bytes]) -> None:
        logs = wire.Logs(1, "0123abcd", {OURS: ("worker", 0), OTHER: ("ps", 7)})
        self._lines = [wire.line(logs), *lines]

    def send(self, data: bytes) -> None:
        assert wire.parse(data)["verb"] == "logs"

    def readline(self, _timeout: float | None) -> bytes:
        return self._lines.pop(0)

    def readlines(self, _timeout: float | None) -> list[bytes]:
        lines, self._lines = self._lines, []
        return lines

    def wait(self, _timeout: float) -> int:
        return 0

    def close(self) -> None:
        pass


class Connection:
    is_root = True

    def __init__(self, *lines: bytes) -> None:
        self.spares: list[Any] = []
        self._lines = lines

    def exec(self, _words: Sequence[str], _window: int | None = None) -> Channel:
        return Channel(self._lines)


def _entry(unit: str) -> bytes:
    text = f'{{"__CURSOR":"{unit}","__REALTIME_TIMESTAMP":"1000000","_SYSTEMD_UNIT":"{unit}","MESSAGE":"x"}}\n'
    return text.encode()


def test_lines_of_a_task_that_the_job_does_not_have_are_left_out() -> None:
    journal = HostJournal(NODE, STATE, Query())
    with journal.open(Connection(_entry(OURS), _entry(OTHER)), follow=False) as session:  # type: ignore[arg-type]
        found = list(chain(*journal.batches(session)))
    assert [(line.role, line.index) for line in found if isinstance(line, Line)] == [("worker", 0)]


@pytest.mark.parametrize(
    "last",
    [b"no object of JSON\n", wire.line(wire.Error(Exit.FAILED, "journalctl has ended"))],
    ids=["no line of journalctl", "an error"],
)
def test_lines_that_arrive_together_with_an_error_are_not_lost(last: bytes) -> None:
    journal = HostJournal(NODE, STATE, Query())
    with journal.open(Connection(_entry(OURS), last), follow=False) as session:  # type: ignore[arg-type]
        batches = journal.batches(session)
        assert next(batches) == []  # gaps before the first line
        assert [item.time for item in next(batches)] == [1.0]
        with pytest.raises(TfctlError, match=r"^node1: "):
            list(batches)
