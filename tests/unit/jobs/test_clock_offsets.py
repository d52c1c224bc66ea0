"""Times of hosts whose clocks are wrong are corrected before they are compared, sorted or shown."""

from __future__ import annotations

import json
from itertools import chain

from records import make_record

from tfctl.jobs import clocks, events, past
from tfctl.jobs.journal import HostJournal, Line, Query
from tfctl.jobs.state import JobState, jobs
from tfctl.model.host import Host, Ssh
from tfctl.node import wire

#: node1 is right, node2 is an hour ahead.
OFFSETS = {"node1": 0.3, "node2": 3600.0}
RECORD = make_record(
    [("worker", 0, "node1"), ("worker", 1, "node2")], deciders=[("worker", 0), ("worker", 1)], started=1000.0
)


def _failed(index: int, finished: float) -> wire.JobStatus:
    task = wire.TaskStatus("worker", index, "failed", 7, None, finished - 5, finished, 0)
    return wire.JobStatus("digits", 1, RECORD.run, RECORD, None, (task,))


def test_a_difference_within_the_time_of_an_answer_or_below_two_seconds_is_left_alone() -> None:
    assert clocks.offset(10.0, 10.5, 11.0) == 0.0
    assert clocks.offset(10.0, 15.0, 11.0) == 4.0
    assert clocks.ahead({"a": 1.9, "b": -2.1}, "a") == 0.0
    assert clocks.ahead({"a": 1.9, "b": -2.1}, "b") == -2.1
    assert clocks.ahead(None, "a") == 0.0


def test_the_first_failure_is_found_although_a_clock_is_wrong() -> None:
    answers = {"node1": [_failed(0, 1060.0)], "node2": [_failed(1, 1030.0 + 3600)]}
    [right] = jobs(answers, OFFSETS)
    assert (str(right.culprit), right.finished) == ("worker/1", 1030.0)
    assert (right.tasks[1].status.started, right.tasks[1].status.finished) == (1025.0, 1030.0)
    [wrong] = jobs(answers)
    assert str(wrong.culprit) == "worker/0"


def test_the_start_of_an_attempt_by_a_guard_is_by_the_clock_of_its_host() -> None:
    guard = wire.RecordedGuard("node2", "10.0.0.2", 2300, RECORD.run, 600, 3, number=2)
    record = RECORD._replace(guard=guard, started=5000.0)
    status = _failed(1, 5010.0)._replace(record=record)
    [found] = jobs({"node1": [], "node2": [status]}, OFFSETS)
    assert (found.started, found.finished) == (1400.0, 1410.0)


def test_events_are_in_order_although_a_clock_is_wrong() -> None:
    now = JobState("digits", 1, "running", "", None, RECORD, ())
    end = wire.Event(1030.0, 1, "end", "worker", 0, by=None, exit_code=7, signal=None)
    reported = {"node1": [end], "node2": [end._replace(index=1, time=1020.0 + 3600)]}
    assert [event.task for event in events.merged(now, reported, OFFSETS)] == ["worker/1", "worker/0"]
    assert [event.time for event in events.merged(now, reported, OFFSETS)] == [1020.0, 1030.0]


def test_events_of_the_whole_job_are_shown_once_but_each_deed_of_a_guard() -> None:
    now = JobState("digits", 2, "running", "", None, RECORD, ())

    def noted(time: float, event: str, reason: str = "", by: str = "tfctl-guard") -> wire.Event:
        whole = wire.Event(time, 1, event, None, None, by=by, exit_code=None, signal=None)
        return whole._replace(reason=reason) if reason else whole

    ran, refused = noted(1020.0, "notify", "the program has run"), noted(1021.0, "notify", "the POST failed")
    first, later = noted(1010.0, "retry", "attempt 2 in 10 s"), noted(1012.0, "retry", "attempt 2 failed to start")
    start, again = noted(1014.0, "start"), noted(1015.0, "start", "after the failure of attempt 1")
    stop = noted(1030.0, "stop", by="anna")
    reported = {"node1": [first, later, again, ran, refused, stop], "node2": [start, stop._replace(time=1031.0)]}
    found = events.merged(now, reported)
    assert [(event.time, event.event) for event in found] == [
        (1010.0, "retry"), (1012.0, "retry"), (1014.0, "start"), (1020.0, "notify"), (1021.0, "notify"),
        (1030.0, "stop"),
    ]  # fmt: skip
    assert found[2].reason == "after the failure of attempt 1"


class _Session:
    """The lines of a journal, as a host sends them."""

    def __init__(self, *times: float) -> None:
        self._times = times

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None: ...

    def batches(self, _timeout: float | None) -> list[list[bytes]]:
        entry = {"MESSAGE": "x", "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "u"}
        stamps = ((f"c{time}", str(int(time * 1e6))) for time in self._times)
        return [[json.dumps({**entry, "__CURSOR": c, "__REALTIME_TIMESTAMP": t}).encode() for c, t in stamps]]


def test_lines_have_corrected_times_and_are_asked_for_by_the_clock_of_their_host() -> None:
    [state] = jobs({"node1": [_failed(0, 1060.0)], "node2": []})
    source = HostJournal(Host("node2", Ssh("node2")), state, Query(since=1000.0, until=1100.0), ahead=3600.0)
    source._header = wire.Logs(1, RECORD.run, {"u": ("worker", 1)})
    [line] = chain(*source.batches(_Session(4630.5)))  # type: ignore[arg-type]
    assert isinstance(line, Line)
    assert line.time == 1030.5
    assert (source._query.since, source._query.until) == (4600.0, 4700.0)


def _summary(**more: object) -> wire.Summary:
    blank = wire.Summary("digits", 1, "0123abcd", 1000.0, "custom", 2, 2, 2, 1, finished=1030.0)
    return blank._replace(**more)  # type: ignore[arg-type]


def test_a_past_job_has_succeeded_once_all_deciders_have() -> None:
    [found], open_ = past.merged({"node1": [_summary()], "node2": [_summary(finished=1040.0)]})
    assert (found.state, found.finished, found.host_count, open_) == ("succeeded", 1040.0, 2, [])
    assert past.merged({"node1": [_summary()]}) == ([], ["digits"]), "the other host may know more"


def test_a_past_job_has_failed_at_the_first_failure_and_else_was_stopped() -> None:
    failed = {"node1": [_summary()], "node2": [_summary(succeeded=0, failed=True, finished=1010.0)]}
    assert [(one.state, one.finished) for one in past.merged(failed)[0]] == [("failed", 1010.0)]
    stopped = {"node1": [_summary()], "node2": [_summary(succeeded=0, stopped=1020.0, finished=None)]}
    assert [(one.state, one.finished) for one in past.merged(stopped)[0]] == [("stopped", 1020.0)]


def test_the_start_in_a_summary_is_by_the_clock_of_the_guard_that_started_the_attempt() -> None:
    one, other = (
        clocks.corrected_summary(_summary(started=5000.0, finished=finished, head="node2"), host, OFFSETS)
        for host, finished in (("node1", 1430.0), ("node2", 5040.0))
    )
    assert [(each.started, each.finished) for each in (one, other)] == [(1400.0, 1430.0), (1400.0, 1440.0)]
    assert clocks.corrected_summary(_summary(), "node2", OFFSETS).started == 1000.0


def test_summary_of_the_later_run_is_the_past_job_when_hosts_report_two() -> None:
    later = _summary(run="11111111", started=2000.0, deciders=1)
    [found], _ = past.merged({"node1": [_summary(failed=True)], "node2": [later]})
    assert (found.run, found.state) == ("11111111", "succeeded")
