"""The node's description of itself, sent before a plan is made. No lock is held, so it may be outdated by then."""

from __future__ import annotations

import time
from typing import Any

from . import book, gpus, names, placed, plan, sockets, wire
from .world import World, host


def hello(world: World, job: str, ports: range, resolve: list[str]) -> dict[str, Any]:
    """Return the answer to a start request, without ``code``. Raises Refused."""
    held, seen = placed.held(world), gpus.look(world)
    return {
        "protocol": wire.PROTOCOL,
        "host": host(),
        "highest": book.latest(world, job),
        "ports": _ports(ports, held.ports),
        "names": _addresses(resolve),
        **devices(seen, held),
        "stacks": list(stacks(world)),
    }


def devices(seen: gpus.Seen, held: placed.Held) -> dict[str, Any]:
    """Return ``gpus`` and ``gpu_trouble`` of the answer."""
    return {
        "gpus": [{**gpu, "holder": held.gpus.get(gpu["uuid"], gpu["holder"])} for gpu in seen.devices],
        "gpu_trouble": wire.error(8, seen.trouble, seen.remedy) if seen.trouble else None,
    }


def stacks(world: World) -> dict[str, str]:
    """Return the installed stacks: each name with the environment that its link points to."""
    directory = world.at(names.STACKS)
    links = [directory / name for name in sorted(book.listing(directory))]
    return {link.name: link.readlink().name for link in links if link.is_symlink() and link.is_dir()}


def port_range(value: Any) -> range:
    """Parse ``[LO, HI]``, both inclusive. Raises Refused."""
    low, high = value if isinstance(value, list) and len(value) == 2 else (0, 0)
    first = plan.number(low, "a port", 1, 65535)
    return range(first, plan.number(high, "a port", first, 65535) + 1)


def _ports(wanted: range, held: dict[int, str]) -> dict[str, str]:
    """Return the ports of the range that are not free, with their holders."""
    found = {}
    for port in wanted:
        if port in held:
            found[str(port)] = held[port]
        elif not sockets.is_free(port):
            found[str(port)] = sockets.holder(port)
    return found


def _addresses(wanted: list[str]) -> dict[str, str | None]:
    """Resolve each name on this host: to its first address that is not loopback, IPv4 first, or None."""
    if not wanted:
        return {}
    import socket
    from threading import Thread

    found: dict[str, str | None] = dict.fromkeys(wanted)

    def look(name: str) -> None:
        try:
            known = [str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError):
            return
        known.sort(key=lambda address: ":" in address)
        found[name] = next((one for one in known if not one.startswith("127.") and one != "::1"), None)

    threads = [Thread(target=look, args=[name], daemon=True) for name in wanted]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 5.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(found)
