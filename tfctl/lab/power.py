"""A lab's nodes on and off: all of what a record says there is, and then nothing of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tfctl.lab import egress, network, process, ready, settings, spec
from tfctl.lab import node as machines
from tfctl.lab.host import give_to_caller, locked, mounts_under, remove_tree, unmount, write
from tfctl.lab.record import Record
from tfctl.lab.seed import known_hosts
from tfctl.lab.spec import Lab, Node, Progress

_AT_ONCE = 8
_LIMIT_S = 10.0


def on(found: Record, progress: Progress) -> None:
    """Folders, network, disks, processes; what is there is kept. Raises Unreachable for nodes that do not come up."""
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
    """Asks the nodes to shut down. False when some still run after ``limit`` seconds."""
    nspawns = [each for each in process.of_lab(lab) if each.nspawn]
    return process.end(nspawns, signal.SIGTERM, limit)


def cut(lab: str) -> None:
    """Nothing of the lab's nodes runs afterwards, also what outlived a systemd-nspawn that was killed."""
    process.end(process.of_lab(lab), signal.SIGKILL, _LIMIT_S)
    for machine in sorted(machines.traces(lab)):
        machines.clear(machine)


def clear(lab: str, progress: Progress) -> None:
    """Removes all that there is of a lab but its inventories, with or without a record."""
    if not halt(lab, _LIMIT_S):
        progress(f"{lab}: not all nodes shut down in {_LIMIT_S:.0f} s: pulling the plug")
    cut(lab)
    network.remove(lab)
    folder = spec.folder(lab)
    for point in mounts_under(folder):
        unmount(point)
    remove_tree(folder)


def has_traces(lab: str) -> bool:
    """On disk, among the processes or in the kernel."""
    return bool(spec.folder(lab).exists() or process.of_lab(lab) or machines.traces(lab) or network.has_traces(lab))


def _make_folders(lab: Lab) -> None:
    lab.shared.mkdir(exist_ok=True)
    machines.make_key(lab.key, f"tfctl-lab-{lab.name}")
    give_to_caller(lab.key)


def _prepare(nodes: Sequence[Node], progress: Progress) -> None:
    """A node that was prepared keeps all it has."""
    lab = nodes[0].lab
    if fresh := [node for node in nodes if not machines.is_prepared(node)]:
        operator_key, ways_out = lab.key.with_suffix(".pub").read_text(), egress.read(progress)
        _in_parallel(lambda node: machines.prepare(node, nodes, operator_key, ways_out), fresh)
    keys = [(node, node.host_key.with_suffix(".pub").read_text()) for node in nodes]
    write(lab.known_hosts, known_hosts(keys))


def _in_parallel(work: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(work, nodes))
