"""The System of a node part on a tree, with the stand-ins for systemctl and journalctl."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tfctl.node.system import System  # noqa: E402


def fake_system(tree: str, account: str, silence: float) -> System:
    """Return the system, and let the clock of this process run as the file `clock` of the tree says."""
    with contextlib.suppress(FileNotFoundError):  # how many seconds the clock of this host is ahead
        ahead, real_time = float(Path(tree, "clock").read_text()), time.time
        time.time = lambda: real_time() + ahead

    def fake(name: str) -> tuple[str, ...]:
        return sys.executable, "-S", str(HERE / name), tree

    return System(
        prefix=tree,
        account=account,
        guard=account,
        systemctl=fake("fake_systemctl.py"),
        journalctl=fake("fake_journalctl.py"),
        nvidia_smi=(f"{tree}/usr/bin/nvidia-smi",),
        silence=silence,
        grace=1.0,
    )
