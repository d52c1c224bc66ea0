"""The addresses of a name, as this host resolves it. The playbooks' modules use this file too."""

from __future__ import annotations

import socket


def look_up(name: str) -> list[str]:
    """Return the addresses of a name, IPv4 first. Raises OSError or UnicodeError."""
    found = dict.fromkeys(str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    return sorted(found, key=lambda address: ":" in address)


def addresses(name: str) -> list[str]:
    """Return the addresses to which a name resolves on this host, or nothing if it does not resolve."""
    try:
        return look_up(name)
    except (OSError, UnicodeError):
        return []
