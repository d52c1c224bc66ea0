"""The ssh servers of the rig, in a process of their own.

    python -m scripts.bench_scale.server FOLDER PORT RATE FIRST COUNT

Each host has a loopback address of its own. `sudo -n …/tfctl-node` is answered by its fake host; any other command
succeeds at once and prints nothing, except a Python to which Ansible sends a module: see inspection.py. The process
reports its counters on stdout for each line on stdin, and ends with stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.constants import MSG_IGNORE
from asyncssh.logging import SSHLogger

from scripts.bench_scale.hosts import FakeHost, FakeSession
from scripts.bench_scale.inspection import Inspection, mark_of
from scripts.bench_scale.journal import Lateness
from scripts.bench_scale.rig import HOST_KEY, USER_KEY, address, name
from tfctl.node import names

#: What sshd of Debian 12 offers (OpenSSH 9.2), as far as asyncssh has it. asyncssh offers twice as much, and a new key
#: exchange that takes longer.
_ALGORITHMS = {
    "kex_algs": [
        "curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256", "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521", "diffie-hellman-group-exchange-sha256", "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512", "diffie-hellman-group14-sha256",
    ],
    "encryption_algs": [
        "chacha20-poly1305@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr", "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
    ],
    "mac_algs": [
        "hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha1-etm@openssh.com",
        "hmac-sha2-256", "hmac-sha2-512", "hmac-sha1",
    ],
    "compression_algs": ["none", "zlib@openssh.com"],
}  # fmt: skip
#: How long (s) the connections of a client that has ended may take to end here.
_END_S = 20.0
#: Where tcpi_bytes_acked and tcpi_bytes_received are in struct tcp_info (linux/tcp.h).
_TCP_BYTES = struct.Struct("<120xQQ")


class Counters:
    """Connections and their bytes since the last report."""

    def __init__(self) -> None:
        self.open = 0
        self.reset()

    def reset(self) -> None:
        self.connections = self.sent = self.received = 0
        self.cpu = _cpu()
        Lateness.worst = 0.0

    async def report(self) -> str:
        """Return the counters once all connections have ended, and reset them."""
        until = time.monotonic() + _END_S
        while self.open and time.monotonic() < until:
            await asyncio.sleep(0.01)
        found = {
            "connections": self.connections,
            "sent": self.sent,
            "received": self.received,
            "cpu": _cpu() - self.cpu,
            "late": Lateness.worst,
        }
        self.reset()
        return json.dumps(found)


class Server(asyncssh.SSHServer):
    """One connection of a client."""

    def __init__(self, hosts: dict[str, FakeHost], counters: Counters) -> None:
        self._hosts, self._counters = hosts, counters

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._host = self._hosts[conn.get_extra_info("sockname")[0]]
        self._socket = conn.get_extra_info("socket")
        self._sent = self._received = 0
        self._counters.open += 1
        self._counters.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.note()
        self._counters.open -= 1
        self._counters.sent += self._sent
        self._counters.received += self._received

    def note(self) -> None:
        """Read how many bytes have passed. This is impossible once a client has closed the connection."""
        with contextlib.suppress(OSError):
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_BYTES.size)
            self._sent, self._received = _TCP_BYTES.unpack(info)

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return ServerSession(self._host, self.note)


class ServerSession(asyncssh.SSHServerSession[bytes]):
    """One command of a client."""

    def __init__(self, host: FakeHost, note: Callable[[], None]) -> None:
        self._host, self._note = host, note
        self._session: FakeSession | None = None
        self._inspection: Inspection | None = None
        self._mark = ""

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        if command.endswith(names.PROGRAM):
            self._session = FakeSession(self._host, self._channel.write, self._exit)
        self._mark = mark_of(command)
        return True

    def session_started(self) -> None:
        if self._mark:
            self._inspection = Inspection(self._host.name, self._mark, self._channel.write, self._exit)
        elif self._session is None:
            self._exit(0)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:  # noqa: ARG002
        if self._session is not None:
            self._session.data(data)
        self._note()

    def eof_received(self) -> bool:
        self._note()
        if self._session is not None:
            self._session.close()
        if self._inspection is not None:
            self._inspection.received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._session is not None:
            self._session.close()

    def _exit(self, status: int) -> None:
        """End the output before the command, as sshd does: a client waits for a moment if it misses that."""
        self._channel.write_eof()
        self._channel.exit(status)

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.pause(True)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.pause(False)


def send_as_sshd() -> None:
    """Have asyncssh send no SSH_MSG_IGNORE. It sends one before every message; sshd does so with CBC ciphers alone."""
    send = asyncssh.SSHServerConnection.send_packet

    def send_packet(self: Any, pkttype: int, *args: bytes, **options: Any) -> None:
        if pkttype != MSG_IGNORE:
            send(self, pkttype, *args, **options)

    asyncssh.SSHServerConnection.send_packet = send_packet  # type: ignore[method-assign]


def spare_cpu() -> None:
    """Leave more CPU time to the clients, because real hosts take none of it from them.

    asyncssh formats a message for each step, even if none is logged, and for each login reads the host key and the
    options again. Both together take a third of its CPU time. There are many objects, and little garbage.
    """

    async def reload_config(self: asyncssh.SSHServerConnection) -> None:
        pass

    def log(*_: object, **__: object) -> None:
        pass

    asyncssh.SSHServerConnection.reload_config = reload_config  # type: ignore[method-assign]
    SSHLogger.log = log  # type: ignore[method-assign]
    gc.set_threshold(50_000)


async def serve(folder: Path, port: int, rate: float, numbers: range) -> None:
    """Serve these hosts until stdin ends."""
    hosts = {address(number): FakeHost(name(number), rate) for number in numbers}
    counters = Counters()
    await asyncssh.listen(
        host=list(hosts),
        port=port,
        server_factory=lambda: Server(hosts, counters),
        server_host_keys=[str(folder / HOST_KEY)],
        authorized_client_keys=str(folder / f"{USER_KEY}.pub"),
        encoding=None,
        gss_host=None,
        line_editor=False,
        login_timeout=300,
        backlog=4096,
        **_ALGORITHMS,
    )
    print("ready", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(await counters.report(), flush=True)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(words: list[str]) -> None:
    folder, port, rate, first, count = words
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    send_as_sshd()
    spare_cpu()
    asyncio.run(serve(Path(folder), int(port), float(rate), range(int(first), int(first) + int(count))))
    os._exit(0)  # connections that are still open need no farewell


if __name__ == "__main__":
    main(sys.argv[1:])
