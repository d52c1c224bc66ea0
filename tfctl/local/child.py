"""A task's process, run by its supervisor: what it prints, line by line, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfctl.local import supervisor
from tfctl.model.shell import KillMode

#: Longest line in bytes; longer ones are split, as by journald (journald.conf(5), LineMax=).
LONGEST = 48 * 1024
_CHUNK = 64 * 1024
#: Most chunks to read after a task has ended: more than a pipe holds, yet finite if something still writes.
_LAST = 16


class Child:
    """One run of a task. ``grace`` is the time (s) between SIGTERM and SIGKILL. The task dies with this process."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], folder: Path, grace: float, mode: KillMode
    ) -> None:
        self._control, its = socket.socketpair()
        with its:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, mode, str(grace), *words],
                env=env,
                cwd=folder,
                stdin=its.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # only this process receives the terminal's Ctrl-C
            )
        assert self._supervisor.stdout is not None
        self.out = self._supervisor.stdout.fileno()
        self.control = self._control.fileno()
        self._rest = b""
        os.set_blocking(self.out, False)

    def lines(self) -> list[str]:
        """Return the lines printed since the last call, without waiting. Raise EOFError at the end of the output."""
        try:
            data = os.read(self.out, _CHUNK)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        *cut, self._rest = _pieces(self._rest)
        return [piece.decode(errors="replace") for line in lines for piece in _pieces(line)] + [
            piece.decode(errors="replace") for piece in cut
        ]

    def end(self, at_once: bool = False) -> None:
        """Tell the task to end: SIGTERM, then SIGKILL after ``grace``; with ``at_once``, SIGKILL."""
        with suppress(OSError):
            self._control.send(b"k" if at_once else b"t")

    def reap(self) -> tuple[int, list[str]]:
        """Return the exit code (or minus the signal number) and the last lines. Call once ``control`` is readable."""
        report = self._control.recv(64)
        lines: list[str] = []
        with suppress(EOFError):
            for _ in range(_LAST):
                lines += self.lines()
        if self._rest:
            lines.append(self._rest.decode(errors="replace"))
        self.close()
        # An empty message means that the supervisor itself was killed.
        return int(report) if report else self._supervisor.returncode, lines

    def close(self) -> None:
        """Tell a task that still runs to end, and wait until nothing of it is left."""
        self._control.close()
        self._supervisor.wait()
        if self._supervisor.stdout is not None:
            self._supervisor.stdout.close()


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
