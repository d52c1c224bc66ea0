"""`stop`: what follows from the answers of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from tfctl.errors import Exit, TfctlError, Unreachable
from tfctl.jobs.start import stop_unconfirmed
from tfctl.jobs.stop import stop
from tfctl.model.host import Host, Ssh
from tfctl.node import wire
from tfctl.remote.fleet import Fleet, HostOutcome

ALL = ("node1", "node2", "node3", "node4")


class AnsweredFleet:
    """A fleet whose hosts give these answers, one after the other; None: a host that cannot be reached."""

    def __init__(self, hosts: Sequence[str], *answers: Sequence[wire.Marked | wire.Stopped | None]) -> None:
        self.hosts = [Host(name, Ssh("10.0.0.1")) for name in hosts]
        self._answers = [*answers]

    def map(self, _: Callable[..., object], hosts: Sequence[Host] | None = None) -> list[HostOutcome[Any]]:
        chosen = self.hosts if hosts is None else hosts
        return [
            HostOutcome(host, error=unreachable(host.name)) if answer is None else HostOutcome(host, answer)
            for host, answer in zip(chosen, self._answers.pop(0), strict=True)
        ]


def unreachable(host: str) -> Unreachable:
    error = Unreachable(f"{host}: no route")
    error.hosts = (host,)
    return error


def stopped(hosts: Sequence[str], *answers: Sequence[wire.Marked | wire.Stopped | None]) -> list[str]:
    """Return what `stop` says about hosts that it does not count as failed."""
    said: list[str] = []
    stop(cast(Fleet, AnsweredFleet(hosts, *answers)), "digits", say=said.append)
    return said


def test_stop_only_reports_a_silent_host_that_has_no_task_of_the_job() -> None:
    marked = [wire.Marked(1, ("node1", "node2")), wire.Marked(1, ()), None]
    ended = [wire.Stopped(1, (("worker", index),), ()) for index in range(2)]
    assert stopped(ALL[:3], marked, ended) == ["node3: no route"]


def test_stop_fails_for_a_silent_host_of_the_job() -> None:
    marked = [wire.Marked(1, ("node1", "node2")), None]
    with pytest.raises(TfctlError, match="node2: no route"):
        stopped(ALL[:2], marked, [wire.Stopped(1, (("worker", 0),), ())])


def test_stop_fails_for_every_silent_host_if_those_that_name_the_hosts_of_the_job_are_silent() -> None:
    """The fourth host does not name them, so any of the others may be one."""
    marked = [None, None, None, wire.Marked(1, ())]
    with pytest.raises(TfctlError, match=r"node1: .*\nnode2: .*\nnode3: ") as caught:
        stopped(ALL, marked, [wire.Stopped(1, (("worker", 3),), ())])
    assert caught.value.exit is Exit.UNREACHABLE


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ((), ["the job was stopped on the other hosts"]),
        (("a process",), ["not everything was stopped on the other hosts: node2: no route", "node1: a process"]),
    ],
)
def test_a_start_that_a_host_did_not_confirm_reports_what_is_left_on_the_others(
    left: tuple[str, ...], said: list[str]
) -> None:
    marked = [wire.Marked(1, ("node1", "node2")), None]
    fleet = AnsweredFleet(ALL[:2], marked, [wire.Stopped(1, (("worker", 0),), left)])
    error = stop_unconfirmed(cast(Fleet, fleet), "digits", "0123abcd", [unreachable("node2")])
    assert error.message.splitlines()[1:-1] == said


def test_a_start_that_a_host_has_undone_names_a_host_that_no_longer_answers() -> None:
    """It may run its part of the job."""
    fleet = AnsweredFleet(ALL[:2], [wire.Marked(0, ()), None], [wire.Stopped(0, (), ())])
    error = stop_unconfirmed(cast(Fleet, fleet), "digits", "0123abcd", [unreachable("node1")])
    said = "not everything was stopped on the other hosts: no host has a job 'digits'; node2 did not answer"
    assert error.message.splitlines()[1] == said


def test_a_stop_that_fails_abbreviates_the_tasks_that_it_has_stopped() -> None:
    said: list[str] = []
    marked = [wire.Marked(1, ("node1", "node2")), None]
    ended = [wire.Stopped(1, tuple(("worker", index) for index in range(7)), ())]
    with pytest.raises(TfctlError, match="node2: no route"):
        stop(cast(Fleet, AnsweredFleet(ALL[:2], marked, ended)), "digits", say=said.append)
    assert said == ["digits: stopped worker/0, worker/1, worker/2 and 4 others"]
