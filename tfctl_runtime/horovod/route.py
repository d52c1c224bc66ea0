"""Find the interface that leads to the other ranks. It is found by route, because its name varies between hosts."""

import fcntl
import ipaddress
import socket
import struct
from typing import List, Tuple

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h


def elsewhere(hosts: List[str], own: str) -> str:
    """Return the first host address that is not ``own``, else ``own``."""
    return next((host for host in hosts if host != own), own)


def interface(address: str) -> str:
    """Return the name of the interface for packets to ``address``. Raise LookupError if no interface matches."""
    return _leading(address)[0]


def network(hosts: List[str]) -> str:
    """Return the network, such as 10.0.0.0/24, of the interface for packets to the second of several hosts.

    Return an empty string if not all hosts are in it: they then reach each other through several networks, or a router.
    Raise LookupError if no interface matches.
    """
    name, own = _leading(hosts[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        mask = _asked(probe, _SIOCGIFNETMASK, name)
    found = ipaddress.ip_network(f"{own}/{mask}", strict=False)
    inside = all(ipaddress.ip_address(socket.gethostbyname(host)) in found for host in hosts)
    return str(found) if inside else ""


def _leading(address: str) -> Tuple[str, str]:
    """Return the interface for packets to ``address``, and this host's address on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if own == _asked(probe, _SIOCGIFADDR, name) or (own.startswith("127.") and name in ("lo", "lo0")):
                return name, own
    raise LookupError(f"no interface has the address {own}, from which {address} is reached")


def _asked(sock: socket.socket, what: int, name: str) -> str:
    """Return the interface's IPv4 address or netmask, or an empty string."""
    try:
        answer = fcntl.ioctl(sock.fileno(), what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
