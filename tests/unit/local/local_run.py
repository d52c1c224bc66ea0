"""`tfctl run` as a user has it: job file and script in a directory, and a process to watch."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from tfctl.cli import main

LIMIT_S = 60.0
#: A Python whose packages tfctl lists at once. Listing those of the tests would take a tenth of a second in each run.
PYTHON = f"""#!/bin/sh
if [ "$1" = -c ]; then echo '{{"python": "3.11.2", "packages": {{}}}}'; else exec {sys.executable} -S "$@"; fi
"""


class Done:
    """The result of a run. ``lines``: the output of each task, ``{"worker/0": [...]}``."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        self.lines: dict[str, list[str]] = {}
        for line in out.splitlines():
            task, _, text = line.partition(" │ ")
            self.lines.setdefault(task.strip(), []).append(text)


class Local:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tmp").mkdir()
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
        self._running: list[subprocess.Popen[str]] = []

    def write(self, job: str, script: str = "") -> None:
        """A job file (after its name and strategy) and train.py; `python` is the one of the tests, without packages."""
        (self.folder / "job.yaml").write_text("name: digits\n" + textwrap.dedent(job))
        (self.folder / "train.py").write_text(textwrap.dedent(script))
        (self.folder / "bin").mkdir(exist_ok=True)
        python = self.folder / "bin/python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self.env["PATH"] = f"{python.parent}:{os.environ['PATH']}"

    def begin(self, *options: str) -> subprocess.Popen[str]:
        """Start tfctl in its own process."""
        words = [sys.executable, "-m", "tfctl", "run", "job.yaml", *options]
        pipe = subprocess.PIPE
        self._running.append(
            subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True)
        )
        return self._running[-1]

    def end(self, running: subprocess.Popen[str]) -> Done:
        out, err = running.communicate(timeout=LIMIT_S)
        return Done(running.returncode, out, err)

    def run(self, *options: str) -> Done:
        """Run tfctl in this process, to its end."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(tempfile, "tempdir", self.env["TMPDIR"])
            for name, value in self.env.items():
                patch.setenv(name, value)
            code = main.run(["run", "job.yaml", *options])
        return Done(code, out.getvalue(), err.getvalue())

    def numbers(self, name: str) -> list[int]:
        """Wait for the file of this name, and return the process IDs that a task has written to it."""
        path = self.folder / name
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
        return [int(word) for word in path.read_text().split()]

    def close(self) -> None:
        for running in self._running:
            with running:
                running.kill()


def wait_for(holds: object) -> None:
    assert callable(holds)
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Return whether this process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
