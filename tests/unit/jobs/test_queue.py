"""Clients that wait for ports and GPUs start in their turn. Hosts are the node part's own queue, on one directory."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from tfctl.errors import Taken, Unreachable
from tfctl.jobs import queue as client
from tfctl.node import wire
from tfctl.node.session import RequestRefused
from tfctl.node.verbs import queue as node


def _ticket(folder: Path, time: float, owner: str) -> int:
    return node._take(folder / node._name(wire.Ticket(time, "0123abcd")), owner)


def test_tickets_are_ordered_by_time_and_go_with_their_process(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    first, _ = _ticket(folder, 999.5, "job a of ada"), _ticket(folder, 1000.25, "job b of bob")
    own = folder / node._name(wire.Ticket(1000.5, "ffffffff"))
    assert node._ahead(own) == ["job a of ada", "job b of bob"]
    os.close(first)
    assert node._ahead(own) == ["job b of bob"]
    assert len(list(folder.iterdir())) == 1


def test_a_place_in_the_queue_is_given_once(tmp_path: Path) -> None:
    held = _ticket(tmp_path / "queue", 1000.0, "job a of ada")
    with pytest.raises(RequestRefused, match="is taken"):
        _ticket(tmp_path / "queue", 1000.0, "job b of bob")
    with pytest.raises(BlockingIOError):
        fcntl.flock(os.open(next((tmp_path / "queue").iterdir()), os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)


def test_a_client_waits_until_nobody_is_ahead_and_names_who_is() -> None:
    line, said = client._Line(), list[str]()
    ticket = wire.Ticket(1.0, "0123abcd")
    line.put("b", wire.Queued(ticket, ()))
    line.put("a", wire.Queued(ticket, ("job x of ada", "job y of bob")))

    def say(text: str) -> None:
        said.append(text)
        threading.Thread(target=line.put, args=("a", wire.Queued(ticket, ()))).start()

    line.wait(None, say)
    assert said == ["waiting behind job y of bob on a"]


def test_a_client_gives_up_after_its_timeout_and_with_a_host_that_fails() -> None:
    line = client._Line()
    line.put("a", wire.Queued(wire.Ticket(1.0, "0123abcd"), ("job x of ada",)))
    with pytest.raises(Taken, match="still waiting behind job x of ada on a"):
        line.wait(0.0, lambda _: None)
    line.put("a", Unreachable("a: gone"))
    with pytest.raises(Unreachable):
        line.wait(None, lambda _: None)


def test_the_pauses_of_the_first_client_grow_while_it_waits_for_the_same() -> None:
    pauses = client._Pauses()
    first = [pauses.after("node1: no free port") for _ in range(20)]
    assert 1.0 <= first[0] <= 3.0
    assert all(20 / 3 <= pause <= 20.0 for pause in first[6:])
    assert 1.0 <= pauses.after("node2: no free port") <= 3.0
    assert 1.5 <= pauses.after("node2: no free port") <= 4.5


def test_the_first_client_does_not_pause_after_a_host_has_failed() -> None:
    line = client._Line()
    threading.Timer(0.1, line.put, ("a", Unreachable("a: gone"))).start()
    began = time.monotonic()
    line.pause(30.0)
    assert time.monotonic() - began < 10.0
