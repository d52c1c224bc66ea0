"""`stop`: what follows from the answers of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from tfctl.errors import Exit, TfctlError, Unreachable
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
            HostOutcome(host, error=Unreachable(f"{host.name}: no route"))
            if answer is None
            else HostOutcome(host, answer)
            for host, answer in zip(chosen, self._answers.pop(0), strict=True)
        ]


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
