"""The versions of this host's system, from os-release(5) and systemd. The playbooks' modules use this file too."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")


def os_release(files: Iterable[str | Path] = OS_RELEASE) -> dict[str, str]:
    """Return the fields of os-release(5), from the first file that can be read, without quotes.

    platform.freedesktop_os_release needs Python 3.10.
    """
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key.strip(): value.strip().strip("\"'") for key, _, value in lines}
    return {}


def systemd(systemctl: Sequence[str] = ("systemctl",)) -> int | None:
    """Return systemd's version, such as 252, or None if it cannot be read."""
    try:
        done = subprocess.run(
            [*systemctl, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"systemd (\d+)", done.stdout)
    return int(found[1]) if found else None
