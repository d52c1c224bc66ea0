from __future__ import annotations

import pytest

from tests.unit.model.four_hosts import INVENTORY
from tfctl.errors import BadFile
from tfctl.model.pattern import select, unmatched


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("all", "1234"),
        ("*", "1234"),
        ("gpu", "1234"),
        ("big", "34"),
        ("node2", "2"),
        ("node3,node1", "13"),
        ("node3:node1", "13"),
        ("gpu[0]", "1"),
        ("gpu[-1]", "4"),
        ("gpu[1:]", "234"),
        ("gpu[1:2]", "23"),
        ("gpu[:1]", "12"),
        ("gpu[0]:big", "134"),
        ("gpu:!big", "12"),
        ("gpu:&big", "34"),
        ("!node1:gpu", "234"),
        ("node*:!node2", "134"),
        ("~node[12]", "12"),
    ],
)
def test_a_pattern_takes_hosts_in_inventory_order(pattern: str, numbers: str) -> None:
    assert [host.name for host in select(INVENTORY, pattern)] == [f"node{number}" for number in numbers]


@pytest.mark.parametrize(
    "pattern", ["cpu", "gpu[9]", "gpu:!all", "!node1", "gpu[", "~node[", "~a{99999999999}", "node1 node2"]
)
def test_a_pattern_that_matches_no_host_is_refused(pattern: str) -> None:
    with pytest.raises(BadFile, match=r"pattern|matches no host|only excludes|regular"):
        select(INVENTORY, pattern)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [("all", []), ("gpu,cpu", ["cpu"]), ("node1:!node9:gpu[9]", ["!node9", "gpu[9]"]), ("big,&tall", ["&tall"])],
)
def test_parts_of_a_pattern_that_match_no_host_are_named(pattern: str, parts: list[str]) -> None:
    assert unmatched(INVENTORY, pattern) == parts
