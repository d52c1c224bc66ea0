"""Four hosts, as the tests of the model have them."""

from __future__ import annotations

from collections.abc import Callable

from tfctl.model.host import Host, Inventory, Ssh
from tfctl.model.job import Job

HOSTS = tuple(
    Host(f"node{number}", Ssh(f"10.0.0.{number}"), address=f"10.0.0.{number}", stack="tf2.15") for number in range(1, 5)
)
INVENTORY = Inventory(
    "/fleet.ini", HOSTS, {"gpu": ("node1", "node2", "node3", "node4"), "big": ("node3", "node4"), "ungrouped": ()}
)

MakeJob = Callable[..., Job]
