"""Connections over ssh. This is the only file that imports paramiko.

`connect` reaches a host, compares its key with known_hosts and logs in by key. Every failure is an Unreachable that
names the host and a remedy.
"""

from __future__ import annotations

import atexit
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
from tfctl.remote import known_hosts
from tfctl.remote.channel import GONE, Channel
from tfctl.remote.dial import Way, dial
from tfctl.remote.target import Target, resolve
from tfctl.wording import plain

if "paramiko" not in sys.modules:
    # paramiko imports invoke only for "Match exec" in ssh_config, and importlib.metadata only for its version. They
    # take half of its import time, and it works without them.
    spared = {"invoke": None, "importlib.metadata": SimpleNamespace(version=lambda _: "tfctl")}
    spared = {name: stub for name, stub in spared.items() if name not in sys.modules}
    sys.modules.update(spared)  # type: ignore[arg-type]
    import paramiko

    for name in spared:
        del sys.modules[name]

import paramiko
from paramiko.agent import AgentSSH
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.packet import Packetizer
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import IncompatiblePeer, PartialAuthentication

# At exit paramiko would wait 10 s for each thread that still waits for a banner. They are daemon threads: let them go.
atexit.unregister(paramiko.transport._join_lingering_threads)  # type: ignore[attr-defined]

#: Seconds between keepalives, which stop middleboxes from dropping the connection and reveal a dead peer.
KEEPALIVE_S = 15
# paramiko prefers CTR, whose MAC it compares in Python, and would also accept CBC and 3DES.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
# sshd disconnects after six refused keys (MaxAuthTries).
_MOST_KEYS = 5

# paramiko logs each refusal with a traceback, which Python prints if logging is not configured.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


def connect(host: Host) -> Connection:
    """Connect to ``host``, verify its key and log in, within its ConnectTimeout or else 10 s.

    Raises Unreachable, and BadFile for ssh arguments or an ssh_config that ssh rejects.
    """
    target = resolve(host)
    end = time.monotonic() + target.limit
    way = dial(target, end)
    transport = None
    try:
        transport = _Transport(way.stream, packetizer_class=_Packetizer)
        _agree_on_keys(transport, target, way, end)
        _log_in(transport, target, end)
    except BaseException:
        _hang_up(transport, way)
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return Connection(host, target, transport, way)


class Connection:
    """An open connection, returned by `connect`. A context manager; any thread may start processes on it."""

    def __init__(self, host: Host, target: Target, transport: paramiko.Transport, way: Way) -> None:
        self.host = host
        self.is_root = target.user == "root"
        self._target = target
        self._transport = transport
        self._way = way

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the connection was still up when last heard from."""
        return self._transport.is_active()

    def exec(self, words: Sequence[str]) -> Channel:
        """Start the command ``words`` on the host. Raises Unreachable."""
        name, text = self.host.name, shlex.join(words)
        try:
            raw = self._transport.open_session(timeout=self._target.limit)
            # paramiko sets no timeout on the answer to the next request.
            raw.event = _Impatient(self._target.limit)
            raw.exec_command(text)
        except paramiko.ChannelException as error:
            raise Unreachable(
                f"{name}: sshd opens no session: {plain(error.text)}", "too many at once (MaxSessions)? try again"
            ) from None
        except (*GONE, paramiko.SSHException) as error:
            if not self.alive:
                raise Unreachable(f"{name}: the connection broke before `{text}` ran", _OVERLOADED) from None
            if isinstance(error, TimeoutError) or "Timeout" in str(error):
                raise Unreachable(
                    f"{name}: sshd has not started `{text}` within {self._target.limit:g} s", _OVERLOADED
                ) from None
            raise Unreachable(f"{name}: sshd refuses to run `{text}`", "allow it there (ForceCommand, sshrc)") from None
        return Channel(name, text, raw)

    def close(self) -> None:
        """Close the connection and all its channels."""
        _hang_up(self._transport, self._way)


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
    """A transport that logs nothing and wakes once a second instead of ten times."""

    _active_check_timeout = 1.0

    def _log(self, *_: object) -> None:
        pass

    def _send_user_message(self, data: paramiko.Message) -> None:
        try:
            super()._send_user_message(data)  # type: ignore[misc]
        except paramiko.SSHException as error:
            # Let every failed send on a channel raise one of channel.GONE.
            raise OSError(str(error)) from None


class _Packetizer(Packetizer):
    """A packetizer without paramiko's timer thread per handshake, since `connect` has its own limit.

    It rekeys as late as OpenSSH (RFC 4344, 3.2: 2^32 blocks of AES) instead of every 512 MB: if the host closes a
    channel during a rekey, paramiko's thread stalls for 30 s and the connection is lost.
    """

    REKEY_BYTES = 1 << 36
    REKEY_PACKETS = 1 << 31

    def start_handshake(self, timeout: float) -> None:
        pass

    def handshake_timed_out(self) -> bool:
        return False

    def complete_handshake(self) -> None:
        pass


def _hang_up(transport: paramiko.Transport | None, way: Way) -> None:
    """Close at once, without waiting for paramiko's thread to wake."""
    with contextlib.suppress(OSError):
        way.stream.shutdown(socket.SHUT_RDWR)
    if transport is not None:
        with contextlib.suppress(*GONE, paramiko.SSHException):
            transport.close()
    way.close()


