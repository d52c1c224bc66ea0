"""What a host sends about the tasks of a job whose journal is read."""

from __future__ import annotations

from collections.abc import Sequence

from records import make_record, make_state

from tfctl.jobs.journal import HostJournal, Line, Query
from tfctl.jobs.state import JobState
from tfctl.model.host import Host, Ssh
from tfctl.node import names, wire

NODE = Host("node1", Ssh("10.0.0.1"))
OURS, OTHER = names.unit("digits", "worker", 0), names.unit("digits", "ps", 7)


class Channel:
    """A node part that sends the lines of two units, of which the job has one task."""

    command = "tfctl-node"
    host = "node1"
    ended = False

    def __init__(self) -> None:
        logs = wire.Logs(1, "0123abcd", {OURS: ("worker", 0), OTHER: ("ps", 7)})
        self._lines = [wire.line(logs), *map(_entry, (OURS, OTHER))]

    def send(self, data: bytes) -> None:
        assert wire.parse(data)["verb"] == "logs"

    def readline(self, _timeout: float | None) -> bytes:
        return self._lines.pop(0) if self._lines else b""

    def wait(self, _timeout: float) -> int:
        return 0

    def close(self) -> None:
        pass


class Connection:
    is_root = True

    def exec(self, _words: Sequence[str], _window: int | None = None) -> Channel:
        return Channel()


def _entry(unit: str) -> bytes:
    text = f'{{"__CURSOR":"{unit}","__REALTIME_TIMESTAMP":"1000000","_SYSTEMD_UNIT":"{unit}","MESSAGE":"x"}}\n'
    return text.encode()


def test_lines_of_a_task_that_the_job_does_not_have_are_left_out() -> None:
    state = JobState("digits", 1, "running", "", None, make_record(), (make_state(),))
    journal = HostJournal(NODE, state, Query())
    with journal.open(Connection(), follow=False) as session:  # type: ignore[arg-type]
        found = list(journal.lines(session))
    assert [(line.role, line.index) for line in found if isinstance(line, Line)] == [("worker", 0)]
