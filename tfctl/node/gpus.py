"""The NVIDIA GPUs of this host, by nvidia-smi. Where that is missing there are none."""

from __future__ import annotations

import os
from typing import Any

from .world import World, run

_FORMAT = "--format=csv,noheader,nounits"


def look(world: World) -> list[dict[str, Any]]:
    """GPU of tfctl.node.wire, each; ``holder`` names a process that computes on it. Raises Refused."""
    gpus = [row for row in _query(world, "--query-gpu=uuid,index,name,memory.total") if len(row) == 4]
    if not gpus:
        return []
    apps = _query(world, "--query-compute-apps=gpu_uuid,pid,process_name")
    users = {row[0]: f"pid {row[1]} ({row[2]})" for row in apps if len(row) == 3}
    return [
        {
            "uuid": uuid,
            "index": int(index) if index.isdigit() else 0,
            "name": name,
            "memory_mib": int(memory) if memory.isdigit() else 0,
            "holder": users.get(uuid, ""),
        }
        for uuid, index, name, memory in gpus
    ]


def _query(world: World, what: str) -> list[list[str]]:
    if not os.access(world.nvidia_smi[0], os.X_OK):
        return []
    done = run([*world.nvidia_smi, what, _FORMAT], 20.0)
    return [[word.strip() for word in line.split(",")] for line in done.output.splitlines()] if done.status == 0 else []
