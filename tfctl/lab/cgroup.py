"""A node's own cgroups, where systemd does not run this machine and nobody else makes them."""

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
    """sd_booted(3). A node is then a unit, in a cgroup that systemd makes and removes: none of those here."""
    return Path("/run/systemd/system").is_dir()


def folders(machine: str, top: Path = _TOP) -> list[Path]:
    """Where a machine's cgroups are, or are to be made."""
    return [hierarchy / _PARENT / machine for hierarchy in _hierarchies(top)]


def machines(lab: str, top: Path = _TOP) -> set[str]:
    """Those of a lab that have cgroups, running or not."""
    names = {entry.name for hierarchy in _hierarchies(top) for entry in (hierarchy / _PARENT).glob("*")}
    return {name for name in names if is_machine(lab, name)}


def sweep(machine: str) -> bool:
    """Kills what is left in a machine's cgroups and removes them. False when something stays.

    The init of a node whose systemd-nspawn was killed lives on, and only its cgroup still says whose it is.
    """

    def gone() -> bool:
        for folder in folders(machine):
            _kill_members(folder)
            _remove_tree(folder)
        return not any(folder.is_dir() for folder in folders(machine))

    done = wait_for(gone, limit=10.0)
    for folder in folders(machine):
        with suppress(OSError):  # other nodes are in it, or it is gone
            folder.parent.rmdir()
    return done


def _hierarchies(top: Path) -> list[Path]:
    """Those that systemd uses: the unified one, or (cgroup v1) its own named one and, hybrid, the unified one too."""
    if (top / "cgroup.controllers").is_file():
        return [top]
    return [top / name for name in ("systemd", "unified") if (top / name / "cgroup.procs").is_file()]


def _kill_members(folder: Path) -> None:
    for path, _, _ in os.walk(folder):  # which passes over what is removed meanwhile; Path.glob does not
        with suppress(OSError):  # ended, or removed, meanwhile
            for pid in map(int, Path(path, "cgroup.procs").read_text().split()):
                if pid > 0:  # 0: a process of a pid namespace we cannot see
                    os.kill(pid, signal.SIGKILL)


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty yet
            Path(path).rmdir()
