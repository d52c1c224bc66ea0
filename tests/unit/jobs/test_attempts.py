"""The attempts of a job that is followed are read one after the other."""

from __future__ import annotations

from records import make_record

from tfctl.jobs.attempts import Attempts
from tfctl.jobs.state import JobState, jobs
from tfctl.node import wire


def attempt(number: int) -> JobState:
    record = make_record(attempt=number)
    task = wire.TaskStatus("worker", 0, "running", None, None, 101.0, None, 0)
    return jobs({"node1": [wire.JobStatus("digits", number, "0123abcd", record, None, (task,))]})[0]


def test_every_attempt_is_read_although_others_begin_before_the_first_has_been_read() -> None:
    """As when the program that reads the lines stops reading for a while."""
    attempts = Attempts(attempt(1))
    assert [attempts.note(attempt(number)) for number in (1, 2, 2, 3)] == [False, True, False, True]
    assert attempts.over.is_set()
    assert attempts.advance() and attempts.state.attempt == 2
    assert attempts.over.is_set(), "attempt 3 has begun"
    assert attempts.advance() and attempts.state.attempt == 3
    assert not attempts.over.is_set()
    attempts.end()
    assert attempts.over.is_set() and not attempts.advance()
