"""When each task of a job printed its last line, and what its lines say of its progress.

One journalctl follows all tasks. What it prints is read when a sample is due: as long as its pipe is full, it waits, so
that a task that prints much costs no more than the pipe holds. journalctl then starts again at the end of the journal,
and what it has skipped is not known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Mapping

from . import matching, names, wire
from .journal_export import ExportReader
from .progress import Progress
from .system import System
from .wire import TaskName

#: The size of the pipe in bytes, and from how much in it journalctl may have had to wait.
_PIPE = 1 << 20
_FULL = _PIPE - (1 << 16)
#: fcntl.F_SETPIPE_SZ, which Python has since 3.10.
_SET_PIPE_SIZE = 1031
#: How many lines that were printed before are read at the beginning.
_FIRST_LINES = 1000
#: The longest CPU time (s) to search a line. After so many that take longer, the lines of the job are not searched.
_LINE_S, _SLOW_LINES = 0.1, 3


class LineFollower:
    """Follows what tasks print. ``last``: the time (epoch s) of each one's last line, as far as it is known."""

    def __init__(self, system: System, job: str, run: str, progress: Mapping[TaskName, Progress]) -> None:
        self._system, self._run, self._progress = system, run, progress
        self._units = {names.unit(job, *task): task for task in progress}
        self._slow = 0
        self.last: dict[TaskName, float] = {}
        matching.prepare()
        self._open(_FIRST_LINES)

    def _open(self, lines: int) -> None:
        self._reader, self._joined = ExportReader(), wire.Joiner()
        self._process = subprocess.Popen(
            [
                *self._system.journalctl, "-q", "--no-pager", "--all", "-o", "export", "-f", f"--lines={lines}",
                "--output-fields=" + ",".join(wire.JOURNAL_FIELDS), f"TFCTL_RUN={self._run}",
                *(f"_SYSTEMD_UNIT={unit}" for unit in self._units),
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout
        self._source = self._process.stdout.fileno()
        os.set_blocking(self._source, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._source, _SET_PIPE_SIZE, _PIPE)

    def read(self) -> None:
        """Read what the tasks have printed since. journalctl is started again if it has ended. Raises OSError."""
        size = 0
        seen: dict[TaskName, float] = {}
        ended = False
        while size < _PIPE:
            try:
                data = os.read(self._source, _PIPE)
            except BlockingIOError:
                break
            if not data:
                ended = True
                break
            size += len(data)
            for line in self._reader.add(data).splitlines():
                self._take(line, seen)
        behind = size >= _FULL
        self.last = seen if behind else {**self.last, **seen}
        if ended or behind:
            self.close()
            self._open(0)

    def _take(self, line: bytes, seen: dict[TaskName, float]) -> None:
        entry = wire.journal_entry(line)
        task = self._units.get(entry.unit)
        if task is None or entry.dropped is not None:
            return
        seen[task] = entry.time
        whole = self._joined(entry)
        if whole is not None and self._slow < _SLOW_LINES:
            try:
                self._progress[task].read(whole.searched, _search)
            except matching.TooSlow:
                self._slow += 1

    def close(self) -> None:
        """End journalctl."""
        self._process.kill()
        assert self._process.stdout
        self._process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)


def _search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return matching.search(pattern, text, _LINE_S)
