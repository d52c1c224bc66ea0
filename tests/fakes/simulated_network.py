"""Time, processes and the network of several hosts, simulated in one process by an event loop of asyncio.

Code that uses asyncio's streams, `time.time` and `time.monotonic` runs unchanged: its connections lead to simulated
hosts, and its waits take no time. The clock advances to the next event whenever nothing is left to do.

What is simulated: processes that are killed (their connections are closed), hosts that lose power (nothing is closed;
whoever writes after the next boot gets a reset), and networks that lose everything between two hosts until they are
healed (TCP sends it again). The socket of a server is held by systemd: connections wait there while it restarts.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: The time at which a simulation begins.
EPOCH = 1_790_000_000.0
#: The process that runs.
PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Process:
    """A process of a host. Its tasks and connections die with it."""

    def __init__(self, network: Network, host: str) -> None:
        self.network, self.host, self.dead = network, host, False
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.pipes: set[Pipe] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin to run a coroutine in this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return self.network.loop.create_task(work, context=context)

    def kill(self, *, silently: bool = False) -> None:
        """End it as SIGKILL does. ``silently``: as a power loss does."""
        self.dead = True
        for pipe in list(self.pipes):
            if silently:
                pipe.vanish()
            else:
                pipe.close()
        for task in list(self.tasks):
            task.cancel()


class Network:
    """The hosts' network and the clock of all of them. ``addresses``: host by address."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self.now = 1000.0
        #: By how many seconds the clocks of hosts are ahead.
        self.ahead: dict[str, float] = {}
        self.off: set[str] = set()
        self._cut: set[frozenset[str]] = set()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._local: dict[str, tuple[Process, Callable[..., Coroutine[Any, Any, None]]]] = {}
        self._pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()
        #: Exceptions that no code has caught, which a real process prints as a traceback.
        self.tracebacks: list[str] = []
        self.loop = _Loop(self)
        self.loop.set_exception_handler(lambda _, what: self._note(what))

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Let this process have the simulated time during the block, and close the event loop after it."""
        real = time.time, time.monotonic
        time.time, time.monotonic = self.time, lambda: self.now
        try:
            yield
        finally:
            for pipe in list(self._pipes):
                pipe.vanish()
            while tasks := asyncio.all_tasks(self.loop):  # again and again: wait_for may lose a cancellation
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            time.time, time.monotonic = real
            self.loop.close()

    def time(self, host: str = "") -> float:
        """Return the time by the clock of this host, or of the one whose process asks."""
        process = PROCESS.get(None)
        return EPOCH + self.now + self.ahead.get(host or (process.host if process else ""), 0.0)

    def advance(self, seconds: float) -> None:
        """Let this time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def cut(self, *hosts: str) -> None:
        """Lose everything between these two hosts."""
        self._cut.add(frozenset(hosts))

    def heal(self) -> None:
        """Let everything pass again, also what has waited."""
        self._cut.clear()
        self.flush()

    def flush(self) -> None:
        for pipe in list(self._pipes):
            pipe.flush()

    def address(self, host: str) -> str:
        return next(address for address, name in self._addresses.items() if name == host)

    def reaches(self, one: str, other: str) -> bool:
        return not self.off & {one, other} and frozenset((one, other)) not in self._cut

    def listen(self, process: Process, port: int) -> Listener:
        """Open a port of a host, as systemd does for a socket unit. ``process``: systemd."""
        found = self._listeners[process.host, port] = Listener(process)
        return found

    def close(self, host: str, port: int) -> None:
        listener = self._listeners.pop((host, port), None)
        if listener is not None:
            listener.close()

    def listen_locally(self, path: str, process: Process, serve: Callable[..., Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine of ``process`` for each connection to a local socket, with its reader and writer."""
        self._local[path] = process, serve

    def close_locally(self, path: str) -> None:
        self._local.pop(path, None)

    async def connect(self, factory: Callable[[], Any], address: str, port: int) -> tuple[Pipe, Any]:
        process, host = PROCESS.get(), self._addresses[address]
        while not self.reaches(process.host, host):
            await asyncio.sleep(1.0)  # nobody answers, and TCP tries again
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = self._pair(process, listener.process)
        listener.offer(far)
        return near, near.speak(factory)

    async def connect_locally(self, factory: Callable[[], Any], path: str) -> tuple[Pipe, Any]:
        if path not in self._local:
            raise FileNotFoundError(2, "No such file or directory")
        process, serve = self._local[path]
        near, far = self._pair(PROCESS.get(), process)
        reader = asyncio.StreamReader(limit=2**24, loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        far.speak(lambda: protocol)
        process.run(serve(reader, asyncio.StreamWriter(far, protocol, reader, self.loop)))
        return near, near.speak(factory)

    def _note(self, what: Mapping[str, Any]) -> None:
        error = what.get("exception")
        if not isinstance(error, asyncio.CancelledError):  # of a process that was killed
            self.tracebacks.append(f"{what.get('message')}: {error!r}")

    def _pair(self, one: Process, other: Process) -> tuple[Pipe, Pipe]:
        pipes = Pipe(one), Pipe(other)
        pipes[0].peer, pipes[1].peer = pipes[1], pipes[0]
        self._pipes.update(pipes)
        return pipes


class Listener:
    """A socket that listens. Connections wait until somebody accepts them."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._waiting: deque[Pipe] = deque()
        self._server: tuple[Process, Callable[[], Any]] | None = None

    def serve(self, process: Process, factory: Callable[[], Any]) -> Listener:
        self._server = process, factory
        while self._waiting:
            self.offer(self._waiting.popleft())
        return self

    def offer(self, pipe: Pipe) -> None:
        if self._server is None or self._server[0].dead:
            self._waiting.append(pipe)
            return
        process, factory = self._server
        pipe.move_to(process)
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        context.run(pipe.speak, factory)

    def listen(self, backlog: int) -> None:
        """Any number of connections may wait."""

    def close(self) -> None:
        for pipe in self._waiting:
            pipe.close()


class Pipe(asyncio.Transport):
    """One end of a connection."""

    peer: Pipe

    def __init__(self, process: Process) -> None:
        super().__init__()
        self.process = process
        self._protocol: Any = None
        #: What the protocol does when data arrives is done by the process that has begun to speak.
        self._context = contextvars.copy_context()
        self._closed = self._vanished = self._paused = False
        self._sent: deque[bytes] = deque()
        self._early: list[bytes] = []
        process.pipes.add(self)

    def speak(self, factory: Callable[[], Any]) -> Any:
        self._protocol = factory()
        self._context = contextvars.copy_context()
        self._protocol.connection_made(self)
        early, self._early = self._early, []
        for data in early:
            self._take(data)
        return self._protocol

    def move_to(self, process: Process) -> None:
        self.process.pipes.discard(self)
        self.process = process
        process.pipes.add(self)

    def write(self, data: Any) -> None:
        if data and not self.is_closing():
            self._sent.append(bytes(data))
            self.flush()

    def flush(self) -> None:
        network = self.process.network
        while self._sent and network.reaches(self.process.host, self.peer.process.host):
            data = self._sent.popleft()
            if self.peer._vanished:
                self._lose(ConnectionResetError())
            else:
                network.loop.call_soon(self.peer._take, data, context=self.peer._context)

    def _take(self, data: bytes) -> None:
        if self.is_closing():
            return
        if self._protocol is None or self._paused:
            self._early.append(data)
        elif data and isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(self._protocol.get_buffer(-1))
            taken = min(len(data), len(buffer))
            buffer[:taken] = data[:taken]
            self._protocol.buffer_updated(taken)
            if data[taken:]:
                self._take(data[taken:])
        elif data:
            self._protocol.data_received(data)
        else:
            self._protocol.eof_received()

    def close(self) -> None:
        if not self.is_closing():
            self._closed = True
            self._sent.append(b"")
            self.flush()
            self._lose(None)

    def vanish(self) -> None:
        self._vanished = True
        self._sent.clear()

    def _lose(self, error: Exception | None) -> None:
        self._closed = True
        self.process.pipes.discard(self)
        if self._protocol is not None:
            self.process.network.loop.call_soon(self._protocol.connection_lost, error)

    def is_closing(self) -> bool:
        return self._closed or self._vanished

    def pause_reading(self) -> None:
        self._paused = True

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.process.network.address(self.peer.process.host), 0
        return default


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of the network, and whose connections are the network's."""

    def __init__(self, network: Network) -> None:
        self._network = network
        super().__init__(_Selector(network))
        self.set_task_factory(_task)

    def time(self) -> float:
        return self._network.now

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self._network.connect(protocol_factory, host, port)

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        return await self._network.connect_locally(protocol_factory, path)

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        return sock.serve(PROCESS.get(), protocol_factory)


class _Selector(selectors.SelectSelector):
    """Waits by advancing the clock."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left to wait for"
        self._network.now += max(0.0, timeout)
        return []


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **more)
    context = more.get("context") or contextvars.copy_context()
    process = context.get(PROCESS)
    if process is not None:
        process.tasks.add(task)
    return task
