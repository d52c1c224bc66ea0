"""A task's process, through its keeper: what it prints, line by line, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfctl.local import keeper

#: Bytes after which a line is cut, as journald does it (journald.conf(5), LineMax=).
LONGEST = 48 * 1024
_CHUNK = 64 * 1024
#: Read at most of a task that has ended: more than a pipe holds, and an end where something writes on.
_LAST = 16


class Child:
    """One run of a task. ``grace``: seconds between SIGTERM and SIGKILL. When this process dies, so does the task."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], folder: Path, grace: float) -> None:
        self._control, its = socket.socketpair()
        with its:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(grace), *words],
                env=env,
                cwd=folder,
                stdin=its.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C of the terminal is ours alone
            )
        assert self._keeper.stdout is not None
        self.out = self._keeper.stdout.fileno()
        self.control = self._control.fileno()
        self._rest = b""
        os.set_blocking(self.out, False)

    def lines(self) -> list[str]:
        """What it has printed since the last call; not waited for. Raises EOFError when nothing more can come."""
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
        """Tell it to end: SIGTERM, after the grace SIGKILL."""
        with suppress(OSError):
            self._control.send(b"k" if at_once else b"t")

    def bury(self) -> tuple[int, list[str]]:
        """Its exit code, or minus its signal's number, and its last lines. For one whose ``control`` is readable."""
        said = self._control.recv(64)
        lines: list[str] = []
        with suppress(EOFError):
            for _ in range(_LAST):
                lines += self.lines()
        if self._rest:
            lines.append(self._rest.decode(errors="replace"))
        self.close()
        # Nothing said: the keeper itself was killed.
        return int(said) if said else self._keeper.returncode, lines

    def close(self) -> None:
        """Wait until nothing of it is left; a task that still runs is told to end."""
        self._control.close()
        self._keeper.wait()
        if self._keeper.stdout is not None:
            self._keeper.stdout.close()


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]
