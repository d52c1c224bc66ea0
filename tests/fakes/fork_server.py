"""Run Python programs in forks of one process, which has imported their modules.

To start Python and to import what the node part, the fakes or the command line need takes 50 to 300 ms of CPU time, and
the tests do it thousands of times. A fork takes a few milliseconds. The programs are the same, and each is still a
process with its own standard streams, directory, environment and session.

`fork_server.py ADDRESS MODULES` is the server, which the class ForkServer starts. A client connects to the abstract
UNIX socket ADDRESS and sends one packet (`request`), with its standard streams as ancillary data. The server answers
with the process ID, and with the exit status when the process has ended: negative if a signal has killed it, as in
subprocess. When a client closes its connection earlier, the server kills the process group. The server ends with its
stdin.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

HERE = Path(__file__).parent
#: What a command that can be forked begins with.
PYTHON = (sys.executable, "-S")
#: A packet may contain a whole environment.
_PACKET = 1 << 17


def request(words: Sequence[str], environment: Mapping[str, str], folder: str) -> bytes:
    """Return the request to run a program, given by its path and arguments, in a directory."""
    fields = [folder, str(len(words)), *words, *(f"{name}={value}" for name, value in environment.items())]
    return "\0".join(fields).encode(errors="surrogateescape")


class ForkServer:
    """A running server. ``modules``: whether it has imported those of the node part or of the client."""

    def __init__(self, modules: Literal["node", "client"]) -> None:
        self.address = f"tfctl-fork-server-{os.urandom(8).hex()}"
        python = PYTHON if modules == "node" else (sys.executable,)
        self._server = subprocess.Popen(
            [*python, __file__, self.address, modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert self._server.stdout
        assert self._server.stdout.readline() == b"ready\n"

    def command(self, *words: str) -> list[str]:
        """Return a command that has a program run, for callers that cannot use `Process`."""
        return [sys.executable, "-I", "-S", str(HERE / "fork_client.py"), self.address, *words]

    def close(self) -> None:
        for pipe in (self._server.stdin, self._server.stdout):
            assert pipe
            pipe.close()
        self._server.wait(10)


@functools.cache
def fork_server(modules: Literal["node", "client"] = "node") -> ForkServer:
    """Return the server of this process with these modules. It ends with this process."""
    import atexit

    server = ForkServer(modules)
    atexit.register(server.close)
    return server


class Process:
    """A program that runs in a fork of a server: what tests use of a Popen.

    ``streams``: the descriptors that become its standard streams. They can be closed then.
    ``connection`` can be read when it has ended.
    """

    def __init__(
        self, server: ForkServer, words: Sequence[str], streams: Sequence[int], *,
        environment: Mapping[str, str] = os.environ, folder: str | Path = ".",
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.connect(f"\0{server.address}")
        packet = request(words, environment, str(Path(folder).absolute()))
        socket.send_fds(self.connection, [packet], streams)
        self.pid = int(self.connection.recv(64))

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        if self.returncode is None:
            self.connection.settimeout(timeout)
            try:
                self.returncode = int(self.connection.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self.connection.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class PipedProcess(Process):
    """A program of the node part that has pipes as its standard streams."""

    def __init__(self, *words: str, **options: Any) -> None:
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        super().__init__(fork_server(), words, theirs, **options)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin: IO[bytes] = os.fdopen(pipes[0][1], "wb")
        self.stdout: IO[bytes] = os.fdopen(pipes[1][0], "rb")
        self.stderr: IO[bytes] = os.fdopen(pipes[2][0], "rb")


class _ForkingPopen(subprocess.Popen[Any]):
    """A Popen that runs a program of this directory in a fork of this process. It executes other programs.

    What systemctl only shows is looked up by this process: most calls of the node part are of this kind.
    """

    def __init__(self, args: Any, **options: Any) -> None:
        self._shown: str | None = None
        if tuple(args[:2]) == PYTHON and Path(args[2]).parent == HERE:
            if Path(args[2]).name == "fake_systemctl.py":
                self._shown = _shown(args[3], args[4:])
            if self._shown is not None:
                self.args, self.returncode = args, 0
                self.stdin = self.stdout = self.stderr = None
                self._as_text = bool(options.get("text"))
                return
            environment, kept = options.get("env"), options.get("pass_fds", ())
            # subprocess calls it in the child once the standard streams, the directory and the session are set.
            options["preexec_fn"] = functools.partial(_run, args[2:], environment, kept)
        super().__init__(args, **options)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        if self._shown is None:
            return super().communicate(input, timeout)
        return (f"{self._shown}\n", "") if self._as_text else (f"{self._shown}\n".encode(), b"")


def _shown(tree: str, words: Sequence[str]) -> str | None:
    """Return what systemctl shows, or None if it changes something or a test holds its answer."""
    from fake_manager import Manager, look

    manager = Manager(tree)
    if Path(manager.home, "hold-show").exists():
        return None
    return look(manager, [*words])


def _run(words: Sequence[str], environment: Mapping[str, str] | None, kept: Sequence[int] = ()) -> NoReturn:
    """Run a program in this process as if it had been executed: close other descriptors, and exit at its end."""
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 4096)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python does when it starts
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    sys.argv = [*words]
    status = 1
    try:
        runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Serve clients until the end of stdin."""
        self._watch(0, lambda: False)
        self._watch(self._listener.fileno(), self._accept)
        while all(key.data() for key, _ in self._selector.select()):
            pass

    def _watch(self, descriptor: int, react: Callable[[], bool]) -> None:
        """Call ``react`` when the descriptor can be read. The server ends when it returns False."""
        self._selector.register(descriptor, selectors.EVENT_READ, react)

    def _accept(self) -> bool:
        client, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(client, _PACKET, 3)
        if not data:  # the client has been killed
            client.close()
            return True
        folder, count, *fields = data.decode(errors="surrogateescape").split("\0")
        words, environment = fields[: int(count)], dict(field.split("=", 1) for field in fields[int(count) :])
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.chdir(folder)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            subprocess.Popen = _ForkingPopen  # type: ignore[assignment,misc]
            _run(words, environment)
        for stream in streams:
            os.close(stream)
        client.send(b"%d" % pid)
        ended = os.pidfd_open(pid)
        self._clients[pid] = client
        self._watch(client.fileno(), functools.partial(self._lost, pid))
        self._watch(ended, functools.partial(self._ended, pid, ended))
        return True

    def _lost(self, pid: int) -> bool:
        """Kill a process whose client has closed its connection."""
        if client := self._clients.pop(pid, None):
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not begun its session yet
                os.kill(pid, signal.SIGKILL)
            self._selector.unregister(client.fileno())
            client.close()
        return True

    def _ended(self, pid: int, descriptor: int) -> bool:
        """Report the exit status of a process."""
        self._selector.unregister(descriptor)
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if client := self._clients.pop(pid, None):
            self._selector.unregister(client.fileno())
            with contextlib.suppress(OSError):
                client.send(b"%d" % status)
            client.close()
        return True


def _import_modules(modules: str) -> None:
    """Import what the programs import, before the first fork."""
    sys.path.insert(0, str(HERE.parents[1]))
    if modules == "node":
        _import_package("tfctl.node")
        for name in ("fake_manager", "fake_supervisor", "fake_guard_units", "fake_exec_unit", "fake_system", "syslog"):
            import_module(name)
    else:
        for name in ("cli", "jobs", "model", "remote"):
            _import_package(f"tfctl.{name}")
    # Do not copy memory in each fork because the garbage collector marks objects.
    gc.collect()
    gc.freeze()


def _import_package(name: str) -> None:
    for module in pkgutil.walk_packages(import_module(name).__path__, f"{name}."):
        import_module(module.name)


def main() -> None:
    _import_modules(sys.argv[2])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{sys.argv[1]}")
        listener.listen(128)
        print("ready", flush=True)
        _Server(listener).serve()


if __name__ == "__main__":
    main()
