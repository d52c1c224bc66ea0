"""Switch a lab's nodes on and off."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfctl.lab import egress, network, process, ready, settings, spec
from tfctl.lab import node as machines
from tfctl.lab.host import give_to_caller, locked, mounts_under, remove_tree, unmount, write
from tfctl.lab.record import LabRecord
from tfctl.lab.seed import known_hosts
from tfctl.lab.spec import Lab, LabNode, Progress

_AT_ONCE = 8
_LIMIT_S = 10.0


def on(found: LabRecord, progress: Progress) -> None:
    """Create directories, network, disks and processes, as far as missing. Raises Unreachable if nodes do not boot."""
    nodes = found.nodes
    with locked("labs", progress):
        settings.ensure()
    network.ensure(found.lab)
    _make_folders(found.lab)
    _prepare(nodes, progress)
    running = {each.machine for each in process.of_lab(found.name)}
    dead = [node for node in nodes if node.machine not in running]
    progress(f"{found.name}: starting {len(dead)} of {len(nodes)} nodes" if dead else f"{found.name}: all nodes run")
    _in_parallel(machines.start, dead)
    ready.wait(nodes, progress)


def halt(lab: str, limit: float) -> bool:
    """Ask the nodes to shut down. Return False if some still run after ``limit`` seconds."""
    nspawns = [each for each in process.of_lab(lab) if each.nspawn]
    return process.end(nspawns, signal.SIGTERM, limit)


def cut(lab: str) -> None:
    """Kill everything of the lab's nodes, including what survived a killed systemd-nspawn."""
    process.end(process.of_lab(lab), signal.SIGKILL, _LIMIT_S)
    for machine in sorted(machines.traces(lab)):
        machines.clear(machine)


def clear(lab: str, progress: Progress) -> None:
    """Remove everything of a lab except its inventories, with or without a record."""
    if not halt(lab, _LIMIT_S):
        progress(f"{lab}: not all nodes shut down in {_LIMIT_S:.0f} s; killing them")
    cut(lab)
    network.remove(lab)
    folder = spec.folder(lab)
    for point in mounts_under(folder):
        unmount(point)
    remove_tree(folder)


def has_traces(lab: str) -> bool:
    """Return whether anything of the lab exists on disk, among the processes or in the kernel."""
    return bool(spec.folder(lab).exists() or process.of_lab(lab) or machines.traces(lab) or network.has_traces(lab))


def _make_folders(lab: Lab) -> None:
    lab.shared.mkdir(exist_ok=True)
    machines.make_key(lab.key, f"tfctl-lab-{lab.name}")
    give_to_caller(lab.key)


def _prepare(nodes: Sequence[LabNode], progress: Progress) -> None:
    """Prepare the nodes that are not prepared yet."""
    lab = nodes[0].lab
    if fresh := [node for node in nodes if not machines.is_prepared(node)]:
        operator_key, access = lab.key.with_suffix(".pub").read_text(), egress.read(progress)
        _in_parallel(lambda node: machines.prepare(node, nodes, operator_key, access), fresh)
    keys = [(node, node.host_key.with_suffix(".pub").read_text()) for node in nodes]
    write(lab.known_hosts, known_hosts(keys))


def _in_parallel(work: Callable[[LabNode], None], nodes: Sequence[LabNode]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(work, nodes))
