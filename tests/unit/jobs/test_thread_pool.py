"""tfctl.jobs.thread_pool: a few threads serve many hosts, and more of them if hosts hang."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tfctl.jobs.thread_pool import LEAST, call_for_each


def test_every_host_is_served_once() -> None:
    served: list[str] = []
    hosts = [f"node{number}" for number in range(200)]
    call_for_each(hosts, served.append)
    assert sorted(served) == sorted(hosts)


def test_nothing_happens_without_hosts() -> None:
    call_for_each([], lambda _: None)


def test_few_threads_serve_many_hosts_that_answer_at_once() -> None:
    threads: set[int] = set()
    call_for_each([f"node{number}" for number in range(500)], lambda _: threads.add(threading.get_ident()))
    assert len(threads) <= LEAST


def test_hosts_that_hang_do_not_delay_the_others() -> None:
    hanging, rest = [f"hangs{number}" for number in range(5 * LEAST)], ["answers"]
    answered = threading.Event()

    def work(host: str) -> None:
        if host == "answers":
            answered.set()
        else:
            answered.wait(30)

    began = time.monotonic()
    call_for_each([*hanging, *rest], work)
    assert time.monotonic() - began < 10


def test_an_interruption_ends_the_wait_and_no_further_call_begins() -> None:
    begun: list[str] = []
    released = threading.Event()

    def work(host: str) -> None:
        begun.append(host)
        if len(begun) == 1:
            signal.raise_signal(signal.SIGINT)
        released.wait(30)

    with pytest.raises(KeyboardInterrupt):
        call_for_each([f"node{number}" for number in range(10_000)], work)
    released.set()
    time.sleep(0.1)
    assert len(begun) <= LEAST
