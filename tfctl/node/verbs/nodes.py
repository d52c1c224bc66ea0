"""The verb `nodes`: describe this host and who holds its ports and GPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from .. import disks, gpus, receipts, reservations, states, versions, wire
from ..hello import look, stacks
from ..session import NodeSession
from ..system import System, node_part
from ..units import InstalledUnit, live_units


def run(system: System, session: NodeSession, request: wire.NodesRequest) -> None:
    """Send one answer. Raises RequestRefused."""
    units = live_units(system)
    held = reservations.held(system, units)
    seen = look(system, held)
    session.send(
        wire.Node(
            protocol=wire.PROTOCOL,
            version=node_part(),
            os=versions.os_release(map(system.at, versions.OS_RELEASE)).get("PRETTY_NAME") or None,
            kernel=os.uname().release,
            systemd=system.systemd(),
            cpus=os.cpu_count(),
            load=round(os.getloadavg()[0], 2),
            memory_mib=_memory(),
            stacks=stacks(system),
            gpus=seen.devices,
            gpu_trouble=seen.trouble,
            ports=dict(sorted(held.ports.items())),
            tasks=tuple(_task(unit) for unit in units),
            disks=disks.disks(system),
            stored_mib=None if request.brief else disks.stored_mib(system),
            cards=gpus.cards(system) if seen.devices else (),
            time=time.time(),
            gpu_cards=seen.cards,
            missing_gpus=seen.missing,
            machine=system.machine(),
            drifts=() if request.brief else _drifts(system),
        )
    )


def _task(unit: InstalledUnit) -> wire.RunningTask:
    state = states.state(unit.properties, (), marked=False, reserved=False).state
    return wire.RunningTask(unit.job, *unit.task, state)


def _drifts(system: System) -> tuple[str, ...]:
    return tuple(text for each in receipts.check_all(str(system.at(receipts.FOLDER))) for text in each.drifts)


def _memory() -> tuple[int, int] | None:
    """Return total and available memory in MiB (proc_meminfo(5)), or None."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) // 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        return None
