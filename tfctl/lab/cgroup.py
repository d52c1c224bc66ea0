"""A node's own cgroups, on a machine that systemd does not run."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tfctl.lab.host import wait_for
from tfctl.lab.spec import is_machine

_TOP = Path("/sys/fs/cgroup")
_PARENT = "tfctl-lab"


def booted_with_systemd() -> bool:
    """Return sd_booted(3). If True, a node is a unit whose cgroup systemd manages, and this module is not used."""
    return Path("/run/systemd/system").is_dir()


def folders(machine: str, top: Path = _TOP) -> list[Path]:
    """Return the paths of a machine's cgroups, whether or not they exist."""
    return [hierarchy / _PARENT / machine for hierarchy in _hierarchies(top)]


def machines(lab: str, top: Path = _TOP) -> set[str]:
    """Return the machines of a lab that have cgroups, running or not."""
    names = {entry.name for hierarchy in _hierarchies(top) for entry in (hierarchy / _PARENT).glob("*")}
    return {name for name in names if is_machine(lab, name)}


def sweep(machine: str) -> bool:
    """Kill the processes left in a machine's cgroups and remove the cgroups. Return False if something stays.

    If systemd-nspawn was killed, the node's init survives, and only its cgroup tells which node it belongs to.
    """

    def gone() -> bool:
        for folder in folders(machine):
            _kill_members(folder)
            _remove_tree(folder)
        return not any(folder.is_dir() for folder in folders(machine))

    done = wait_for(gone, limit=10.0)
    for folder in folders(machine):
        with suppress(OSError):  # it holds other nodes, or is gone
            folder.parent.rmdir()
    return done


def _hierarchies(top: Path) -> list[Path]:
    """Return the hierarchies that systemd uses: the unified one or, with cgroup v1, its named one and, in hybrid mode,
    the unified one too."""
    if (top / "cgroup.controllers").is_file():
        return [top]
    return [top / name for name in ("systemd", "unified") if (top / name / "cgroup.procs").is_file()]


def _kill_members(folder: Path) -> None:
    for path, _, _ in os.walk(folder):  # unlike Path.glob, it tolerates concurrent removal
        with suppress(OSError):  # ended or removed meanwhile
            for pid in map(int, Path(path, "cgroup.procs").read_text().split()):
                if pid > 0:  # 0: a process of a pid namespace we cannot see
                    os.kill(pid, signal.SIGKILL)


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty yet
            Path(path).rmdir()
