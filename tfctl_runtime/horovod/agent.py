"""Stand in for a rank until mpirun asks for it, then run it once.

The rank runs in its own unit, so its log, limits and end are those of `worker N`, whoever launched it. The first agent
of a host also runs Open MPI's daemon there.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any, Dict, List, Optional

from tfctl_runtime.horovod.peers import FAULTS, admit, secret, tell

#: Time (s) for Open MPI's daemon to end after its rank.
_DAEMON_S = 60.0
#: Time (s) between a rank's SIGTERM and SIGKILL, if tfctl was too old to set TFCTL_GRACE_S when the job was started.
_GRACE_S = "10"


class Agent:
    """``words`` is the rank's command. The agent answers on ``port`` as soon as it is created."""

    def __init__(self, words: List[str], port: int) -> None:
        self._words, self._secret = words, secret()
        self._over: queue.Queue[int] = queue.Queue()
        self._lock = threading.Lock()
        self._rank: Optional[subprocess.Popen[bytes]] = None
        self._daemons: List[subprocess.Popen[bytes]] = []
        self._listener = Listener(("", port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def result(self) -> int:
        """Wait until the rank and its daemons have ended. Return its exit code, or 128 + n for signal n."""
        code = self._over.get()
        for daemon in self._daemons:
            _await(daemon, _DAEMON_S)
        return code

    def give_up(self, code: int) -> None:
        """End with ``code`` if the rank has not been asked for, because nobody will ask any more."""
        if self._rank is None:
            self._over.put(code)

    def end(self) -> None:
        """End all running children, the rank first."""
        running = [child for child in (self._rank, *self._daemons) if child]
        for child in running:
            child.terminate()
        for child in running:
            _await(child, _grace())

    def _accept(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                connection = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                asked = admit(connection, self._secret)
                if asked["do"] == "ping":
                    tell(connection, free=self._rank is None)
                elif asked["do"] == "rank":
                    self._run_rank(connection, asked["environment"])
                elif asked["do"] == "daemon":
                    self._run_daemon(connection, asked["line"])
            except AuthenticationError:
                say("refused a caller without the secret of this start")
            except FAULTS:
                return  # the caller is gone, so nobody waits for an answer

    def _run_rank(self, connection: Connection, environment: Dict[str, str]) -> None:
        with self._lock:
            if self._rank:
                tell(connection, exit=1)
                return
            try:
                self._rank = subprocess.Popen(self._words, env={**os.environ, **environment})
            except OSError as fault:
                say(f"{self._words[0]}: {fault.strerror}")
                tell(connection, exit=127)
                self._over.put(127)
                return
        self._over.put(_attend(self._rank, connection))

    def _run_daemon(self, connection: Connection, line: str) -> None:
        child = subprocess.Popen(["/bin/sh", "-c", line], stdin=subprocess.DEVNULL)  # as sshd would
        self._daemons.append(child)
        _attend(child, connection)


def say(text: str) -> None:
    """Write one of this program's own lines to the task's log."""
    sys.stderr.write(f"tfctl: {text}\n")
    sys.stderr.flush()


def _attend(child: "subprocess.Popen[bytes]", connection: Connection) -> int:
    """Wait for the child and send the caller its exit code; end the child if the caller goes first. Return the code."""
    threading.Thread(target=_end_with, args=(child, connection), daemon=True).start()
    code = child.wait()
    code = code if code >= 0 else 128 - code
    with contextlib.suppress(*FAULTS):
        tell(connection, exit=code)
    return code


def _end_with(child: "subprocess.Popen[bytes]", connection: Connection) -> None:
    try:
        connection.recv_bytes()  # the caller sends nothing more, so this waits for it to hang up
    except (*FAULTS, TypeError):  # TypeError: closed on our side meanwhile
        if child.poll() is None:
            child.terminate()
            _await(child, _grace())


def _grace() -> float:
    """Return the job's grace period (s). systemd, which sends SIGTERM to this process alone, waits as long."""
    return float(os.environ.get("TFCTL_GRACE_S", _GRACE_S))


def _await(child: "subprocess.Popen[bytes]", seconds: float) -> None:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()


def on_sigterm(agent: Agent, *more: Any) -> None:
    """On SIGTERM, end the agent's children, the processes in ``more`` and then this process."""

    def stop(*_: object) -> None:
        for child in more:
            child.terminate()
        agent.end()
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
