"""The System of a node part on a tree, with the stand-ins for systemctl and journalctl."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tfctl.node.network import Network  # noqa: E402
from tfctl.node.system import System  # noqa: E402

#: What /proc/PID/cgroup of a unit's process contains with cgroup version 2 (cgroups(7)).
CGROUPS = "0::/system.slice/{unit}\n"


def enter_cgroup(tree: str, unit: str) -> None:
    """Let the tree show that this process belongs to a unit. The file `cgroups` of a tree with another version of
    cgroups is used in place of CGROUPS."""
    path = Path(tree, "cgroups")
    text = path.read_text() if path.exists() else CGROUPS
    place = Path(tree, "proc", str(os.getpid()))
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup").write_text(text.format(unit=unit))


class FakeNetwork(Network):
    """The network of a host on a tree. The invented addresses 10.9.0.N lead to this machine, where nothing listens at
    their ports. In the tree, `hosts` has lines of an address and a name (hosts(5)), and `cut` addresses to which there
    is no route."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def lookup(self, name: str) -> list[str]:
        lines = [line.split() for line in self._lines("hosts")]
        return [address for address, *known in lines if name in known] or super().lookup(name)

    def connect(self, address: str, port: int) -> socket.socket:
        if address in self._lines("cut"):
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return super().connect("127.0.0.1" if address.startswith("10.9.0.") else address, port)

    def _lines(self, name: str) -> list[str]:
        path = self._tree / name
        return path.read_text().splitlines() if path.exists() else []


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
        systemd_run=fake("fake_systemd_run.py"),
        ss=(f"{tree}/usr/bin/ss",),
        network=FakeNetwork(Path(tree)),
        silence=silence,
        grace=1.0,
    )
