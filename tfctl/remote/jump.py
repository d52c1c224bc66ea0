"""One login per jump host, whose connection carries the connections to all hosts behind it.

OpenSSH does this itself (ControlMaster in ssh_config(5)): one `ssh` logs in, and every further `ssh -W` opens a channel
on its connection. A login per host would run into sshd's MaxStartups from about ten hosts on.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tfctl.remote import control, refusals
from tfctl.remote.ssh_config import Jump, Server

#: Seconds that the connection to a jump host stays after its last channel. It also ends when this process is killed.
_PERSIST_S = 10


def shared(server: Server, jump: Jump, end: float) -> str:
    """Return the command that reaches ``server`` over the shared connection to its jump host; log in there if needed.

    Raises Unreachable if that fails, or has not succeeded by ``end`` (time.monotonic).
    """
    folder = control.folder()
    if folder is None:
        return jump.command()
    name = hashlib.sha256(repr((jump.options, jump.host)).encode()).hexdigest()[:16]
    path = folder / f"{os.getpid()}-{name}"
    with _lock:
        login, mine = _logins.get(path), False
        if login is None and not control.listens(path):
            login, mine = _logins.setdefault(path, _Login()), True
    if mine and login is not None:
        login.run(jump, path, end)
        with _lock:
            del _logins[path]
    if login is not None:
        if not login.done.wait(max(0.0, end - time.monotonic())):
            login.failure = _SLOW
        if login.failure:
            raise refusals.proxy_failed(server, login.failure)
    return jump.command("-o", "ControlMaster=no", "-o", f"ControlPath={path}")


class _Login:
    """A login to a jump host, made by one thread; others wait for it. ``failure`` is why it failed, or empty."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failure = ""

    def run(self, jump: Jump, path: Path, end: float) -> None:
        try:
            self.failure = _log_in(jump, path, end)
        except OSError as error:
            self.failure = str(error)
        finally:
            self.done.set()


def _log_in(jump: Jump, path: Path, end: float) -> str:
    """Start the `ssh` that holds the connection; it goes to the background. Return why it failed, or ""."""
    master = ["-o", "ControlMaster=yes", "-o", f"ControlPath={path}", "-o", f"ControlPersist={_PERSIST_S}"]
    # A dead connection would make every attempt behind it fail, so notice it soon.
    alive = ["-o", "ServerAliveInterval=5", "-o", "ClearAllForwardings=yes"]
    command = ["ssh", *jump.options, *master, *alive, "-f", "-N", "--", jump.host]
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
        )
        try:
            status = process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return _SLOW
        if status == 0:
            return ""
        stderr.seek(0)
        lines = stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"{shlex.join(command)} ended with status {status}"


_SLOW = "the jump host does not answer in time"
_logins: dict[Path, _Login] = {}
_lock = threading.Lock()
