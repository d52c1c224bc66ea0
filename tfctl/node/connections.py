"""The TCP connections of tasks, as ss(8) of iproute2 shows them: which task has one, it says by the cgroup."""

from __future__ import annotations

import re
from collections.abc import Mapping

from . import wire
from .session import RequestRefused
from .system import System, run
from .wire import TaskName

_LIMIT_S = 5.0
#: The most connections of a task.
_MOST = 512
_NUMBER = re.compile(r" (lastsnd|lastrcv|backoff):(\d+)")


def of_units(system: System, units: Mapping[str, TaskName]) -> dict[TaskName, tuple[wire.Socket, ...]]:
    """Return the connections of the tasks with these units. Those that only listen are left out.

    What ss cannot tell is missing: versions of iproute2 before 5.8 do not know cgroups.
    """
    found: dict[TaskName, list[wire.Socket]] = {}
    try:
        lines = run([*system.ss, "-HtneiO", "--cgroup"], _LIMIT_S).output.splitlines()
    except RequestRefused:
        return {}
    for line in lines:
        cgroup = re.search(r" cgroup:(\S+)", line)
        task = units.get(cgroup[1].rpartition("/")[2]) if cgroup else None
        socket = _socket(line)
        if task is not None and socket is not None and len(found.setdefault(task, [])) < _MOST:
            found[task].append(socket)
    return {task: tuple(sockets) for task, sockets in found.items()}


def _socket(line: str) -> wire.Socket | None:
    """Return a connection: `STATE RECV-Q SEND-Q LOCAL PEER` and details, of which each may be missing."""
    words = line.split(None, 5)
    if len(words) < 5 or not (words[1].isdecimal() and words[2].isdecimal()):
        return None
    details = {name: int(value) for name, value in _NUMBER.findall(line)}
    idle = [details[name] for name in ("lastsnd", "lastrcv") if name in details]
    return wire.Socket(
        _plain(words[3]), _plain(words[4]), words[0], int(words[1]), int(words[2]), details.get("backoff", 0),
        min(idle) / 1000 if idle else None,
    )  # fmt: skip


def _plain(address: str) -> str:
    """Return an address of IPv4 as such: a socket of IPv6 that is connected to it shows it as mapped."""
    return re.sub(r"^\[::ffff:([\d.]+)\]", r"\1", address)
