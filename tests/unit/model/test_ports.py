"""One parser reads the ranges of ports of inventories and job files."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfctl.errors import Taken
from tfctl.model.host import Host, Ssh
from tfctl.model.ports import port_for_guard, port_range


@pytest.mark.parametrize(
    ("value", "parsed"),
    [("2222-2299", (2222, 2299)), (" 2222 - 2299 ", (2222, 2299)), ("2222", (2222, 2222)), (2222, (2222, 2222))],
)
def test_a_range_or_a_single_port_is_read_as_first_and_last_port(value: object, parsed: tuple[int, int]) -> None:
    assert port_range(value) == parsed


@pytest.mark.parametrize("value", ["", "-", "2222-", "-2299", "many", "1-2-3", True, None, [2222], "\uff12222", "2-2x"])
def test_text_that_is_no_port_range_is_rejected_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match="is not a range such as 2222-2299"):
        port_range(value)


@pytest.mark.parametrize("value", ["2299-2222", "0-10", "70000", "65535-65536"])
def test_a_range_must_ascend_within_the_ports_that_exist(value: str) -> None:
    with pytest.raises(ValueError, match="must ascend and lie within 1-65535"):
        port_range(value)


def test_a_job_takes_no_port_that_only_root_may_use() -> None:
    with pytest.raises(ValueError, match="within 1024-65535"):
        port_range("80-2222", lowest=1024)


@given(st.integers(1, 65535), st.integers(1, 65535))
def test_port_range_is_parsed_as_its_first_and_last_port(one: int, other: int) -> None:
    first, last = sorted((one, other))
    assert port_range(f"{first}-{last}") == (first, last)


def test_the_guard_gets_the_lowest_free_port_or_any_when_starts_compete() -> None:
    host = Host("node1", Ssh("node1"), ports=(2222, 2225))
    assert port_for_guard(host, {2222}) == 2223
    assert {port_for_guard(host, {2222}, Random(seed)) for seed in range(40)} == {2223, 2224, 2225}
    with pytest.raises(Taken, match="no port in 2222-2225"):
        port_for_guard(host, range(2222, 2226), Random(1))
