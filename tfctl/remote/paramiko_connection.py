"""Connections by paramiko. This is the only file that imports it.

`connect` reaches a host, compares its key with known_hosts and logs in by key. Every failure is an Unreachable that
names the host and a remedy.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from tfctl.errors import Unreachable
from tfctl.model.host import Host
from tfctl.remote import key_files, known_hosts, refusals
from tfctl.remote.channel import Spare
from tfctl.remote.dial import ByteStream, dial, turn
from tfctl.remote.file_version import Version, version
from tfctl.remote.paramiko_channel import GONE, ParamikoChannel
from tfctl.remote.read_ahead import ReadAhead
from tfctl.remote.ssh_config import Server, resolve
from tfctl.remote.transport import KEEPALIVE_S, Stream
from tfctl.wording import plain

if "paramiko" not in sys.modules:
    # paramiko imports invoke only for "Match exec" in ssh_config, and importlib.metadata only for its version. Of the
    # 150 ms of CPU that its import takes, invoke takes 50 and importlib.metadata 20; it works without them.
    spared = {"invoke": None, "importlib.metadata": SimpleNamespace(version=lambda _: "tfctl")}
    spared = {name: stub for name, stub in spared.items() if name not in sys.modules}
    sys.modules.update(spared)  # type: ignore[arg-type]
    import paramiko

    for name in spared:
        del sys.modules[name]

import paramiko
from paramiko.agent import AgentSSH
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import IncompatiblePeer, PartialAuthentication

# paramiko prefers CTR, whose MAC it compares in Python, and would also accept CBC and 3DES.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
# sshd disconnects after six refused keys (MaxAuthTries).
_MOST_KEYS = 5

# paramiko logs each refusal with a traceback, which Python prints if logging is not configured.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


def connect(host: Host) -> ParamikoConnection:
    """Connect as `transport.connect` does."""
    server = resolve(host)
    with turn(server):
        end = time.monotonic() + server.limit
        link = dial(server, end)
        transport = None
        try:
            transport = _Transport(link.stream, server.limit)
            _agree_on_keys(transport, server, link, end)
        except BaseException:
            _hang_up(transport, link)
            raise
    try:
        _log_in(transport, server, end)
    except BaseException:
        _hang_up(transport, link)
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return ParamikoConnection(host, server, transport, link)


class ParamikoConnection:
    """A Connection (remote/transport.py) by paramiko."""

    def __init__(self, host: Host, server: Server, transport: paramiko.Transport, link: ByteStream) -> None:
        self.host = host
        self.is_root = server.user == "root"
        self._server = server
        self._transport = transport
        self._link = link
        self.spares: list[Spare] = []

    def __enter__(self) -> ParamikoConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._transport.is_active()

    def exec(self, words: Sequence[str], window: int | None = None) -> ParamikoChannel:
        name, text = self.host.name, shlex.join(words)
        try:
            raw = self._transport.open_session(window_size=window, timeout=self._server.limit)
            # paramiko sets no timeout on the answer to the next request.
            raw.event = _Impatient(self._server.limit)
            raw.exec_command(text)
        except paramiko.ChannelException as error:
            raise refusals.no_session(self._server, plain(error.text)) from None
        except (*GONE, paramiko.SSHException) as error:
            if not self.alive:
                raise refusals.lost_before(self._server, text) from None
            if isinstance(error, TimeoutError) or "Timeout" in str(error):
                # Perhaps it died silently: then paramiko calls it alive for another minute. The next caller reconnects.
                self.close()
                raise refusals.not_started(self._server, text) from None
            raise Unreachable(f"{name}: sshd refuses to run `{text}`", "allow it there (ForceCommand, sshrc)") from None
        return ParamikoChannel(name, text, raw)

    def dial(self, port: int) -> Stream:
        here = ("127.0.0.1", 0)
        try:
            raw = self._transport.open_channel("direct-tcpip", ("127.0.0.1", port), here, timeout=self._server.limit)
        except paramiko.ChannelException as error:
            raise refusals.not_forwarded(self._server, port, plain(error.text)) from None
        except (*GONE, paramiko.SSHException):
            raise refusals.lost_before(self._server, f"port {port}") from None
        raw.settimeout(None)
        return raw

    def close(self) -> None:
        _hang_up(self._transport, self._link)


class _Impatient(threading.Event):
    """An event whose `wait` always has a timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(self._seconds if timeout is None else timeout):
            raise TimeoutError
        return True


