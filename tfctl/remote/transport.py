"""Connections by one of three transports: over ssh by paramiko or the system's `ssh` program, or local.

paramiko, the default, needs no process per host. OpenSSH also knows GSSAPI, FIDO keys and host certificates. A host's
``tfctl_ssh`` chooses, else the environment variable TFCTL_SSH. A host with ansible_connection=local is this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Protocol

from tfctl.errors import UsageError
from tfctl.model.host import LOCAL, TRANSPORTS, Host, check_logins
from tfctl.remote.channel import Channel, Spare

#: Seconds between keepalives, which stop middleboxes from dropping the connection and reveal a dead peer.
KEEPALIVE_S = 15
_VARIABLE = "TFCTL_SSH"


class Stream(Protocol):
    """A connection to a port of a host, as sockets are used."""

    def recv(self, size: int, /) -> bytes:
        """Return what has arrived, or ``b""`` at the end. Raises OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Send everything. Raises OSError."""

    def shutdown(self, how: int, /) -> None:
        """End one direction, as socket.shutdown. Raises OSError."""

    def close(self) -> None: ...


class Connection(Protocol):
    """An open connection, returned by `connect`. A context manager; any thread may start processes on it."""

    @property
    def host(self) -> Host:
        """The host of the inventory."""

    @property
    def is_root(self) -> bool:
        """Whether the user who logged in is root."""

    @property
    def alive(self) -> bool:
        """Whether the connection was still up when last heard from."""

    @property
    def spares(self) -> list[Spare]:
        """Node programs on this connection that wait for another request: for remote/session.py."""

    def __enter__(self) -> Connection: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def exec(self, words: Sequence[str], window: int | None = None) -> Channel:
        """Start the command ``words`` on the host. Raises Unreachable.

        ``window``: how many bytes of its output paramiko holds at most while nobody reads them. By default, 2 MiB.
        """

    def dial(self, port: int) -> Stream:
        """Connect to a TCP port of the host, at its loopback address. Raises Unreachable."""

    def close(self) -> None:
        """Close the connection and all its channels."""


def connect(host: Host) -> Connection:
    """Connect to ``host``, verify its key and log in without a password, within its ConnectTimeout or else 10 s.

    Raises Unreachable, which names the host and a remedy; BadFile for ssh arguments or an ssh_config that ssh rejects,
    and for a host whose inventory has a password; UsageError for an unknown transport; and PreflightFailed for a local
    host, see local_connection.py.
    """
    check_logins([host])
    name = transport_of(host)
    if name == LOCAL:
        from tfctl.remote import local_connection

        return local_connection.connect(host)
    if name == "openssh":
        from tfctl.remote import openssh_connection

        return openssh_connection.connect(host)
    from tfctl.remote import paramiko_connection

    return paramiko_connection.connect(host)


def transport_of(host: Host) -> str:
    """Return the name of the host's transport, LOCAL or one of TRANSPORTS. Raises UsageError for a wrong TFCTL_SSH."""
    if host.ssh.transport:
        return host.ssh.transport
    chosen = os.environ.get(_VARIABLE) or TRANSPORTS[0]
    if chosen not in TRANSPORTS:
        raise UsageError(
            f"{_VARIABLE}={chosen}: tfctl has no such transport", f"set it to {' or '.join(TRANSPORTS)}, or unset it"
        )
    return chosen


def preload(hosts: Iterable[Host]) -> None:
    """Import what connecting to ``hosts`` needs. Several threads that import at once take half as long again."""
    for name in {transport_of(host) for host in hosts}:
        if name == LOCAL:
            import tfctl.remote.local_connection
        elif name == "openssh":
            import tfctl.remote.openssh_connection
        else:
            import tfctl.remote.paramiko_connection  # noqa: F401
