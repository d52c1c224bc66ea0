"""Connections by the system's `ssh` program, which knows more ways to log in and to verify a host than paramiko.

`connect` starts one `ssh` per host. It verifies the host's key, logs in, and listens on a control socket, through which
every process on the host is started (ControlMaster in ssh_config(5)). It ends with this process, however that ends.
"""

from __future__ import annotations

import math
import os
import shlex
import socket
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tfctl.errors import TfctlError
from tfctl.model.host import Host
from tfctl.remote import control, refusals
from tfctl.remote.channel import Spare
from tfctl.remote.dial import turn
from tfctl.remote.jump import shared
from tfctl.remote.openssh_mux import MuxSession, SessionRefused
from tfctl.remote.openssh_process import SshProcess
from tfctl.remote.pipe_channel import PipeChannel
from tfctl.remote.ssh_config import Server, login_options, resolve
from tfctl.remote.transport import KEEPALIVE_S, Stream
from tfctl.wording import plain

_OPTIONS = (
    # Nothing can answer a prompt.
    "BatchMode=yes",
    # Host keys are always checked, and known_hosts is never written.
    "StrictHostKeyChecking=yes",
    "NoHostAuthenticationForLocalhost=no",
    "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no",
    "ControlMaster=yes",
    "ControlPersist=no",
    f"ServerAliveInterval={KEEPALIVE_S}",
    "ServerAliveCountMax=3",
    # Only processes are wanted, whatever ssh_config(5) adds.
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    # As known_hosts.py writes fingerprints.
    "FingerprintHash=sha256",
)


def connect(host: Host) -> OpenSshConnection:
    """Connect as `transport.connect` does."""
    server = resolve(host)
    with turn(server):
        end = time.monotonic() + server.limit
        proxy = shared(server, server.jump, end) if server.jump else None
        path = _control_path()
        process = SshProcess(_words(host, server, proxy, path), path)
        try:
            process.wait_until_ready(server, end)
        except BaseException:
            process.close()
            raise
    return OpenSshConnection(host, server, process)


class OpenSshConnection:
    """A Connection (remote/transport.py) by the `ssh` program."""

    def __init__(self, host: Host, server: Server, process: SshProcess) -> None:
        self.host = host
        self.is_root = server.user == "root"
        self._server = server
        self._process = process
        self._lock = threading.Lock()
        self._channels: list[PipeChannel] = []
        self.spares: list[Spare] = []

    def __enter__(self) -> OpenSshConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return not self._process.has_ended()

    def exec(self, words: Sequence[str], window: int | None = None) -> PipeChannel:  # noqa: ARG002  ssh has its own
        text, server = shlex.join(words), self._server
        try:
            channel = PipeChannel(self.host.name, text, partial(self._run, text), self._process.has_ended)
        except SessionRefused as error:
            raise refusals.no_session(server, plain(str(error))) from None
        except OSError as error:
            if not self.alive or isinstance(error, ConnectionError | FileNotFoundError):
                raise refusals.lost_before(server, text) from None
            if isinstance(error, TimeoutError):
                # Perhaps the host died silently. The next caller reconnects.
                self.close()
                raise refusals.not_started(server, text) from None
            raise refusals.no_session(server, str(error)) from None
        with self._lock:
            self._channels = [each for each in self._channels if not each.closed] + [channel]
        return channel

    def dial(self, port: int) -> Stream:
        ours, theirs = socket.socketpair()
        try:
            streams = (theirs.fileno(), theirs.fileno())
            return _Forwarded(ours, MuxSession(self._process.path, port, streams, self._server.limit))
        except BaseException as error:
            ours.close()
            if isinstance(error, SessionRefused):
                raise refusals.not_forwarded(self._server, port, plain(str(error))) from None
            if isinstance(error, OSError):
                raise refusals.lost_before(self._server, f"port {port}") from None
            raise
        finally:
            theirs.close()

    def _run(self, command: str, streams: Sequence[int]) -> MuxSession:
        return MuxSession(self._process.path, command, streams, self._server.limit)

    def close(self) -> None:
        self._process.close()
        with self._lock:
            channels, self._channels = self._channels, []
        for channel in channels:
            channel.close()


class _Forwarded:
    """A connection to a port of the host. `ssh` ends it when the session is closed."""

    def __init__(self, ours: socket.socket, session: MuxSession) -> None:
        self._ours, self._session = ours, session
        self.recv, self.sendall, self.shutdown = ours.recv, ours.sendall, ours.shutdown

    def close(self) -> None:
        self._ours.close()
        self._session.socket.close()


def _words(host: Host, server: Server, proxy: str | None, path: Path) -> list[str]:
    """Return the command that connects to ``server``, through ``proxy`` instead of its jump host if there is one.

    ssh takes the first value of an option, so our options override the host's arguments and ssh_config(5).
    """
    files = " ".join(f'"{_unexpanded(file)}"' for file in server.known_hosts)
    options = [*_OPTIONS, f"UserKnownHostsFile={files}", "GlobalKnownHostsFile=none"]
    options += [f"ConnectTimeout={math.ceil(server.limit)}"]
    options += [f"ProxyCommand={_unexpanded(proxy)}"] if proxy else []
    options += login_options(host.ssh)
    args = _without_jump(host.ssh.args) if proxy else host.ssh.args
    # -v: the log says how far ssh came. -N: no process yet. ssh takes the last of several -S.
    rest = ["-v", "-N", "-T", "-S", _unexpanded(str(path)), "--", host.ssh.host]
    return ["ssh", *(word for option in options for word in ("-o", option)), *args, *rest]


def _without_jump(args: Sequence[str]) -> list[str]:
    """Remove -J, which ssh does not accept beside a ProxyCommand."""
    words = list(args)
    kept = []
    while words:
        word = words.pop(0)
        if word == "-J":
            del words[:1]
        elif not word.startswith("-J"):
            kept.append(word)
    return kept


def _unexpanded(text: str) -> str:
    """Protect ``text`` from the expansion of % tokens."""
    return text.replace("%", "%%")


def _control_path() -> Path:
    folder = control.folder()
    if folder is None:
        raise TfctlError(
            "there is no safe directory for the sockets of ssh", "set XDG_RUNTIME_DIR to a directory that only you own"
        )
    return folder / f"{os.getpid()}.{os.urandom(4).hex()}"
