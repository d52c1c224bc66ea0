"""Ranges of ports, as inventories and job files write them, and the port of a job's guard."""

from __future__ import annotations

import re
from collections.abc import Collection

from tfctl.errors import Busy
from tfctl.model.host import Host
from tfctl.model.text import quoted

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


def port_for_guard(host: Host, taken: Collection[int]) -> int:
    """Return the lowest port of the host's `tfctl_ports` that is not taken. Raise Busy if there is none."""
    first, last = host.ports
    free = next((port for port in range(first, last + 1) if port not in taken), None)
    if free is None:
        raise Busy(
            f"{host.name}: no port in {first}-{last} (tfctl_ports) is free for the guard of the job",
            "widen the range, or stop what holds them",
        )
    return free
