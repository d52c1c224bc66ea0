"""Ranges of ports, as inventories and job files write them, and the port of a job's guard."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from tfctl.errors import Taken
from tfctl.model.host import Host
from tfctl.model.text import quoted
from tfctl.wording import QUEUE

if TYPE_CHECKING:
    from random import Random

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
