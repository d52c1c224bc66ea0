"""A running `ssh` that has logged in to a host, and listens on a control socket for sessions there."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tfctl.errors import TfctlError
from tfctl.remote import openssh_errors
from tfctl.remote.ssh_config import Server

# Run ssh, and a watcher that ends it once stdin is closed, as it is when this process ends, even by SIGKILL. $$ is the
# number of that ssh and of the process group of both, so no other process gets it while the watcher runs.
_WATCHED = 'exec 3<&0 </dev/null; { read -r _; kill $$; } <&3 & exec 3<&-; exec "$@"'
# Exit status of a shell that does not find a program.
_NOT_FOUND = 127
# How often (s) to check whether ssh has logged in.
_CHECK_S = 0.01
_END_S = 1.0


class SshProcess:
    """An `ssh` that listens on the control socket ``path`` once it has logged in. It ends with this process."""

    def __init__(self, words: Sequence[str], path: Path) -> None:
        """Start the command ``words``."""
        self.path = path
        self._closing = threading.Lock()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr.fileno(),
            start_new_session=True,
        )

    def wait_until_ready(self, server: Server, end: float) -> None:
        """Return once it has logged in. Raises Unreachable, also if that takes until ``end`` (time.monotonic)."""
        while not self.path.exists():
            if self.has_ended():
                if self._process.returncode == _NOT_FOUND:
                    raise TfctlError("ssh is not installed", "install it: apt install openssh-client")
                raise openssh_errors.of_ended(server, self._log())
            if time.monotonic() > end:
                raise openssh_errors.of_timeout(server, self._log())
            time.sleep(_CHECK_S)

    def has_ended(self, timeout: float = 0.0) -> bool:
        """Wait up to ``timeout`` seconds for its end. Return whether it has ended."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End it, and with it the connection."""
        with self._closing:
            self._process.terminate()
            if not self.has_ended(_END_S):
                self._process.kill()
                self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._stderr.close()
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _log(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")
