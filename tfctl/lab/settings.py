"""Kernel settings of this machine that labs need, and their way back."""

from __future__ import annotations

import json
from pathlib import Path

from tfctl.lab.host import write
from tfctl.lab.spec import STATE

# By path below /proc/sys, the least that is needed. A node's systemd and its daemons take inotify instances; the root
# of all nodes is one user to the kernel, which grants a user 128.
LEAST = {"net/ipv4/ip_forward": 1, "fs/inotify/max_user_instances": 2048, "fs/inotify/max_user_watches": 524288}
_SYS = Path("/proc/sys")
_BEFORE = STATE / "settings.before"


def ensure(sys: Path = _SYS, before: Path = _BEFORE) -> None:
    """What is too low is raised; what it was is written down first."""
    low = {name: value for name, least in LEAST.items() if (value := _value(sys / name)) < least}
    if low:
        write(before, json.dumps(low | _kept(before)) + "\n")
    for name in low:
        (sys / name).write_text(f"{LEAST[name]}\n")


def restore(sys: Path = _SYS, before: Path = _BEFORE) -> None:
    """For the last lab that goes: as it was before the first came."""
    for name, value in _kept(before).items():
        (sys / name).write_text(f"{value}\n")
    before.unlink(missing_ok=True)


def _value(file: Path) -> int:
    return int(file.read_text())


def _kept(before: Path) -> dict[str, int]:
    return dict(json.loads(before.read_text())) if before.is_file() else {}
