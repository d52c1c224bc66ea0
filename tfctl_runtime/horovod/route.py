"""Which interface leads to the other ranks: found by route, since its name differs from host to host."""

import fcntl
import ipaddress
import socket
import struct
from typing import List, Tuple

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h


def elsewhere(hosts: List[str], own: str) -> str:
    """The address of a rank's host that is not ``own``; where there is none, this one."""
    return next((host for host in hosts if host != own), own)


def interface(address: str) -> str:
    """The name of the interface by which packets to ``address`` leave. Raises LookupError where none has theirs."""
    return _leading(address)[0]


def network(address: str) -> str:
    """That interface's network, such as 10.0.0.0/24. Raises LookupError."""
    name, own = _leading(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        mask = _asked(probe, _SIOCGIFNETMASK, name)
    return str(ipaddress.ip_network(f"{own}/{mask}", strict=False))


def _leading(address: str) -> Tuple[str, str]:
    """Interface and own address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # nothing is sent
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            if own == _asked(probe, _SIOCGIFADDR, name) or (own.startswith("127.") and name in ("lo", "lo0")):
                return name, own
    raise LookupError(f"no interface has the address {own}, from which {address} is reached")


def _asked(sock: socket.socket, what: int, name: str) -> str:
    """The interface's IPv4 address or mask, or nothing."""
    try:
        answer = fcntl.ioctl(sock.fileno(), what, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
