"""Fake hosts on loopback addresses, and the files with which clients reach them."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: Files in the folder of a rig.
HOST_KEY, USER_KEY = "host_key", "id"
ROOT = Path(__file__).resolve().parents[2]
USER = "ops"


class Traffic(NamedTuple):
    """What the servers have seen since the last report.

    ``sent``, ``received``: the bytes that they sent to clients and received from them, with those of ssh. ``cpu``: the
    seconds that the servers used. ``late``: how late (s) they sent a line at most.
    """

    connections: int
    sent: int
    received: int
    cpu: float
    late: float


def name(number: int) -> str:
    return f"node{number:04}"


def address(number: int) -> str:
    """Return the address of a host, counted from 1: 127.1.0.1 to 127.1.0.250, then 127.1.1.1."""
    return f"127.1.{(number - 1) // 250}.{(number - 1) % 250 + 1}"


class Rig:
    """So many fake hosts. A context manager; ``folder`` is an empty directory for its files.

    ``processes``: how many processes the servers share. ``rate``: lines a second that each task prints.
    """

    def __init__(self, folder: Path, hosts: int, processes: int = 1, rate: float = 10.0) -> None:
        self.folder = folder
        self.hosts = hosts
        self.port = _free_port()
        self.inventory = folder / "hosts.ini"
        self.known_hosts = folder / "known_hosts"
        self.key = folder / USER_KEY
        self.addresses = [address(number) for number in range(1, hosts + 1)]
        self._rate = rate
        self._processes = min(processes, hosts)
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Rig:
        self._write_files()
        try:
            self._serve()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.kill()
            server.wait(20)
            for end in (server.stdin, server.stdout):
                with contextlib.suppress(OSError):
                    if end is not None:
                        end.close()

    def report(self) -> Traffic:
        """Return what has happened since the last report, once all clients have left."""
        for server in self._servers:
            assert server.stdin is not None
            server.stdin.write("report\n")
            server.stdin.flush()
        found = [Traffic(**json.loads(_line(server))) for server in self._servers]
        return Traffic(
            sum(one.connections for one in found),
            sum(one.sent for one in found),
            sum(one.received for one in found),
            sum(one.cpu for one in found),
            max(one.late for one in found),
        )

    def ssh_options(self) -> list[str]:
        """Return the options with which ssh reaches the hosts without any file of the user."""
        return ["-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "GlobalKnownHostsFile=none"]

    def _write_files(self) -> None:
        import asyncssh

        host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        host_key.write_private_key(self.folder / HOST_KEY)
        user_key.write_private_key(self.key)
        self.key.chmod(0o600)
        user_key.write_public_key(f"{self.key}.pub")
        public = " ".join(host_key.export_public_key().decode().split()[:2])
        self.known_hosts.write_text("".join(f"[{one}]:{self.port} {public}\n" for one in self.addresses))
        # Placement refuses loopback addresses for tasks. No task connects to another one.
        hosts = [
            f"{name(number)} ansible_host={one} tfctl_address=10.{one.partition('.')[2]}"
            for number, one in enumerate(self.addresses, 1)
        ]
        variables = [
            f"ansible_port={self.port}",
            f"ansible_user={USER}",
            f"ansible_ssh_private_key_file={self.key}",
            f"ansible_ssh_common_args='{' '.join(self.ssh_options())}'",
            "tfctl_ports=23400-23499",
        ]
        self.inventory.write_text("\n".join([*hosts, "", "[all:vars]", *variables, ""]))

    def _serve(self) -> None:
        share, more = divmod(self.hosts, self._processes)
        first = 1
        for number in range(self._processes):
            count = share + (number < more)
            words = [str(self.folder), str(self.port), str(self._rate), str(first), str(count)]
            first += count
            # In a session of its own, so that Ctrl-C ends the clients first.
            server = subprocess.Popen(
                [sys.executable, "-m", "scripts.bench_scale.server", *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._servers.append(server)
        for server in self._servers:
            _line(server)


def _line(server: subprocess.Popen[str]) -> str:
    """Return the next line that a server prints. Raise RuntimeError if it has ended."""
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line:
        raise RuntimeError(f"the ssh servers have ended with status {server.wait(20)}")
    return line


def _free_port() -> int:
    with socket.create_server((address(1), 0)) as listener:
        return int(listener.getsockname()[1])
