"""A real ssh server on the loopback interface, and faults of servers and of networks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import asyncssh
from fork_server import PipedProcess

from tfctl.model.host import Host, Ssh
from tfctl.remote import file_version, ssh_config
from tfctl.remote.channel import Channel
from tfctl.remote.transport import Connection

T = TypeVar("T")
Process = asyncssh.SSHServerProcess[bytes]


def forget_files() -> None:
    """Have tfctl look again at the files of ssh and for the home directory, which it keeps for a second or longer."""
    for kept in (file_version._version, ssh_config._conditions, ssh_config._home):
        kept.cache_clear()


@contextlib.contextmanager
def serving_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop for servers in a thread."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made

    async def end() -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), made).result(10)
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


#: sshd_config(5): the defaults of MaxSessions and MaxAuthTries.
MAX_SESSIONS = 10
MAX_AUTH_TRIES = 6


class Forked(NamedTuple):
    """A program that the fork server runs: its words, and what it has in its environment beside this process's."""

    words: Sequence[str]
    environment: Mapping[str, str]


class Sshd:
    """An ssh server that runs commands by /bin/sh as this user, with ``bin`` first on their PATH.

    Commands in ``forked`` are run by the fork server, which saves the start of two shells and a Python.

    A connection may have MAX_SESSIONS at once; each lasts until its command has ended, as sshd counts them. It is
    closed when MAX_AUTH_TRIES keys have been refused.
    ``not_let_in``: what PAM says of a user whose key is accepted; then the connection is closed.
    ``logins`` counts all of them; ``most_pending`` is how many clients at once had connected but not logged in.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.key_file = folder / "id"
        self.known_hosts = folder / "known_hosts"
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.logins = 0
        self.pending = 0
        self.most_pending = 0
        self.forwards: list[tuple[str, int]] = []
        self.may_forward = True
        self.hang_in_login = False
        self.may_log_in = True
        self.not_let_in = ""
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.serving: set[asyncio.Task[None]] = set()
        self.forked: dict[str, Forked] = {}
        self._closed = False
        self._loop = loop
        user = asyncssh.generate_private_key("ssh-ed25519")
        user.write_private_key(self.key_file)
        self.key_file.chmod(0o600)
        user.write_public_key(f"{self.key_file}.pub")
        options = {"server_host_keys": [self.key], "authorized_client_keys": f"{self.key_file}.pub", **options}
        self._acceptor = self._do(self._listen(options))
        self.port: int = self._acceptor.get_port()
        self.trust(self.key)

    def trust(self, key: asyncssh.SSHKey, marker: str = "") -> None:
        """Make ``key`` the only one that known_hosts holds for this server."""
        self.known_hosts.write_text(f"{marker} [127.0.0.1]:{self.port} {public(key)}\n".lstrip())

    def host(self, name: str = "node1", *ssh_args: str, **changes: Any) -> Host:
        """Return this server as a host of an inventory, with its key known; ``changes`` are fields of Ssh."""
        words = ("-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "GlobalKnownHostsFile=none", *ssh_args)
        fields = {"host": "127.0.0.1", "port": self.port, "user": "ops", "key": str(self.key_file), "args": words}
        return Host(name, Ssh(**{**fields, **changes}))

    def command(self, name: str, script: str) -> None:
        """Create a command of this name on the server's PATH."""
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def drop(self) -> None:
        """Break all connections without notice."""

        async def drop() -> None:
            for connection in self.connections:
                connection.abort()

        self._do(drop())

    def end_sessions(self) -> None:
        """Break all connections, and kill the commands that still run: those of clients that are gone may go on."""
        self._do(self._end_sessions())

    async def _end_sessions(self) -> None:
        for connection in self.connections:
            connection.abort()
            await connection.wait_closed()
        self.connections.clear()
        for task in self.serving:
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    def close(self) -> None:
        async def close() -> None:
            self._acceptor.close()
            await self._end_sessions()
            await self._acceptor.wait_closed()

        if not self._closed:
            self._closed = True
            self._do(close())

    async def _listen(self, options: dict[str, Any]) -> asyncssh.SSHAcceptor:
        return await asyncssh.listen("127.0.0.1", 0, server_factory=lambda: _Server(self), encoding=None, **options)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def _serve(owner: Sshd) -> Callable[[Process], Coroutine[Any, Any, None]]:
    async def pump(source: Any, sink: Any, end: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        with contextlib.suppress(OSError):
            end()

    async def serve(process: Process) -> None:
        if process.command == "vanish":
            process.close()
            return
        task = asyncio.current_task()
        assert task is not None
        owner.serving.add(task)
        task.add_done_callback(owner.serving.discard)
        forked = owner.forked.get(process.command or "")
        child = await (_fork(forked) if forked else _shell(process.command or "", owner.bin))
        feed = asyncio.create_task(pump(process.stdin, child.stdin, child.stdin.close))
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        try:
            await asyncio.gather(
                pump(child.stdout, process.stdout, nothing), pump(child.stderr, process.stderr, nothing)
            )
            status = await child.wait()
        finally:
            feed.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.close()
            await child.wait()
        # As OpenSSH does: end of file, status, close.
        process.stdout.write_eof()
        if status >= 0:
            process.exit(status)
        else:
            process.exit_with_signal("KILL")

    return serve


class _Child(NamedTuple):
    """A command that runs, the leader of a process group."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    wait: Callable[[], Awaitable[int]]
    close: Callable[[], None]


async def _shell(command: str, first: Path) -> _Child:
    """Run a command by /bin/sh, with this directory first on its PATH."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"exec {command}", stdin=pipe, stdout=pipe, stderr=pipe,
        env={**os.environ, "PATH": f"{first}:{os.environ['PATH']}"}, start_new_session=True,
    )  # fmt: skip
    assert child.stdin and child.stdout and child.stderr
    return _Child(child.pid, child.stdin, child.stdout, child.stderr, child.wait, child._transport.close)  # type: ignore[attr-defined]


