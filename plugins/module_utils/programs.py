"""Read small files, and run programs that may be missing or hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, last_lines
from ansible_collections.tfctl.cluster.plugins.module_utils.starting import STARTS, reservations
from ansible_collections.tfctl.cluster.plugins.module_utils.unit_list import ARGUMENTS, live_or_queued

LIMIT_S = 30  # a sick driver hangs nvidia-smi
#: List the units of tasks and guards; see tfctl_unit_list.
LIST_UNITS = ("systemctl", *ARGUMENTS, "--no-pager")


def run(command: Sequence[str], limit_s: float | None = None) -> tuple[int, str]:
    """Return (exit status, output); 127 if the program is missing, 124 if it runs longer than LIMIT_S or limit_s."""
    limit_s = limit_s or LIMIT_S
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
            text=True,
        )
    except FileNotFoundError:
        return 127, f"there is no {command[0]}"
    except OSError as error:
        return 127, f"{command[0]} cannot be started: {error.strerror}"
    try:
        said = process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stdout:
            process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel does not even die
            process.wait(1)
        return 124, f"{command[0]} ran longer than {limit_s:g} s and was killed"
    return process.returncode, said


def live_units() -> list[str]:
    """Return the units of tasks and guards that run, start, end or are about to start, and those of starts in progress,
    which may not have begun any yet. Raises ModuleFailed if systemctl does not say which ones run.
    """
    # First, for a start that ends in between is then seen twice, and not missed.
    tasks = [(start["job"], *task) for start, alive in reservations(STARTS) if alive for task in start["tasks"]]
    code, said = run(LIST_UNITS)
    if code:
        message = f"tfctl cannot find out which jobs run: {last_lines(said)} (exit code {code} of systemctl)"
        raise ModuleFailed(message, "run `systemctl list-units` on {host} to see why, then try again")
    return [*live_or_queued(said), *(f"tfctl-{job}-{role}-{index}.service" for job, role, index in tasks)]


def content(path: Path) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_json(path: Path) -> Any:
    """Return the content of a file of JSON, or {} if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def first_line(path: Path) -> str:
    return content(path).partition("\n")[0].strip()


def number(path: Path) -> int:
    """Return the hexadecimal number in a file of /sys, or 0 if there is none."""
    with contextlib.suppress(ValueError):
        return int(content(path), 16)
    return 0


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as a tuple of numbers, for comparisons."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
