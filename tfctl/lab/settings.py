"""Kernel settings of this machine that labs need: raise and restore them."""

from __future__ import annotations

import json
from pathlib import Path

from tfctl.lab.host import write
from tfctl.lab.spec import STATE

# The minimum of each, by path below /proc/sys. The daemons of every node use inotify instances, and the kernel counts
# the root of all nodes as one user, who gets 128 by default.
LEAST = {"net/ipv4/ip_forward": 1, "fs/inotify/max_user_instances": 2048, "fs/inotify/max_user_watches": 524288}
_SYS = Path("/proc/sys")
_BEFORE = STATE / "settings.before"


def ensure(sys: Path = _SYS, before: Path = _BEFORE) -> None:
    """Raise the settings that are too low, after saving their previous values."""
    low = {name: value for name, least in LEAST.items() if (value := _value(sys / name)) < least}
    if low:
        write(before, json.dumps(low | _kept(before)) + "\n")
    for name in low:
        (sys / name).write_text(f"{LEAST[name]}\n")


def restore(sys: Path = _SYS, before: Path = _BEFORE) -> None:
    """Restore the values from before the first lab. Call it when the last lab is removed."""
    for name, value in _kept(before).items():
        (sys / name).write_text(f"{value}\n")
    before.unlink(missing_ok=True)


def _value(file: Path) -> int:
    return int(file.read_text())


def _kept(before: Path) -> dict[str, int]:
    return dict(json.loads(before.read_text())) if before.is_file() else {}
