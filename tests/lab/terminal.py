"""Run a command on a terminal of its own, and type what a person would."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

LIMIT_S = 300


def type_at_prompt(words: list[str], folder: Path, prompt: str, typed: str) -> tuple[int, str]:
    """Run a command in ``folder``, answer its prompt, and return its exit code and what the terminal has shown."""
    ours, theirs = os.openpty()
    # setsid makes the terminal the one that /dev/tty names.
    command = ["setsid", "--ctty", "--wait", *words]
    child = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + LIMIT_S
    try:
        while chunk := read(ours):
            assert time.monotonic() < deadline, shown
            shown += chunk
            if typed and prompt.encode() in shown:
                os.write(ours, f"{typed}\n".encode())
                typed = ""
        return child.wait(LIMIT_S), shown.decode()
    finally:
        child.kill()
        os.close(ours)


def read(terminal: int) -> bytes:
    """Read from the terminal; return nothing when the last program on it has ended."""
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""