class _Transport(paramiko.Transport):
    """A transport for hundreds of connections, any of which may hang."""

    # How often (s) its thread wakes to see whether to end. At paramiko's 0.1, an idle connection takes 0.6 ms of CPU a
    # second, so 1,000 of them take more than half a core; at 1, a seventh of that.
    _active_check_timeout = 1.0

    def __init__(self, stream: socket.socket, limit: float) -> None:
        super().__init__(ReadAhead(stream))  # type: ignore[arg-type]
        options = self.get_security_options()
        options.ciphers = _CIPHERS
        # Rekey as late as OpenSSH (RFC 4344, 3.2: 2^32 blocks of AES) instead of every 512 MB: if the host closes a
        # channel during a rekey, paramiko's thread stalls for 30 s and the connection is lost.
        self.packetizer.REKEY_BYTES = 1 << 36
        self.packetizer.REKEY_PACKETS = 1 << 31
        # `connect` has a limit of its own, whose error says at which step the host stopped answering. paramiko's would
        # take a thread for each connection.
        self.banner_timeout = limit + 5.0
        self.packetizer.start_handshake = lambda timeout: None  # type: ignore[method-assign]  # noqa: ARG005

    def _filter_algorithm(self, kind: str) -> tuple[str, ...]:
        """Return the algorithms of a kind. paramiko filters out disabled ones 16 times per connection; none is."""
        found: tuple[str, ...] = getattr(self, f"_preferred_{kind}")
        return found

    def _log(self, *_: object) -> None:
        """Do nothing: to format 30 messages for each connection takes 5 % of its CPU time, and nobody reads them."""

    def _send_user_message(self, data: paramiko.Message) -> None:
        try:
            super()._send_user_message(data)  # type: ignore[misc]
        except paramiko.SSHException as error:
            # The host has left a rekey unanswered for 30 s. Such a connection is lost, and nothing says so otherwise.
            self.close()
            raise OSError(str(error)) from None


def _hang_up(transport: paramiko.Transport | None, link: ByteStream) -> None:
    """Close at once, without waiting for paramiko's thread to wake."""
    with contextlib.suppress(OSError):
        link.stream.shutdown(socket.SHUT_RDWR)
    if transport is not None:
        with contextlib.suppress(*GONE, paramiko.SSHException):
            transport.close()
    link.close()


def _agree_on_keys(transport: paramiko.Transport, server: Server, link: ByteStream, end: float) -> None:
    known = known_hosts.known(server)
    options = transport.get_security_options()
    options.key_types = known_hosts.preferred(known, options.key_types)
    agreed = threading.Event()
    transport.start_client(event=agreed)
    if not agreed.wait(max(0.0, end - time.monotonic())):
        raise refusals.silent_in_key_exchange(server) if transport.remote_version else refusals.silent_at_first(server)
    if not transport.is_active():
        raise _key_exchange_error(transport, server, link)
    key = transport.get_remote_server_key()
    known_hosts.check(server, key.get_name(), key.asbytes(), known)


def _key_exchange_error(transport: paramiko.Transport, server: Server, link: ByteStream) -> Unreachable:
    """Return why the host closed the connection before it had shown its key."""
    error = transport.get_exception()
    what = plain(str(error or "")).strip()
    if isinstance(error, IncompatiblePeer):
        return refusals.no_common_algorithm(server, what)
    if "Indecipherable protocol version" in what:
        return refusals.not_sshd(server, what.partition('version "')[2].rstrip('"'))
    if server.proxy is not None and (message := plain(link.error_text())):
        return refusals.proxy_failed(server, message)
    if not transport.remote_version:
        return refusals.closed_at_first(server)
    return refusals.key_exchange_ended(server, what)


def _log_in(transport: paramiko.Transport, server: Server, end: float) -> None:
    with _keys(server) as keys:
        for number, key in enumerate(keys[:_MOST_KEYS]):
            with contextlib.suppress(*GONE, paramiko.SSHException):
                _offer(transport, server.user, key, number == 0, max(0.0, end - time.monotonic()))
            if transport.is_authenticated():
                return
            if time.monotonic() >= end:
                raise refusals.silent_in_login(server)
            if isinstance(error := transport.get_exception(), PartialAuthentication):
                raise Unreachable(
                    f"{server.name}: {server.place} requires more than a key: {', '.join(error.allowed_types)}",
                    "configure sshd on the host to accept a key alone (AuthenticationMethods)",
                )
            if not transport.is_active():
                break
    # Not get_banner(), which returns nothing once the host has closed the connection.
    banner = getattr(transport.auth_handler, "banner", None) or b""
    raise refusals.not_let_in(server, banner.decode(errors="replace")) or refusals.key_refused(server)


