"""TCP ports of this host: whether a port is free, and which process holds it (proc(5))."""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from . import names

#: TCP_LISTEN (include/net/tcp_states.h), as proc(5) prints it.
_LISTEN = "0A"
_PROC = Path("/proc")


def is_free(port: int) -> bool:
    """Return whether a server can bind the port on every address. A port in TIME_WAIT is free, as it is for servers."""
    return _can_bind(socket.AF_INET, "0.0.0.0", port) and _can_bind(socket.AF_INET6, "::", port)


def listening(proc: Path = _PROC) -> set[int]:
    """Return the TCP ports that have a listener, without connecting to them."""
    return {port for port, _, state in _table(proc) if state == _LISTEN}


def holder(port: int) -> str:
    """Return the process that holds the port: ``pid 812 (python)``, or ``another process``."""
    return holders([port])[port]


def holders(ports: Collection[int]) -> dict[int, str]:
    """Return the process that holds each port, in the words of `holder`. Lists /proc once, whatever their number."""
    inodes = {inode: port for port, inode in _sockets() if port in ports}
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir() if inodes else ():
        held = inodes.keys() & _inodes_of(entry.name) if entry.name.isdigit() else ()
        for port in {inodes[inode] for inode in held} - found.keys():
            found[port] = f"pid {entry.name} ({_command(entry.name)})"
    return {port: found.get(port, "another process") for port in ports}


def _can_bind(family: int, address: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.errno != errno.EADDRINUSE  # a host without IPv6 does not make the port taken
    return True


def _sockets() -> Iterator[tuple[int, int]]:
    """Yield the local port and inode of every TCP socket that a process holds."""
    return ((port, inode) for port, inode, _ in _table() if inode)


def _table(proc: Path = _PROC) -> Iterator[tuple[int, int, str]]:
    """Yield the local port, inode and state of every TCP socket; the inode is 0 if no process holds it."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            yield int(fields[1].rpartition(":")[2], 16), int(fields[9]), fields[3]


def _inodes_of(pid: str) -> set[int]:
    found = set()
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            target = str(path.readlink())
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    except OSError:
        pass
    return found


def _command(pid: str) -> str:
    try:
        return names.printable(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
    except OSError:
        return "gone"
