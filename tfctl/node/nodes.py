"""The verb `nodes`: describe this host and who holds its ports and GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import gpus, placed, states, wire
from .hello import devices, stacks
from .talk import Talk
from .world import World, host


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:  # noqa: ARG001  every verb's shape
    """Send one answer. Raises Refused."""
    units = placed.units(world)
    held = placed.held(world, units)
    talk.send(
        "node",
        {
            "protocol": wire.PROTOCOL,
            "version": Path(__file__).resolve().parent.parent.name,
            "host": host(),
            "os": _release(world),
            "kernel": os.uname().release,
            "systemd": world.systemd(),
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "memory_mib": _memory(),
            "stacks": stacks(world),
            **devices(gpus.look(world), held),
            "ports": {str(port): who for port, who in sorted(held.ports.items())},
            "tasks": [_task(unit) for unit in units if unit.live],
        },
    )


def _task(unit: placed.Placed) -> dict[str, Any]:
    role, index = unit.task
    return {
        "job": unit.job,
        "role": role,
        "index": index,
        "state": states.state(unit.shown, (), marked=False, reserved=False)[0],
    }


def _release(world: World) -> str | None:
    """Return PRETTY_NAME of os-release(5), or None."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            lines = world.at(path).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        known = dict(line.split("=", 1) for line in lines if "=" in line)
        return known.get("PRETTY_NAME", "").strip("\"'") or None
    return None


def _memory() -> list[int] | None:
    """Return total and available memory in MiB (proc_meminfo(5)), or None."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) // 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return [sizes["MemTotal"], sizes["MemAvailable"]]
    except (OSError, KeyError, ValueError, IndexError):
        return None
