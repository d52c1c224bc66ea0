"""How many connections are made at once, with a clock that stands still between the steps of a test."""

from __future__ import annotations

import threading

import pytest

from tfctl.remote.connecting import FIRST, LEAST, MOST, ConnectLimit


class Machine:
    """A fake machine: the time, and the CPU time that this process has used."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def go_on(self, seconds: float, cores: float) -> None:
        self.now += seconds
        self.used += seconds * cores


def limit_on(machine: Machine) -> ConnectLimit:
    return ConnectLimit(lambda: machine.now, lambda: machine.used)


def after(machine: Machine, limit: ConnectLimit, seconds: float, cores: float) -> int:
    """Return the limit after a connection during which this process was as busy as ``cores`` says."""
    with limit:
        machine.go_on(seconds, cores)
    return limit.limit


def test_the_limit_is_lowered_while_this_process_is_busy_and_raised_while_it_is_idle() -> None:
    machine = Machine()
    limit = limit_on(machine)
    assert limit.limit == FIRST == 8
    assert [after(machine, limit, 0.2, 1.0) for _ in range(3)] == [LEAST, LEAST, LEAST]
    assert [after(machine, limit, 0.2, 0.7) for _ in range(2)] == [LEAST, LEAST]
    assert [after(machine, limit, 0.2, 0.1) for _ in range(4)] == [8, 16, MOST, MOST]


def test_the_limit_is_adapted_ten_times_a_second_at_most() -> None:
    machine = Machine()
    limit = limit_on(machine)
    assert [after(machine, limit, 0.06, 0.1) for _ in range(4)] == [FIRST, 16, 16, MOST]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("cores", [0.0, 1.0], ids=["idle", "busy with something else"])
def test_hosts_that_do_not_answer_do_not_stop_others_after_the_limit_was_lowered(cores: float) -> None:
    machine = Machine()
    limit = limit_on(machine)
    for _ in range(3):
        after(machine, limit, 0.2, 1.0)
    for _ in range(LEAST):
        limit.__enter__()  # a host that does not answer
    connected = threading.Event()

    def connect() -> None:
        with limit:
            connected.set()

    threading.Thread(target=connect, daemon=True).start()
    assert not connected.wait(0.3), "time stands still"
    machine.go_on(1.0, cores)
    assert connected.wait(10)
