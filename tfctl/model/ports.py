"""Ranges of ports, as inventories and job files write them, the port of a job's guard, and ports that others take."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tfctl.errors import Taken
from tfctl.model.host import Host
from tfctl.model.text import quoted
from tfctl.wording import QUEUE, abbreviated

if TYPE_CHECKING:
    from random import Random

    from tfctl.model.job import Layout

#: The range from which Linux takes the ports of outgoing connections, unless somebody has changed it (ip(7)).
_OUTGOING = (32768, 60999)
_RANGE = re.compile(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?")


def port_range(value: object, lowest: int = 1) -> tuple[int, int]:
    """Parse ``2222-2299``, or a single port, into the first and the last port of the range.

    Raises ValueError, whose message is a sentence about ``value``, unless ``lowest`` <= first <= last <= 65535.
    """
    found = _RANGE.fullmatch(str(value))
    if not found:
        raise ValueError(f"{quoted(value)} is not a range such as 2222-2299")
    first, last = int(found[1]), int(found[2] or found[1])
    if not lowest <= first <= last <= 65535:
        raise ValueError(f"{value}: the range must ascend and lie within {lowest}-65535")
    return first, last


def port_for_guard(host: Host, taken: Collection[int], draw: Random | None = None) -> int:
    """Return the lowest port of the host's `tfctl_ports` that is not taken or, with ``draw``, any of these.

    Raise Taken if there is none.
    """
    first, last = host.ports
    free = [port for port in range(first, last + 1) if port not in taken]
    if not free:
        raise Taken(
            f"{host.name}: no port in {first}-{last} (tfctl_ports) is free for the guard of the job",
            f"widen the range, stop the processes that use them, or {QUEUE}",
        )
    return draw.choice(free) if draw else free[0]


def outgoing(layout: Layout, ranges: Mapping[str, tuple[int, int] | None] | None = None) -> list[str]:
    """Return a sentence for each range of ports of the job from which a host takes those of outgoing connections.

    ``ranges``: the range of each host that has one in common with the job; by default, that of Linux for all.
    """
    found: dict[tuple[str, tuple[int, int], tuple[int, int]], list[str]] = {}
    for host in layout.hosts:
        taken = _OUTGOING if ranges is None else ranges.get(host.name)
        ranges_of_job = {"ports": layout.ports} if layout.ports else {"tfctl_ports": host.ports}
        if len(layout.hosts) > 1 and host == layout.head.host:
            ranges_of_job["tfctl_ports"] = host.ports  # the guard of the job has one of these
        for name, (first, last) in ranges_of_job.items():
            if taken and first <= taken[1] and last >= taken[0]:
                found.setdefault((name, (first, last), taken), []).append(host.name)
    return [
        f"{name}: {first}-{last} is in the range of outgoing connections of {abbreviated(hosts)} ({low}-{high}), which "
        f"may take a port before a task does: choose ports below {low}"
        for (name, (first, last), (low, high)), hosts in found.items()
    ]
