"""Threads that follow hosts open all sessions before they read one."""

from __future__ import annotations

import threading
import time

from tfctl.jobs.turn import Turn


def test_no_session_is_opened_before_all_threads_have_been_started() -> None:
    turn = Turn(["node1"], 10.0)
    thread = threading.Thread(target=turn.wait_to_begin)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    turn.begin()
    thread.join(5)
    assert not thread.is_alive()


def test_no_session_is_read_before_all_have_been_opened() -> None:
    turn = Turn(["node1", "node2"], 10.0)
    turn.begin()
    turn.opened("node1")
    thread = threading.Thread(target=turn.wait_to_read)
    thread.start()
    turn.opened("node1")  # again, after its connection was lost
    thread.join(0.1)
    assert thread.is_alive()
    turn.opened("node2")
    thread.join(5)
    assert not thread.is_alive()


def test_a_host_that_does_not_answer_holds_up_the_others_only_for_a_limited_time() -> None:
    turn = Turn(["node1", "node2"], 0.2)
    turn.begin()
    turn.opened("node1")
    began = time.monotonic()
    turn.wait_to_read()
    assert 0.1 < time.monotonic() - began < 5
    turn.wait_to_read()  # no longer