def _offer(transport: paramiko.Transport, user: str, key: paramiko.PKey, first: bool, limit: float) -> None:
    """Offer a key; return once the host has answered, or after ``limit`` seconds."""
    if first:
        answered = threading.Event()
        transport.auth_publickey(user, key, event=answered)
        answered.wait(limit)
        return
    # auth_publickey would request the service again, which RFC 4252 does not provide for: some servers hang up.
    transport.auth_timeout = limit
    transport.auth_handler = handler = _Handler(transport)
    handler.auth_publickey(user, key)


class _Handler(AuthOnlyHandler):
    """A handler that creates its event up front: paramiko creates it after the request and can miss a fast answer."""

    def __init__(self, transport: paramiko.Transport) -> None:
        self._answered = threading.Event()
        super().__init__(transport)

    @property
    def auth_event(self) -> threading.Event:
        return self._answered

    @auth_event.setter
    def auth_event(self, _: object) -> None:
        pass


@contextmanager
def _keys(server: Server) -> Iterator[list[paramiko.PKey]]:
    """Yield the keys to offer, best first: those named for the host, else the agent's and the usual files. They are
    usable within the block. Raises Unreachable if there is none."""
    agent = _Agent(server.agent)
    found: list[paramiko.PKey] = [] if server.keys else [*agent.held()]
    trouble: list[Unreachable] = []
    try:
        for name in server.keys or [name for name in server.usual_keys if Path(name).exists()]:
            try:
                found += _from_file(server, name, agent)
            except Unreachable as error:
                trouble.append(error)
        if not found:
            raise (
                trouble[0]
                if trouble
                else Unreachable(
                    f"{server.name}: no ssh key to log in to {server.place} with",
                    "name one in the inventory (ansible_ssh_private_key_file), or make one: ssh-keygen -t ed25519",
                )
            )
        yield found
    finally:
        agent.close()


def _from_file(server: Server, name: str, agent: _Agent) -> list[paramiko.PKey]:
    try:
        if loaded := _loaded_from(name):
            return loaded
        if key_files.is_public(name):
            return _of_public_file(server, name, agent)
        if key_files.is_on_token(name):
            raise refusals.key_on_token(server, name)
        return _load(name)
    except FileNotFoundError:
        # The agent may be the only place of the private key.
        public = Path(f"{name}.pub")
        if held := agent.held(public) if public.is_file() or not server.only_named else []:
            return held
        raise refusals.key_file_missing(server, name) from None
    except OSError as error:
        raise Unreachable(f"{server.name}: the key file {name}: {error.strerror}", "make it readable") from None
    except TypeError:
        # cryptography raises TypeError for a key with a passphrase. An agent that holds the key does not need it.
        if held := agent.held(Path(f"{name}.pub")):
            return held
        raise refusals.key_file_locked(server, name) from None
    except (ValueError, paramiko.SSHException, UnknownKeyType):
        raise refusals.key_file_unusable(server, name) from None


def _of_public_file(server: Server, name: str, agent: _Agent) -> list[paramiko.PKey]:
    """Return the agent's key that belongs to a public key file, as ssh uses such a file."""
    if held := agent.held(Path(name)):
        return held
    raise refusals.key_only_public(server, name)


_loaded: dict[str, tuple[Version, list[paramiko.PKey]]] = {}
_loaded_lock = threading.Lock()


def _loaded_from(name: str) -> list[paramiko.PKey]:
    """Return the keys that `_load` has read from the file, as long as it has not changed."""
    before, keys = _loaded.get(name, (None, []))
    return keys if before is not None and before == version(name) else []


def _load(name: str) -> list[paramiko.PKey]:
    """Return the key, preceded by its certificate if it has one. Each file is read once for all hosts."""
    with _loaded_lock:
        if not (keys := _loaded_from(name)):
            before = version(name)
            keys = [key := paramiko.PKey.from_path(name)]
            if key.public_blob is not None:
                keys.append(paramiko.PKey.from_path(name))
                keys[1].public_blob = None
            if before is not None:
                _loaded[name] = (before, keys)
        return keys


class _Agent(AgentSSH):
    """The ssh agent, one connection per login, opened on first use: its protocol allows one request at a time."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._path = path

    def held(self, public: Path | None = None) -> list[paramiko.PKey]:
        """Return the agent's keys; if the file ``public`` exists, only the key that it contains."""
        if self._path is not None:
            self._dial(self._path)
            self._path = None
        wanted = public.read_text(errors="replace").split()[1:2] if public is not None and public.is_file() else []
        return [key for key in self.get_keys() if not wanted or key.get_base64() == wanted[0]]

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]

    def _dial(self, path: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except (OSError, paramiko.SSHException):
            connection.close()
