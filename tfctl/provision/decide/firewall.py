"""Decide whether firewalld on a host lets the other hosts connect to the ports of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network

from tfctl.provision.decide.facts import Firewalld, Zone


def blocked(firewall: Firewalld, addresses: Iterable[str], ports: str) -> list[str]:
    """Return the addresses from which firewalld surely rejects connections to some of the ports, such as 2222-2299.

    If a zone has a rich rule that accepts something, or another kind of source than an address, nobody can tell from
    the facts: then nothing is returned.
    """
    if any(zone.rules or not all(map(_is_network, zone.sources)) for zone in firewall.zones):
        return []
    found = []
    for address in addresses:
        zones = _zones_of(firewall, address)
        if zones and not any(_accepts(zone, ports) for zone in zones):
            found.append(address)
    return found


def _zones_of(firewall: Firewalld, address: str) -> Sequence[Zone]:
    """Return the zone of an address: by its source, else one of those that have interfaces, else the default zone."""
    own = ip_address(address)
    networks = [(ip_network(source, strict=False), zone) for zone in firewall.zones for source in zone.sources]
    matching = [(network.prefixlen, zone) for network, zone in networks if own in network]
    if matching:
        return [max(matching, key=lambda each: each[0])[1]]
    with_interfaces = [zone for zone in firewall.zones if zone.interfaces]
    return with_interfaces or [zone for zone in firewall.zones if zone.name == firewall.default]


def _accepts(zone: Zone, ports: str) -> bool:
    if zone.target == "ACCEPT":
        return True
    spans = [_span(each.partition("/")[0]) for each in zone.ports if each.endswith("/tcp")]
    first, last = _span(ports)
    return all(any(low <= port <= high for low, high in spans) for port in range(first, last + 1))


def _span(ports: str) -> tuple[int, int]:
    """Return the first and the last port of a range or of a single port."""
    found = [int(each) for each in re.findall(r"\d+", ports)]
    return (found[0], found[-1]) if found else (0, 0)


def _is_network(source: str) -> bool:
    try:
        ip_network(source, strict=False)
    except ValueError:  # a MAC address, or a set of addresses
        return False
    return True
