"""What a unit and this host use, from files of the kernel: no process is started.

Read: cgroup v2 and proc(5) of the kernel's documentation. cpu.stat exists in every cgroup of version 2, memory.stat and
io.stat only where systemd has enabled the controllers; io.stat also needs IOAccounting=yes, which 10-tfctl.conf has.
Where a file is missing, the processes of the unit are added up. What those have used that have ended is then unknown.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import names
from .system import System
from .wire import TaskName

#: Where systemd's cgroups are: with version 2 alone, in hybrid mode, and with version 1 (cgroups(7)).
_HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
_MIB = 1 << 20
#: Units of 4 bytes: the counters of an InfiniBand port (kernel, stable/sysfs-class-infiniband).
_INFINIBAND_UNIT = 4


class Usage(NamedTuple):
    """``cpu``: seconds of CPU time so far. ``memory``: MiB, without the page cache. ``read``, ``written``: bytes so
    far. Unknown values are None."""

    cpu: float | None
    memory: int | None
    read: int | None
    written: int | None


def of_task(system: System, job: str, task: TaskName) -> Usage | None:
    """Return what the unit of a task uses, or None if it has no processes."""
    folder, numbers = _cgroup(system, job, task)
    return None if folder is None or not numbers else _of_cgroup(system, folder, numbers)


def pids(system: System, job: str, task: TaskName) -> list[int]:
    """Return the processes of the unit of a task."""
    return [int(number) for number in _cgroup(system, job, task)[1]]


def is_frozen(system: System, job: str, task: TaskName) -> bool:
    """Return whether the processes of the unit are frozen, as by `systemctl freeze`: they show no sign of it."""
    folder, _ = _cgroup(system, job, task)
    return folder is not None and bool(_keyed(folder / "cgroup.events").get("frozen"))


def _cgroup(system: System, job: str, task: TaskName) -> tuple[Path | None, list[str]]:
    """Return the cgroup of the unit of a task, or None, and its processes."""
    for place in _HIERARCHIES:
        folder = system.at(place + names.cgroup(job, *task))
        with contextlib.suppress(OSError):
            return folder, (folder / "cgroup.procs").read_text().split()
    return None, []


def network(system: System) -> tuple[int, int] | None:
    """Return the bytes that this host has received and sent so far, by its network cards or, if it has none as in a
    container, by all interfaces other than the loopback."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = system.at("/proc/net/dev").read_text().splitlines()[2:]
        counts = {name.strip(): values.split() for name, _, values in (line.partition(":") for line in lines)}
        counts.pop("lo", None)
        cards = {name for name in counts if system.at(f"/sys/class/net/{name}/device").exists()}
        chosen = [values for name, values in counts.items() if name in cards or not cards]
        received, sent = _infiniband(system)
        return received + sum(int(one[0]) for one in chosen), sent + sum(int(one[8]) for one in chosen)
    return None


def _infiniband(system: System) -> tuple[int, int]:
    ports = list(system.at("/sys/class/infiniband").glob("*/ports/*/counters"))

    def total(name: str) -> int:
        return sum(_INFINIBAND_UNIT * (_number(port / name) or 0) for port in ports)

    return total("port_rcv_data"), total("port_xmit_data")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _of_cgroup(system: System, folder: Path, pids: list[str]) -> Usage:
    cpu: float | None = _keyed(folder / "cpu.stat").get("usage_usec")
    memory = _keyed(folder / "memory.stat")
    io = _io(folder / "io.stat")
    used = memory["anon"] + memory.get("shmem", 0) if "anon" in memory else None
    if cpu is None or used is None or io is None:
        processes = list(_processes(system, pids))
        cpu = sum((one[0] for one in processes), 0.0) if cpu is None else cpu
        used = sum(one[1] for one in processes) if used is None else used
        if io is None and all(one[2] is not None for one in processes):
            counts = [one[2] for one in processes if one[2] is not None]
            io = sum(one[0] for one in counts), sum(one[1] for one in counts)
    read, written = io or (None, None)
    return Usage(cpu / 1e6, used // _MIB, read, written)


def _keyed(path: Path) -> dict[str, int]:
    """Return the values of a flat keyed file."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, value = line.split()
            found[key] = int(value)
    return found


def _io(path: Path) -> tuple[int, int] | None:
    """Return the bytes read and written of all devices."""
    try:
        words = path.read_text().split()
        numbers = [word.partition("=") for word in words if "=" in word]
        return (
            sum(int(value) for name, _, value in numbers if name == "rbytes"),
            sum(int(value) for name, _, value in numbers if name == "wbytes"),
        )
    except (OSError, ValueError):
        return None


def _processes(system: System, pids: list[str]) -> Iterator[tuple[float, int, tuple[int, int] | None]]:
    """Yield of each process its CPU time (us), its memory (bytes) and the bytes that it has read and written."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        folder = system.at(f"/proc/{pid}")
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program may contain anything.
            after_name = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            resident, shared = (int(word) for word in (folder / "statm").read_text().split()[1:3])
            times = sum(int(word) for word in after_name[11:15])  # with those of its children that have ended
            try:
                io = {name: int(value) for name, _, value in _fields(folder / "io")}
                counts = io["read_bytes"], io["write_bytes"]
            except (OSError, ValueError, KeyError):
                counts = None
            yield times / tick * 1e6, (resident - shared) * page, counts


def _fields(path: Path) -> Iterator[tuple[str, str, str]]:
    return (line.partition(": ") for line in path.read_text().splitlines())
