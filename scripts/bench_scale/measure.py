"""Run a command to its end, and measure what it and its descendants use."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: How often (s) the threads and the memory of the command are read.
_SAMPLE_S = 0.05
#: How long (s) a command may take to end after Ctrl-C.
_END_S = 10.0


class Failed(Exception):
    """A command has failed or has not ended in time."""


class Usage(NamedTuple):
    """``cpu``: seconds of the command and its descendants. ``memory``: bytes of the largest of these processes at its
    largest. ``threads``: the most threads of all of them at once."""

    cpu: float
    wall: float
    memory: int
    threads: int


def median(found: Sequence[Usage]) -> Usage:
    """Return the median of each figure."""
    return Usage(
        statistics.median(one.cpu for one in found),
        statistics.median(one.wall for one in found),
        int(statistics.median(one.memory for one in found)),
        int(statistics.median(one.threads for one in found)),
    )


def run(words: Sequence[str], env: Mapping[str, str], folder: Path, limit: float) -> Usage:
    """Run a command in ``folder`` and return what it used. Raise Failed if it fails or takes more than ``limit`` s."""
    with (folder / "output").open("w+b") as output, Child(words, env, folder, output.fileno()) as child:
        usage = child.wait(limit)
        if child.status != 0:
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
            what = "did not end in time" if child.late else f"exit {child.status}"
            raise Failed(f"{what}: {text[-300:]}" if text else what)
    return usage


class Child:
    """A command in a session of its own. A context manager, which ends it."""

    process: subprocess.Popen[bytes]

    def __init__(self, words: Sequence[str], env: Mapping[str, str], folder: Path, output: int) -> None:
        self._words, self._env, self._folder, self._output = words, env, folder, output
        self.began = time.monotonic()
        self.status: int | None = None
        self.late = False
        self.threads = 1
        self.memory = 0
        self._over = threading.Event()
        self._until = float("inf")
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Child:
        """Start the command. Ctrl-C while it starts ends it, too."""
        try:
            with _interrupts_held_back():
                self._start()
        except KeyboardInterrupt:
            if self._sampler.is_alive():
                self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._sampler.join()
        if self.status is None:
            self._end()

    def wait(self, limit: float) -> Usage:
        """Wait for the end of the command, or kill it after ``limit`` seconds. Return what it used."""
        self._until = time.monotonic() + limit
        _, status, used = os.wait4(self.process.pid, 0)
        wall = time.monotonic() - self.began
        self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
        # Linux counts the memory that this process had when it started the command (execve) as the command's.
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = used.ru_maxrss * 1024 if used.ru_maxrss > ours else self.memory
        return Usage(used.ru_utime + used.ru_stime, wall, memory, self.threads)

    def cpu(self) -> float:
        """Return the CPU seconds that the command's own process has used so far."""
        fields = _stat(self.process.pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def _start(self) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            self._words, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=self._output, start_new_session=True,
        )  # fmt: skip
        self._sampler.start()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            family = _family(self.process.pid)
            self.threads = max(self.threads, sum(family.values()))
            self.memory = max(self.memory, *map(_peak, family), 0)
            if time.monotonic() > self._until:
                self.late, self._until = True, float("inf")
                _kill(family)

    def _end(self) -> None:
        """End the command as Ctrl-C does or, if that takes too long, kill it with its descendants."""
        family = _family(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        _kill(family)
        self.process.wait(_END_S)


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block if it was due within: Popen would lose the process."""
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _kill(processes: Iterable[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _family(ancestor: int) -> dict[int, int]:
    """Return the processes that a process has started, with itself and theirs, and the threads of each."""
    found: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
            found[int(entry.name)] = int(fields[17])
    family = [ancestor] if ancestor in found else []
    for pid in family:
        family.extend(children[pid])
    return {pid: found[pid] for pid in family}


def _peak(pid: int) -> int:
    """Return the largest resident memory (bytes) of a process so far, or 0 if it has ended."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def _stat(pid: int) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third on, or an empty list if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