def _agree_on_keys(transport: paramiko.Transport, target: Target, way: Way, end: float) -> None:
    known = known_hosts.known(target)
    options = transport.get_security_options()
    options.ciphers = _CIPHERS
    options.key_types = known_hosts.preferred(known, options.key_types)
    # Disable paramiko's timeout: our own can tell at which point the host fell silent.
    transport.banner_timeout = 3600.0
    agreed = threading.Event()
    transport.start_client(event=agreed)
    if not agreed.wait(max(0.0, end - time.monotonic())):
        what = "answers, then falls silent" if transport.remote_version else "takes the connection and says nothing"
        raise Unreachable(f"{target.name}: {target.place} {what} for {target.limit:g} s", _OVERLOADED)
    if not transport.is_active():
        raise _broken_off(transport, target, way)
    key = transport.get_remote_server_key()
    known_hosts.check(target, key.get_name(), key.asbytes(), known)


def _broken_off(transport: paramiko.Transport, target: Target, way: Way) -> Unreachable:
    error = transport.get_exception()
    what = plain(str(error or "")).strip()
    place = f"{target.name}: {target.place}"
    if isinstance(error, IncompatiblePeer):
        return Unreachable(f"{place}: no algorithm in common: {what}", "its sshd is too old, or too strict")
    if "Indecipherable protocol version" in what:
        said = what.partition('version "')[2].rstrip('"')[:80]
        return Unreachable(f"{place} is not sshd; it says: {said}", "correct ansible_host or ansible_port")
    if target.proxy is not None and (said := plain(way.said())):
        return Unreachable(f"{place}: the way there broke off: {said}", f"it is: {target.proxy}")
    if not transport.remote_version:
        return Unreachable(f"{place} closes the connection before it says anything", _TOO_MANY)
    return Unreachable(f"{place} broke off the key exchange{': ' if what else ''}{what}", _TOO_MANY)


def _log_in(transport: paramiko.Transport, target: Target, end: float) -> None:
    with _keys(target) as keys:
        for number, key in enumerate(keys[:_MOST_KEYS]):
            with contextlib.suppress(*GONE, paramiko.SSHException):
                _offer(transport, target.user, key, number == 0, max(0.0, end - time.monotonic()))
            if transport.is_authenticated():
                return
            if time.monotonic() >= end:
                raise Unreachable(
                    f"{target.name}: {target.place} does not answer the login within {target.limit:g} s", _OVERLOADED
                )
            if isinstance(error := transport.get_exception(), PartialAuthentication):
                raise Unreachable(
                    f"{target.name}: {target.place} wants more than a key: {', '.join(error.allowed_types)}",
                    "let sshd there accept a key alone (AuthenticationMethods)",
                )
            if not transport.is_active():
                break
    raise _refused(target)


