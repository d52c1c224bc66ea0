"""The processes of a guard's units under fake_systemctl.

Guards run only on a tree with a file `guards`. On others the guard dies a moment after its start, and is not started
again, so that tests of other things do not pay for it.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fake_manager import Manager

GUARD = Path(__file__).parent / "fake_guard.py"
#: How often (s) to look for the file that asks a unit to stop.
LOOK_S = 0.02
Work = Callable[[Manager, str, int], None]


def work_of(unit: str) -> Work:
    """Return what the supervisor of a unit does."""
    if unit.endswith(".service"):
        return guard
    return sessions if unit.startswith("tfctlguardroot-") else stay


def stay(manager: Manager, name: str, ready: int) -> None:
    """Be active until stopped. The listener itself is held by the supervisor of the service."""
    _active(manager, name, ready)
    while not manager.stopping(name):
        time.sleep(LOOK_S)
    _over(manager, name)


def sessions(manager: Manager, name: str, ready: int) -> None:
    """Hold the local socket, and start a session for each connection (Accept=yes)."""
    unit = manager.file(name) or {}
    path = Path(manager.at(unit["ListenStream"]))
    listener = socket.socket(socket.AF_UNIX)
    with suppress(FileNotFoundError):
        path.unlink()
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen()
    listener.settimeout(LOOK_S)
    _active(manager, name, ready)
    running: list[subprocess.Popen[bytes]] = []
    job = name.removeprefix("tfctlguardroot-").removesuffix(".socket")
    while not manager.stopping(name):
        running = [process for process in running if process.poll() is None]
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            running.append(_start(manager, ["root", job], stdin=connection, stdout=connection))
            connection.close()
    listener.close()
    path.unlink(missing_ok=True)
    _over(manager, name)
    for process in running:
        process.wait()


def guard(manager: Manager, name: str, ready: int) -> None:
    """Run a guard, and start it again when it fails."""
    job = name.removeprefix("tfctlguard-").removesuffix(".service")
    if not Path(manager.tree, "guards").exists():
        manager.update(name, ActiveState="failed", SubState="failed", Result="signal")
        _tell(ready)
        return
    credentials = tempfile.mkdtemp(prefix="tfctl-credentials-")
    listener = _listener(manager, name)
    _active(manager, name, ready)
    while True:
        key = manager.at(f"/run/tfctl/guard/{job}.key")
        with suppress(FileNotFoundError):
            shutil.copy(key, Path(credentials, "key"))
        environment = {"CREDENTIALS_DIRECTORY": credentials, "PATH": "/usr/bin:/bin"}
        if listener is not None:
            os.dup2(listener.fileno(), 3, inheritable=True)
            environment["LISTEN_FDS"] = "1"
        with open(f"{manager.tree}/{name}.log", "ab") as log:
            process = _start(
                manager, ["run", job], env=environment, stdout=log, stderr=log, pass_fds=(3,) if listener else ()
            )
        manager.update(name, MainPID=process.pid)
        while process.poll() is None and not manager.stopping(name):
            time.sleep(LOOK_S)
        if process.poll() is None:
            process.terminate()
            process.wait()
        if manager.stopping(name) or process.returncode == 0:
            break
        time.sleep(0.2)
    shutil.rmtree(credentials)
    _over(manager, name)


def _listener(manager: Manager, name: str) -> socket.socket | None:
    """Return the socket of the other hosts' guards, if the guard has one."""
    unit = manager.file(name.replace(".service", ".socket"))
    if unit is None or not re.fullmatch("[0-9]+", unit.get("ListenStream", "")):
        return None
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if "ReceiveBuffer" in unit:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024 * int(unit["ReceiveBuffer"].removesuffix("K")))
    listener.bind(("127.0.0.1", int(unit["ListenStream"])))
    listener.listen(int(unit["Backlog"]))
    return listener


def _start(manager: Manager, words: list[str], **more: object) -> subprocess.Popen[bytes]:
    account = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    command = [sys.executable, "-S", str(GUARD), str(manager.tree), account, *words]
    return subprocess.Popen(command, **{"start_new_session": True, **more})  # type: ignore[call-overload,no-any-return]


def _active(manager: Manager, name: str, ready: int) -> None:
    manager.update(name, ActiveState="active", SubState="running")
    _tell(ready)


def _over(manager: Manager, name: str) -> None:
    manager.stopped(name)
    manager.forget(name)


def _tell(ready: int) -> None:
    with suppress(BrokenPipeError):
        os.write(ready, b"ok")
    os.close(ready)
