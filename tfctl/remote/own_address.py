"""The address of this machine for the other hosts of an inventory that has it as a local host."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_address

from tfctl.model.host import Host, Inventory, is_loopback

#: So many hosts are looked up by name, if none has an address that is a number.
_LOOKED_UP = 3
#: Any port: nothing is sent there.
_PORT = 9


def with_own_addresses(inventory: Inventory) -> Inventory:
    """Return the inventory with an address for its local hosts that have none, as far as one can be found.

    It is the address from which this machine would send to the other hosts, so they reach it there; never a loopback
    address. None is found if these are several, of which only the user can choose one.
    """
    lacking = [host for host in inventory.hosts if host.is_local and host.address is None]
    found = _address_towards(host for host in inventory.hosts if not host.is_local) if lacking else None
    if found is None:
        return inventory
    hosts = tuple(replace(host, address=found) if host in lacking else host for host in inventory.hosts)
    return replace(inventory, hosts=hosts)


def _address_towards(hosts: Iterable[Host]) -> str | None:
    targets = [host.address or host.name for host in hosts]
    numbers = [target for target in targets if _is_number(target)]
    sources = {_source(target) for target in numbers or targets[:_LOOKED_UP]} - {None}
    return sources.pop() if len(sources) == 1 else None


def _is_number(address: str) -> bool:
    try:
        return ip_address(address).version == 4
    except ValueError:
        return False


def _source(target: str) -> str | None:
    """Return the address that the kernel would write as the sender's, or None without a route. IPv4 only, as the
    servers of TensorFlow."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, _PORT))
        except (OSError, UnicodeError):
            return None
        source = str(probe.getsockname()[0])
    return None if is_loopback(source) else source
