"""Lines of several hosts in one order, and what journalctl's JSON makes of a message."""

from __future__ import annotations

import queue
import time
from typing import Any

import pytest

from tfctl.errors import NotFound
from tfctl.jobs.logs import Line, _in_order, _message, tasks_of
from tfctl.jobs.state import JobState, TaskState


def line(when: float, host: str, text: str = "") -> Line:
    return Line(when, "worker", 0, host, "stdout", text)


def ordered(*lines: Line | None, hosts: int = 2) -> list[list[Line]]:
    news: queue.Queue[Line | None] = queue.Queue()
    for each in lines:
        news.put(each)
    return list(_in_order(news, hosts))


def test_hosts_are_merged_by_time() -> None:
    a, b, c, d = line(1, "a"), line(2, "b"), line(3, "a"), line(4, "b")
    assert ordered(b, d, a, None, c, None) == [[a, b, c, d]]


def test_lines_of_one_host_stay_as_they_came() -> None:
    """Also where its clock was set back, and where several have one time."""
    first, second, third = line(9, "a", "first"), line(5, "a", "second"), line(5, "a", "third")
    other = line(7, "b")
    [found] = ordered(first, second, third, other, None, None)
    assert [each for each in found if each.host == "a"] == [first, second, third]


def test_hosts_that_have_nothing_to_say() -> None:
    assert ordered(None, None) == []
    assert ordered(hosts=0) == []


class Flood(queue.Queue[Line | None]):
    """Never empty."""

    def get(self, *_: object, **__: object) -> Line | None:
        return line(time.time(), "a")


def test_lines_come_though_more_come_all_the_time() -> None:
    """A flood would otherwise be held back, and grow, for as long as it lasts."""
    batches = _in_order(Flood(), 1)
    assert next(batches)
    assert next(batches)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        ([104, 105, 13, 10], "hi\r\n"),
        ([99, 97, 102, 233], "caf�"),
        ([], ""),
        (["first", "of two"], "first"),
        ([[104, 105], "of two"], "hi"),
    ],
)
def test_a_message(value: Any, text: str) -> None:
    assert _message(value) == text


def test_the_tasks_that_are_meant() -> None:
    names = [("ps", 0), ("worker", 0), ("worker", 1)]
    tasks = tuple(TaskState(role, index, "node1", "", 1, "", "running") for role, index in names)
    state = JobState("j", 1, "running", "", None, {}, tasks)
    assert tasks_of(state, None, None) is None
    assert tasks_of(state, "worker", None) == (("worker", 0), ("worker", 1))
    assert tasks_of(state, "worker", 1) == (("worker", 1),)
    with pytest.raises(NotFound) as found:
        tasks_of(state, "ps", 1)
    assert (found.value.message, found.value.remedy) == ("j has no ps 1", "it has ps 0, worker 0 to 1")