async def _fork(program: Forked) -> _Child:
    """Have the fork server run a program."""
    loop = asyncio.get_running_loop()
    child = PipedProcess(*program.words, environment={**os.environ, **program.environment})
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, child.stdin)
    stdin = asyncio.StreamWriter(transport, protocol, None, loop)
    transports: list[asyncio.BaseTransport] = [transport]

    async def read(pipe: IO[bytes]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        made, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        transports.append(made)
        return reader

    stdout, stderr = await read(child.stdout), await read(child.stderr)
    ended = loop.create_future()

    def note_end() -> None:
        loop.remove_reader(child.connection)
        ended.set_result(child.wait())

    loop.add_reader(child.connection, note_end)

    def close() -> None:
        for each in transports:
            each.close()

    return _Child(child.pid, stdin, stdout, stderr, lambda: asyncio.shield(ended), close)


class _Server(asyncssh.SSHServer):
    def __init__(self, owner: Sshd) -> None:
        self._owner = owner
        self._sessions = 0
        self._refused = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._owner.connections.append(conn)
        self._owner.pending += 1
        self._owner.most_pending = max(self._owner.most_pending, self._owner.pending)

    async def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        while self._owner.hang_in_login:
            await asyncio.sleep(0.05)
        if not self._owner.may_log_in:
            self._connection.set_authorized_keys(asyncssh.import_authorized_keys(""))
        if self._owner.not_let_in:
            self._connection.set_authorized_keys(asyncssh.import_authorized_keys(""))
            self._connection.send_auth_banner(self._owner.not_let_in)
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        """Refuse a key that is not among the authorized ones."""
        self._refused += 1
        if self._owner.not_let_in:
            self._connection.abort()
        if self._refused == MAX_AUTH_TRIES:
            self._connection.disconnect(asyncssh.DISC_PROTOCOL_ERROR, "Too many authentication failures")
        return False

    def auth_completed(self) -> None:
        self._owner.logins += 1
        self._owner.pending -= 1

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], Process] | bool:
        if self._sessions == MAX_SESSIONS:
            return False
        self._sessions += 1
        return self._connection.create_server_channel(encoding=None), Process(self._serve, None, 3, False)

    async def _serve(self, process: Process) -> None:
        try:
            await _serve(self._owner)(process)
        finally:
            self._sessions -= 1

    def connection_requested(self, dest_host: str, dest_port: int, *_: object) -> bool:
        self._owner.forwards.append((dest_host, dest_port))
        return self._owner.may_forward


class _Listener:
    """Accepts connections on ``port`` until it is closed."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing alone would not wake the thread, and it would take one connection more.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        for taken in self.sockets:
            taken.close()

    def take(self, taken: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                self.sockets.append(taken)
                self.take(taken)


class Relay(_Listener):
    """A network between client and server, which can be slow, silent or cut."""

    def __init__(self, to: int) -> None:
        self.delay = 0.0
        self.frozen = False
        self._forgotten = 0
        self._to = to
        self._over = threading.Event()
        super().__init__()

    def take(self, taken: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._to))
        self.sockets.append(far)
        for ends in ((taken, far), (far, taken)):
            threading.Thread(target=self._pump, args=(*ends, self._forgotten), daemon=True).start()

    def forget(self) -> None:
        """Silently drop everything on the existing connections, as a firewall does after its restart."""
        self._forgotten += 1

    def cut(self) -> None:
        """Reset all connections."""
        for end in self.sockets:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
                end.close()

    def close(self) -> None:
        self._over.set()
        self.cut()
        super().close()

    def _pump(self, source: socket.socket, sink: socket.socket, born: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay)
                while (self.frozen or born < self._forgotten) and not self._over.wait(0.01):
                    pass
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class Impostor(_Listener):
    """A listener that is not a working sshd: it sends ``greeting``, then stays silent or hangs up."""

    def __init__(self, greeting: bytes = b"", hang_up: bool = False) -> None:
        self._greeting = greeting
        self._hang_up = hang_up
        super().__init__()

    def take(self, taken: socket.socket) -> None:
        taken.sendall(self._greeting)
        if self._hang_up:
            taken.close()


@contextlib.contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """Yield the port of a server that answers each connection, once all input is there, with ``answer`` of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    taken.sendall(answer(_all_of(taken)))

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def ask(port: int, data: bytes) -> bytes:
    """Send ``data`` to a port of this machine; return the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as end:
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
        return _all_of(end)


def _all_of(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(65536), b""))


class Done(NamedTuple):
    """The result of a process: its exit status (-1: killed), its stdout, and the end of its stderr."""

    status: int
    stdout: bytes
    stderr: str


def run(connection: Connection, words: Sequence[str], stdin: bytes = b"") -> Done:
    """Run a command on a connection and return its result."""
    with connection.exec(words) as channel:
        channel.send(stdin)
        return finish(channel)


def finish(channel: Channel, limit: float = 20.0) -> Done:
    """Close the process's stdin and return its result."""
    channel.close_stdin()
    status = channel.wait(limit)
    return Done(status, b"".join(iter(lambda: channel.readline(limit), b"")), channel.stderr())


def public(key: asyncssh.SSHKey) -> str:
    """Return the key's type and base64 text, as in known_hosts."""
    return " ".join(key.export_public_key().decode().split()[:2])
