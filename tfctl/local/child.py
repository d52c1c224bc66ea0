"""Programs run by a supervisor, so that nothing of them is left; and a task's: what it prints, line by line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tfctl.local import supervisor
from tfctl.model.shell import KillMode

#: Longest line in bytes; longer ones are split, as by journald (journald.conf(5), LineMax=).
LONGEST = 48 * 1024
_CHUNK = 64 * 1024
#: Most chunks to read after a task has ended: more than a pipe holds, yet finite if something still writes.
_LAST = 16


class Supervised:
    """A program that ends, with all that it has started, when it is closed and when this process dies.

    ``grace``: the time (s) between SIGTERM and SIGKILL. ``stdout`` and ``stderr``: as for subprocess.
    """

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        grace: float = 0.0,
        mode: KillMode = "mixed",
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.STDOUT,
    ) -> None:
        self._control, its = socket.socketpair()
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, mode, str(grace), *words],
                env=env,
                cwd=folder,
                stdin=its.fileno(),
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # only this process receives the terminal's Ctrl-C
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def code(self) -> int:
        """Wait for its end. Return its exit code, or minus the signal number. Call once."""
        report = self._control.recv(64)
        # An empty message means that the supervisor itself was killed.
        return int(report) if report else self.process.wait()

    def close(self) -> None:
        """Tell a program that still runs to end, and wait until nothing of it is left."""
        self._control.close()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Child(Supervised):
    """One run of a task. Its output and errors are one stream."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], folder: Path, grace: float, mode: KillMode
    ) -> None:
        super().__init__(words, env, folder, grace, mode)
        assert self.process.stdout is not None
        self.out = self.process.stdout.fileno()
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
        code = self.code()
        lines: list[str] = []
        with suppress(EOFError):
            for _ in range(_LAST):
                lines += self.lines()
        if self._rest:
            lines.append(self._rest.decode(errors="replace"))
        self.close()
        return code, lines


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
