"""The current state of a lab, read from the kernel and the nodes without changing anything."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tfctl.lab import process, ready, record
from tfctl.lab.host import require_linux
from tfctl.lab.spec import LabNode

_BANNER_LIMIT_S = 2.0


@dataclass(frozen=True)
class NodeStatus:
    """``state``: ``running`` (sshd answers), ``silent`` (it does not) or ``off``; ``pid``: that of systemd-nspawn."""

    name: str
    address: str
    suite: str
    state: str
    pid: int | None
    console: str


@dataclass(frozen=True)
class LabStatus:
    """``snapshot``: the one that the lab was made from; ``snapshots``: all on this machine."""

    name: str
    network: str
    inventories: tuple[str, ...]
    shared: str
    snapshot: str | None
    nodes: tuple[NodeStatus, ...]
    snapshots: tuple[str, ...]


def status(name: str) -> LabStatus:
    """Return the lab's status. Raises NotFound, PreflightFailed."""
    require_linux()
    found = record.get(name)
    with ThreadPoolExecutor(len(found.nodes)) as pool:
        nodes = tuple(pool.map(_node, found.nodes))
    inventories = tuple(path for path in found.inventories if Path(path).is_file())
    lab, kept = found.lab, tuple(record.snapshots())
    return LabStatus(name, lab.network, inventories, str(lab.shared), found.snapshot, nodes, kept)


def _node(node: LabNode) -> NodeStatus:
    pid = next((found.pid for found in process.of_node(node) if found.nspawn), None)
    state = "off" if pid is None else "running" if ready.banner(node, _BANNER_LIMIT_S) else "silent"
    return NodeStatus(node.name, node.address, node.disk.suite, state, pid, str(node.console))
