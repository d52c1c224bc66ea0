"""The Python stacks of processes, by py-spy, in a unit of its own with as few rights as it needs.

py-spy reads the memory of a process with process_vm_readv, without stopping it (--nonblocking), for which it has the
capability CAP_SYS_PTRACE alone, without root. So that the values of variables, which may be secrets, never leave the
process, --locals is not used. Names of functions and files may contain anything: py-spy writes them as JSON.

systemd.exec(5) describes the properties. With PrivateUsers, the capability would be one of another namespace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import names, wire
from .session import RequestRefused
from .system import System, run

#: The rights of the unit.
_RIGHTS = (
    "User=nobody", "AmbientCapabilities=CAP_SYS_PTRACE", "CapabilityBoundingSet=CAP_SYS_PTRACE", "NoNewPrivileges=yes",
    "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes", "PrivateNetwork=yes",
    "ProtectClock=yes", "ProtectControlGroups=yes", "ProtectHostname=yes", "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "LockPersonality=yes", "MemoryDenyWriteExecute=yes",
    "RestrictNamespaces=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "SystemCallArchitectures=native",
    "RestrictAddressFamilies=AF_UNIX", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
    "InaccessiblePaths=-/var -/srv -/etc/tfctl -/run/tfctl", "UMask=0077", "LimitCORE=0", "MemoryMax=512M",
    "TasksMax=16", "Nice=10",
)  # fmt: skip
#: How long (s) one process may take, and all of them.
_ONE_S, _ALL_S = 3, 20
#: The most bytes of the stacks of a process, threads of a process, frames of a thread and characters of a name.
_BYTES, _THREADS, _FRAMES, _NAME = 1 << 20, 64, 48, 160
#: Prints a line with the number of each process, then what py-spy says of it. While a process changes its stacks,
#: py-spy may fail to read them.
_SCRIPT = f"""spy=$1; shift
for pid; do
    for attempt in 1 2 3 4; do
        text=$(timeout {_ONE_S} "$spy" dump --nonblocking --json --pid "$pid" 2>&1) && break
    done
    printf '\\036%s\\n' "$pid"
    printf '%s\\n' "$text" | head -c {_BYTES}
done"""


def of(system: System, pids: Sequence[int]) -> dict[int, tuple[wire.Thread, ...] | str]:
    """Return the stacks of each process, or why there are none."""
    if not pids:
        return {}
    program = system.at(names.PY_SPY)
    if not program.exists():
        return _all(pids, "py-spy is not installed; run: tfctl provision INVENTORY --tags py_spy")
    rights = [f"--property={one}" for one in (*_RIGHTS, f"RuntimeMaxSec={_ALL_S}")]
    words = [*system.systemd_run, "--quiet", "--pipe", "--wait", "--collect", *rights, "--", "/bin/sh", "-c", _SCRIPT,
             "sh", str(program), *map(str, pids)]  # fmt: skip
    try:
        done = run(words, _ALL_S + 5.0)
    except RequestRefused as error:
        return _all(pids, str(error))
    found: dict[int, tuple[wire.Thread, ...] | str] = {}
    for part in done.output.split("\036")[1:]:
        pid, _, text = part.partition("\n")
        if pid.isdecimal():
            found[int(pid)] = _threads(text)
    why = done.errors.splitlines()[-1] if done.errors else "the unit of py-spy has ended"
    return {pid: found.get(pid, why) for pid in pids}


def _all(pids: Sequence[int], why: str) -> dict[int, tuple[wire.Thread, ...] | str]:
    return dict.fromkeys(pids, why)


def _threads(text: str) -> tuple[wire.Thread, ...] | str:
    """Return the threads that py-spy has printed, the main one first, or what it says instead."""
    try:
        found = [_thread(one) for one in json.loads(text)[:_THREADS]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        lines = text.strip().splitlines()
        return lines[0][:_NAME] if lines else "py-spy has printed nothing"
    return tuple(sorted(found, key=lambda thread: thread.name != "MainThread"))


def _thread(found: Mapping[str, Any]) -> wire.Thread:
    name = found.get("thread_name")
    frames = [_frame(one) for one in found["frames"][:_FRAMES]]
    return wire.Thread(None if name is None else str(name)[:_NAME], bool(found["active"]), tuple(frames))


def _frame(found: Mapping[str, Any]) -> wire.Frame:
    file = str(found.get("short_filename") or found["filename"])
    return wire.Frame(str(found["name"])[:_NAME], file[-_NAME:], max(0, int(found["line"])))