def _offer(transport: paramiko.Transport, user: str, key: paramiko.PKey, first: bool, limit: float) -> None:
    """Offer a key; return once the host has answered, or after ``limit`` seconds."""
    if first:
        answered = threading.Event()
        transport.auth_publickey(user, key, event=answered)
        answered.wait(limit)
        return
    # auth_publickey would request the service again, which RFC 4252 does not provide for.
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


def _refused(target: Target) -> Unreachable:
    file = f" -i {shlex.quote(target.keys[0])}" if target.keys else ""
    return Unreachable(
        f"{target.name}: {target.place} does not let user {target.user} in with "
        f"{' or '.join(target.keys) or 'any key of the agent or of ~/.ssh'}",
        f"correct ansible_user or ansible_ssh_private_key_file, or install the key: ssh-copy-id{file} "
        f"-p {target.port} {target.user}@{target.address}",
    )


@contextmanager
def _keys(target: Target) -> Iterator[list[paramiko.PKey]]:
    """Yield the keys to offer, best first: those named for the host, else the agent's and the usual files. They are
    usable within the block. Raises Unreachable if there is none."""
    agent = _Agent(target.agent)
    found: list[paramiko.PKey] = [] if target.keys else [*agent.held()]
    trouble: list[Unreachable] = []
    try:
        for name in target.keys or [name for name in target.usual_keys if Path(name).exists()]:
            try:
                found += _from_file(target, name, agent)
            except Unreachable as error:
                trouble.append(error)
        if not found:
            raise (
                trouble[0]
                if trouble
                else Unreachable(
                    f"{target.name}: no ssh key to log in to {target.place} with",
                    "name one in the inventory (ansible_ssh_private_key_file), or make one: ssh-keygen -t ed25519",
                )
            )
        yield found
    finally:
        agent.close()


def _from_file(target: Target, name: str, agent: _Agent) -> list[paramiko.PKey]:
    try:
        return _load(name)
    except FileNotFoundError:
        raise Unreachable(
            f"{target.name}: the key file {name} does not exist", "correct ansible_ssh_private_key_file or IdentityFile"
        ) from None
    except OSError as error:
        raise Unreachable(f"{target.name}: the key file {name}: {error.strerror}", "make it readable") from None
    except TypeError:
        # cryptography raises TypeError for a key with a passphrase. An agent that holds the key does not need it.
        if held := agent.held(Path(f"{name}.pub")):
            return held
        raise Unreachable(
            f"{target.name}: the key file {name} needs a passphrase, and no agent holds the key",
            f"unlock it for this session: eval $(ssh-agent); ssh-add {shlex.quote(name)}",
        ) from None
    except (ValueError, paramiko.SSHException, UnknownKeyType):
        raise Unreachable(
            f"{target.name}: {name} holds no private key that can be used", "it should begin with -----BEGIN"
        ) from None


_loaded: dict[str, tuple[tuple[int, int], list[paramiko.PKey]]] = {}
_loaded_lock = threading.Lock()


def _load(name: str) -> list[paramiko.PKey]:
    """Return the key, preceded by its certificate if it has one. Each file is read once for all hosts."""
    with _loaded_lock:
        state = Path(name).stat()
        version = (state.st_mtime_ns, state.st_size)
        if name not in _loaded or _loaded[name][0] != version:
            key = paramiko.PKey.from_path(name)
            keys = [key]
            if key.public_blob is not None:
                keys.append(paramiko.PKey.from_path(name))
                keys[1].public_blob = None
            _loaded[name] = (version, keys)
        return _loaded[name][1]


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


_OVERLOADED = "the machine may be overloaded, or out of disk or memory: look at its console"
_TOO_MANY = (
    "its sshd may refuse connections for a while (MaxStartups, PerSourcePenalties), or a firewall turns this machine "
    "away: `journalctl -u ssh` there says so"
)
