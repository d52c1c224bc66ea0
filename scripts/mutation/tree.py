"""A copy of the checkout, in which the tests run with some mutants."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.mutation import plugin
from scripts.mutation.mutants import Mutant, write

#: How long (s) a test may take, in multiples of its usual time and beside them, unless it is marked with a limit. A run
#: of pytest may take as long beyond that, for what is outside of tests.
_TIMES, _MORE_S = 5, 10
_START_S = 30
#: The same for tests whose usual time is not known.
_TEST_S, _RUN_S = 120, 1200
#: How long (s) pytest may take to clean up once it was told to end.
_END_S = 10
_PLUGIN = "tfctl_mutants_plugin"


class Interrupted(Exception):
    """The tree was closed while it was in use."""


class Outcome(NamedTuple):
    """``passed``: the tests that did not fail, and their seconds. ``failed``: those that failed, in their order, and
    why; the name of a file is there if its tests could not be collected. ``shared``: the seconds of fixtures that
    several tests use. ``reached``: the numbers of the mutants whose source was executed, in any process."""

    passed: dict[str, float]
    failed: dict[str, str]
    shared: float
    reached: frozenset[int]


class Tree:
    """A copy of ``checkout`` in the empty directory ``folder``, with an environment whose tfctl is the copy.

    ``number`` keeps apart trees that are used at the same time. Each is used by one thread; any may close it.
    """

    def __init__(self, checkout: Path, folder: Path, number: int, sample: Sequence[Mutant]) -> None:
        self._root, self._temporary, self._reached = folder / "tree", folder / "tmp", folder / "reached"
        self._number, self._sample = number, sample
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()
        folder.chmod(0o755)
        for shared in (self._temporary, self._reached):  # also by processes of other users
            shared.mkdir()
            shared.chmod(0o1777)
        _copy(checkout, self._root)
        self._python = _environment(self._root)
        self._sources = {file: (self._root / file).read_bytes() for file in dict.fromkeys(one.file for one in sample)}
        self._modified = max((self._root / file).stat().st_mtime for file in self._sources)

    def run(
        self, files: Sequence[str], tests: Mapping[str, float], active: Collection[int] = (), shared: float = 0.0
    ) -> Outcome:
        """Run tests of these files with the mutants ``active``, up to the first failure. Without ``tests``, run all.

        ``tests``: how long (s) each usually takes, and ``shared``: the fixtures that several use. A test that takes far
        longer has failed.
        """
        self._apply(active)
        shutil.rmtree(self._reached)
        self._reached.mkdir()
        self._reached.chmod(0o1777)
        chosen, ends = self._temporary / "chosen", self._temporary / "ends"
        chosen.write_text("\n".join(tests))
        ends.write_text("")
        limit = _MORE_S + _TIMES * (shared + max(tests.values(), default=0.0))
        some = ["-x", f"--mutants-tests={chosen}", f"--timeout={limit}"] if tests else [f"--timeout={_TEST_S}"]
        words = [
            str(self._python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", _PLUGIN,
            f"--mutants-ends={ends}", f"--basetemp={self._temporary}/b", "-m", "not extended", *some, *files,
        ]  # fmt: skip
        status = self._wait_for(words, _START_S + limit + _TIMES * sum(tests.values()) if tests else _RUN_S)
        lines = [json.loads(line) for line in ends.read_text().splitlines()]
        over = [line for line in lines if "test" in line]
        failed = {line["test"]: line["why"] for line in over if line["why"]}
        if status not in (0, 1, 5) and not failed:
            begun = {line["begun"] for line in lines if "begun" in line} - {line["test"] for line in over}
            failed = dict.fromkeys([*begun] or files[:1], f"pytest has ended with status {status}")
        passed = {line["test"]: line["seconds"] for line in over if not line["why"]}
        shared = sum(line.get("shared", 0.0) for line in lines)
        return Outcome(passed, failed, shared, frozenset(int(path.name) for path in self._reached.iterdir()))

    def close(self) -> None:
        """End what runs. The thread that waits for it gets Interrupted."""
        with self._lock:
            self._closed = True
            if self._running:
                self._end(self._running)
        self._end_strays()

    def _apply(self, active: Collection[int]) -> None:
        for file, source in self._sources.items():
            watched = [(number, one) for number, one in enumerate(self._sample) if one.file == file]
            text = write(source, watched, active, str(self._reached))
            if text != (self._root / file).read_bytes():
                (self._root / file).write_bytes(text)
                # Bytecode is used again if size and modification time in seconds are the same.
                self._modified += 2
                os.utime(self._root / file, (self._modified, self._modified))

    def _wait_for(self, words: Sequence[str], limit: float) -> int:
        """Run a command and return its exit status. End it after ``limit`` seconds."""
        unset = ("TFCTL_", "ANSIBLE_", "PYTEST_", "PYTHON", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
        # Tests derive ports from the number of the worker.
        env = {**kept, "TMPDIR": str(self._temporary), "PYTEST_XDIST_WORKER": f"gw{self._number}",
               "PATH": f"{self._python.parent}:{os.environ['PATH']}"}  # fmt: skip
        with self._lock:
            if self._closed:
                raise Interrupted
            with (self._temporary / "output").open("wb") as output:
                self._running = subprocess.Popen(
                    words, cwd=self._root, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
        process = self._running
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            self._end(process)
            self._end_strays()
            status = process.returncode
        with self._lock:
            self._running = None
            if self._closed:
                raise Interrupted
        return status

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End a run as Ctrl-C does or, if that takes too long, kill it."""
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _end_strays(self) -> None:
        """Kill what a run has left: processes that have this tree's directories in their environment, command line or
        working directory."""
        ours = f"{self._root.parent}/"
        for pid, texts in _processes():
            if any(ours in text for text in texts):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _copy(checkout: Path, root: Path) -> None:
    """Copy the files that git tracks or would track, except those that were deleted."""
    command = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")[:-1]:
        if os.path.lexists(checkout / name):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, root / name, follow_symlinks=False)


def _environment(root: Path) -> Path:
    """Create a virtual environment with the packages of this one, but with the tfctl in ``root``. Return its Python.

    A path in PYTHONPATH would not be enough: some tests run Python with an environment of their own.
    """
    here, there = Path(sys.prefix), root / ".venv"
    packages = Path(sysconfig.get_path("purelib"))
    (there / "bin").mkdir(parents=True)
    shutil.copy(here / "pyvenv.cfg", there)
    for program in (here / "bin").iterdir():
        copied = there / "bin" / program.name
        with program.open("rb") as opened:
            if opened.read(2) == b"#!":  # the path of Python
                opened.seek(0)
                copied.write_bytes(opened.read().replace(os.fsencode(here / "bin"), os.fsencode(there / "bin")))
                copied.chmod(0o755)
            else:
                copied.symlink_to(program.resolve())
    folder = there / packages.relative_to(here)
    folder.mkdir(parents=True)
    for entry in packages.iterdir():
        if not entry.name.startswith(("_editable_impl_", _PLUGIN)):
            (folder / entry.name).symlink_to(entry)
    (folder / "_editable_impl_tfctl_cluster.pth").write_text(f"{root}\n")
    (folder / f"{_PLUGIN}.py").symlink_to(plugin.__file__)
    return there / "bin" / "python"


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the processes of this user, with their environment, command line and working directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            texts = [(entry / name).read_text(errors="replace") for name in ("environ", "cmdline")]
            yield int(entry.name), [*texts, str((entry / "cwd").readlink())]
