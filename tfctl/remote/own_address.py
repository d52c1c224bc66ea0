"""The address of this machine for the other hosts of an inventory that has it as a local host."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

from tfctl.model.host import Inventory, is_loopback

#: So many hosts are looked up by name, if none has an address that is a number.
_LOOKED_UP = 3
#: Any port: nothing is sent there.
_PORT = 9


def source(target: str) -> str | None:
    """Return the address that the kernel would write as the sender's of a packet to ``target``, or None without a
    route, or if it is a loopback address. IPv4 only, as the servers of TensorFlow."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, _PORT))
        except (OSError, UnicodeError):
            return None
        found = str(probe.getsockname()[0])
    return None if is_loopback(found) else found


def with_own_addresses(inventory: Inventory, source: Callable[[str], str | None] = source) -> Inventory:
    """Return the inventory with an address for its local hosts that have none, as far as one can be found.

    It is the address from which this machine would send to the other hosts, so they reach it there; never a loopback
    address. If these are several, none is chosen: only the user can. ``source`` asks the kernel.
    """
    lacking = [host for host in inventory.hosts if host.is_local and host.address is None]
    if not lacking:
        return inventory
    targets = [host.address or host.name for host in inventory.hosts if not host.is_local]
    numbers = [target for target in targets if _is_number(target)]
    sources = {source(target) for target in numbers or targets[:_LOOKED_UP]} - {None}
    if len(sources) != 1:
        return inventory
    [found] = sources
    hosts = tuple(replace(host, address=found) if host in lacking else host for host in inventory.hosts)
    return replace(inventory, hosts=hosts)


def _is_number(address: str) -> bool:
    try:
        return ip_address(address).version == 4
    except ValueError:
        return False
