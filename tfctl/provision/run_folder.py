"""The temporary files of a run of Ansible: a folder on this machine, and a directory on each host.

They are removed however the run ends: by this process, or if it is killed, by the callback plugin of Ansible. If both
are killed, a run at least a minute later removes the folder, and a run at least a day later removes the directories on
its hosts.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds that Ansible may take to end after Ctrl-C before it is killed.
GRACE_S = 5.0
#: Seconds that a command to a host may take.
LIMIT_S = 5.0
#: The names of the folders begin with it.
_PREFIX = "tfctl-ansible-"
#: Directories in which sockets of ssh can be. Their paths have at most 104 bytes, of which ssh appends 17 while it
#: makes one, and Ansible 11. In them, % and spaces have a meaning.
_FOR_SOCKETS = re.compile(r"[\w./+:@-]{1,76}", re.ASCII)
#: A folder younger than this (s) may belong to a run that has just begun.
_NEW_S = 60.0
#: Where Ansible keeps its temporary files on a host: modules below the home directory of root, all else below that of
#: the login user.
_REMOTE = "~/.ansible/tmp"
#: Remove the run's directory, and those of runs that were killed at least a day ago with all their processes.
_REMOVE = "cd {remote} && rm -rf {name} && find . -maxdepth 1 -name '{prefix}*' -mmin +1440 -exec rm -rf '{{}}' +"


@dataclass
class RunFolder:
    """``path``: the folder. ``become_password``: what sudo asks for on the hosts, if it does.

    ``on_hosts``: whether Ansible may have left files on the hosts.
    """

    path: Path
    become_password: str | None = field(default=None, repr=False)
    on_hosts: bool = True

    @property
    def connections(self) -> Path:
        """The directory of the sockets of ssh's shared connections. In /tmp if those in the folder could not work."""
        usual = self.path / "ssh"
        return usual if _FOR_SOCKETS.fullmatch(str(usual)) else Path("/tmp", f"{self.path.name}-ssh")

    @property
    def local_hosts(self) -> Path:
        """An inventory with what tfctl has found out about local hosts. It exists if there are any."""
        return self.path / "local.ini"

    @property
    def remote(self) -> str:
        """The directory on the hosts, below a home directory."""
        return f"{_REMOTE}/{self.path.name}"

    def end_with(self, descriptor: int) -> None:
        """Watch the pipe ``descriptor`` in a thread, and return. Once the other end is closed, interrupt this process,
        which is Ansible, end its workers, remove the files, and kill its process group. The workers also end with it.
        """
        end_workers = _end_workers_with_this_process()

        def remove() -> None:
            end_workers()  # otherwise they would create files again
            self.remove()

        def at_exit() -> None:
            with contextlib.suppress(KeyboardInterrupt):  # `end` sends one, perhaps only now
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            if select.select([descriptor], [], [], 0)[0]:
                remove()

        def end() -> None:
            os.read(descriptor, 1)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(GRACE_S)
            remove()
            os.killpg(os.getpgrp(), signal.SIGKILL)

        # Ansible may also end before the thread runs, because it cannot send events any more.
        atexit.register(at_exit)
        threading.Thread(target=end, daemon=True).start()

    def remove(self) -> None:
        """Remove the files on the hosts and on this machine, and close the shared connections, which would otherwise
        stay open for a minute after their last use."""
        sockets = [*self.connections.iterdir()] if self.connections.is_dir() else []
        if self.on_hosts:
            removing = [_ssh(socket, "any", self._command(), given=self.become_password) for socket in sockets]
            if self.local_hosts.exists() and os.geteuid() != 0:
                removing.append(_start(["sh", "-c", self._command()], self.become_password))
            _wait(removing)
            home = pwd.getpwuid(os.geteuid()).pw_dir  # of hosts with a local connection
            shutil.rmtree(self.remote.replace("~", home, 1), ignore_errors=True)
        _wait([_ssh(socket, "-O", "exit", "any") for socket in sockets])
        for path in (self.connections, self.path):
            shutil.rmtree(path, ignore_errors=True)

    def _command(self) -> str:
        """Return the command that removes the directories on a host, as the login user and as root."""
        remove = _REMOVE.format(remote=_REMOTE, name=self.path.name, prefix=_PREFIX)
        sudo = "sudo -H -S -p ''" if self.become_password else "sudo -H -n"
        return f"sh -c {shlex.quote(f'{remove}; {sudo} sh -c {shlex.quote(remove)}')}"


@contextlib.contextmanager
def run_folder(become_password: str | None = None) -> Iterator[RunFolder]:
    """Yield a new folder, which is locked as long as this process lives, and remove it at the end."""
    _remove_stale_folders()
    folder = RunFolder(Path(tempfile.mkdtemp(prefix=_PREFIX)), become_password)
    folder.connections.mkdir(mode=0o700)
    lock = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        folder.remove()
        os.close(lock)


def _remove_stale_folders() -> None:
    """Remove the folders of runs whose processes were all killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(lock)
                # A new folder is not locked yet.
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    RunFolder(path).remove()
            finally:
                os.close(lock)


def _end_workers_with_this_process() -> Callable[[], None]:
    """Kill the worker processes, and what they have started, when this process (Ansible) ends or is killed. Return a
    function that kills them earlier.

    They have their own sessions, so a signal to Ansible's process group does not reach them. Without Ansible, a worker
    with a long result would wait forever: it writes to a pipe that nothing reads, whose other end it holds itself.
    """
    reader, writer = os.pipe()  # programs that workers start do not inherit it
    alive, group = os.fdopen(writer, "wb"), os.getpgrp()

    def end() -> None:
        os.read(reader, 1)
        # A new worker is in Ansible's process group until it creates its own session.
        os.kill(os.getpid() if os.getpgrp() == group else -os.getpgrp(), signal.SIGKILL)

    def watch() -> None:
        alive.close()
        threading.Thread(target=end, daemon=True).start()

    os.register_at_fork(after_in_child=watch)
    return alive.close


def _ssh(socket: Path, *words: str, given: str | None = None) -> subprocess.Popen[bytes]:
    """Start ssh through a shared connection; write ``given`` to its stdin.

    Without a shared connection it fails, rather than connect to a host named "any".
    """
    options = ["-F", "none", "-o", "ProxyCommand=false", "-o", "BatchMode=yes"]
    return _start(["ssh", *options, "-S", str(socket), *words], given)


def _start(command: Sequence[str], given: str | None) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True)
    assert child.stdin
    with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
        stdin.write(f"{given}\n".encode() if given else b"")
    return child


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    ends = time.monotonic() + LIMIT_S
    for process in processes:
        try:
            process.wait(max(ends - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
