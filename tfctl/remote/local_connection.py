"""The transport of a host with ansible_connection=local, which is this machine: processes, and no ssh.

A process runs as one over ssh does: without a terminal, which sudo would otherwise take over and which would send it
Ctrl-C, and with the environment of a new login.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Collection, Sequence

from tfctl.errors import PreflightFailed, Unreachable
from tfctl.model.host import Host
from tfctl.remote.channel import Spare
from tfctl.remote.pipe_channel import PipeChannel
from tfctl.remote.transport import Stream

#: The group whose members may run the program tfctl-node as root (roles/job_host).
OPERATORS = "tfctl-admin"
_DIAL_S = 10.0
#: Run a command, or say that it does not exist and exit with 127, as the shell of a login does.
_SHELL = ("/bin/sh", "-c", 'exec "$@"', "sh")


def connect(host: Host) -> LocalConnection:
    """Return a connection to this machine. Raises PreflightFailed if this user needs a new login before."""
    return LocalConnection(host, os.geteuid() == 0)


def lacks_group(group: int, of_user: Collection[int], of_session: Collection[int]) -> bool:
    """Return whether a session lacks a group that its user has: provisioning has added the user to the group, and a
    session keeps the groups with which it has begun. sudo considers those of the session. All are numbers of groups."""
    return group in of_user and group not in of_session


class LocalConnection:
    """A Connection (remote/transport.py) to this machine. ``is_root``: whether this process is root's."""

    def __init__(self, host: Host, is_root: bool) -> None:
        self.host = host
        self.is_root = is_root
        self.alive = True
        self.spares: list[Spare] = []
        self._lock = threading.Lock()
        self._channels: list[PipeChannel] = []
        self._environment = _environment()
        self._prefix = [] if is_root else _with_group(host.name)

    def __enter__(self) -> LocalConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exec(self, words: Sequence[str], window: int | None = None) -> PipeChannel:  # noqa: ARG002  pipes have their own
        text = shlex.join(words)
        command = [*self._prefix, text] if self._prefix else words

        def start(streams: Sequence[int]) -> _Process:
            return _Process([*_SHELL, *command], self._environment, streams)

        try:
            channel = PipeChannel(self.host.name, text, start)
        except OSError as error:
            raise Unreachable(
                f"{self.host.name}: this machine cannot run `{text}`: {error.strerror}",
                "end other processes, then try again",
            ) from None
        with self._lock:
            self._channels = [each for each in self._channels if not each.closed] + [channel]
        return channel

    def dial(self, port: int) -> Stream:
        try:
            stream = socket.create_connection(("127.0.0.1", port), timeout=_DIAL_S)
        except OSError as error:
            reason = error.strerror or error
            raise Unreachable(
                f"{self.host.name}: nothing listens on port {port} of its loopback address: {reason}"
            ) from None
        stream.settimeout(None)
        return stream

    def close(self) -> None:
        self.alive = False
        with self._lock:
            channels, self._channels = self._channels, []
        for channel in channels:
            channel.close()


class _Process:
    """A PipedSession: a process of this machine. A thread waits for its end, however long that takes."""

    def __init__(self, words: Sequence[str], environment: dict[str, str], streams: Sequence[int]) -> None:
        stdin, stdout, stderr = streams
        self.status: int | None = None
        self.ended = False
        # A new session has no terminal.
        process = subprocess.Popen(
            words, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, cwd="/", umask=0o022,
            start_new_session=True,
        )  # fmt: skip
        self.socket, end = socket.socketpair()
        threading.Thread(target=self._wait, args=(process, end), daemon=True).start()

    def receive(self) -> None:
        self.ended = self.status is not None

    def _wait(self, process: subprocess.Popen[bytes], end: socket.socket) -> None:
        self.status = max(process.wait(), -1)  # subprocess returns the number of a signal as -N
        end.close()


def _environment() -> dict[str, str]:
    """Return the environment of a login of this user."""
    found = {"PATH": os.environ.get("PATH") or os.defpath, "LC_ALL": "C.UTF-8"}
    with contextlib.suppress(KeyError):  # a container may run as a user without an account
        user = pwd.getpwuid(os.geteuid())
        found |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}
    return found


def _with_group(host: str) -> list[str]:
    """Return what runs the command that is its last argument as an operator: nothing, or sg(1) if the session of this
    user began before the user became one."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrnam(OPERATORS).gr_gid
    except KeyError:
        return []
    if not lacks_group(group, os.getgrouplist(user.pw_name, user.pw_gid), {os.getegid(), *os.getgroups()}):
        return []
    program = shutil.which("sg")
    if program is None:
        raise PreflightFailed(
            f"{host}: {user.pw_name} is in the group {OPERATORS}, but this session began before", "log in again"
        )
    return [program, OPERATORS, "-c"]
