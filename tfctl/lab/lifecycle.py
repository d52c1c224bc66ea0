"""`up`, `down` and `snapshot`."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tfctl.errors import Busy, TfctlError, UsageError
from tfctl.lab import cgroup, egress, image, inventory, network, process, ready, record, settings, spec
from tfctl.lab import node as machines
from tfctl.lab.host import give_to_caller, locked, mounts_under, preflight, remove_tree, run, unmount, write
from tfctl.lab.record import Record, Snapshot
from tfctl.lab.seed import known_hosts
from tfctl.lab.spec import Disk, LabSpec, Node, Progress, check_name, choose_octet

_AT_ONCE = 8
_DOWN_LIMIT_S = 10.0
_HALT_LIMIT_S = 120.0


def up(asked: LabSpec, progress: Progress) -> Record:
    """Makes the lab what is asked: nodes that run are kept, those that do not are started, missing ones made.

    Raises PreflightFailed, Busy (the lab is another), NotFound (the snapshot), BadFile (the inventory's place),
    Unreachable (a node does not come up). After a failure the lab stays as far as it came; `up` goes on from there,
    `down` removes it.
    """
    preflight()
    with _umask(0o022), locked(f"lab-{asked.name}", progress):
        inventory.check(asked.inventory_path, asked.name)
        found = _place(asked, progress)
        inventory.save(asked.inventory_path, found.nodes)
        _boot(found, progress)
        progress(f"{asked.name}: ready")
    return found


def down(name: str, progress: Progress) -> None:
    """Shuts the nodes down and removes all of the lab, its disks and shared directory too. Raises NotFound.

    Works from names and from what the kernel shows, so it also cleans up after a crash, with or without a record.
    """
    preflight()
    check_name("--name", name)
    with locked(f"lab-{name}", progress):
        if not (spec.folder(name).exists() or _has_traces(name)):
            record.get(name)  # raises, with the names there are
        progress(f"{name}: shutting down")
        _remove_inventories(name)
        _clear(name, progress)
        with locked("labs", progress):
            _sweep_layers()
            if not record.labs() and not network.any_bridge():
                settings.restore()
        progress(f"{name}: down")


def snapshot(lab: str, name: str, progress: Progress) -> Snapshot:
    """Keeps the lab as it is under ``name``, for `up` with LabSpec.snapshot; one of that name is replaced.

    Nodes that run are halted for it and booted again. What they have written is not copied: it becomes a layer below
    the disks of this lab and of those that come from it. Raises NotFound; TfctlError when a node does not halt.
    """
    preflight()
    check_name("SNAPSHOT", name)
    with _umask(0o022), locked(f"lab-{lab}", progress):
        found = record.get(lab)
        ran = process.of_lab(lab)
        progress(f"{lab}: halting the nodes")
        if not process.end([each for each in ran if each.nspawn], signal.SIGTERM, _HALT_LIMIT_S):
            raise TfctlError(
                f"{lab}: not all nodes halt within {_HALT_LIMIT_S:.0f} s", f"See {found.lab.folder}/nodes/*/console.log"
            )
        _cut_power(lab)
        for node in found.nodes:
            machines.unmount_root(node)
        found, kept = _freeze(found, name, progress)
        if ran:
            _boot(found, progress)
        progress(f"snapshot {name}: kept")
    return kept


def forget(name: str, progress: Progress) -> None:
    """Removes a snapshot; labs that were made from it stay as they are. Raises NotFound."""
    preflight()
    check_name("SNAPSHOT", name)
    with locked("labs", progress):
        record.get_snapshot(name)
        record.forget_snapshot(name)
        _sweep_layers()


def _place(asked: LabSpec, progress: Progress) -> Record:
    """The lab's record, kept before the kernel knows anything of it. Its network is nobody else's."""
    inventories = (str(asked.inventory_path),)
    if old := record.find(asked.name):
        _check_same(old, asked)
        present = [path for path in old.inventories if Path(path).is_file()]
        found = replace(old, inventories=tuple(dict.fromkeys((*present, *inventories))))
        record.keep(found)
        return found
    if _has_traces(asked.name) or spec.folder(asked.name).exists():
        _clear(asked.name, progress)
    disks = _bare_disks(asked, progress)
    with locked("labs", progress):
        if asked.snapshot:
            disks = _take_over(asked.snapshot, asked)
        octet = choose_octet(asked.name, record.octets() | network.taken_octets())
        found = Record(asked.name, octet, disks, asked.snapshot, inventories)
        record.keep(found)
    return found


def _bare_disks(asked: LabSpec, progress: Progress) -> tuple[Disk, ...]:
    if asked.snapshot:
        return ()
    suites = asked.new_suites()
    images = {suite: image.ensure(image.recipe(suite), progress) for suite in dict.fromkeys(suites)}
    return tuple(Disk(suite, images[suite]) for suite in suites)


def _take_over(snapshot: str, asked: LabSpec) -> tuple[Disk, ...]:
    """The disks of a snapshot, as many as are asked for; what was in its shared directory is copied."""
    kept = record.get_snapshot(snapshot)
    has, wanted = len(kept.disks), asked.nodes or len(kept.disks)
    if wanted > has:
        raise UsageError(f"--nodes: {wanted} asked, snapshot {kept.name!r} has {has}", "Ask for no more than it has.")
    _copy_tree(spec.layer(kept.shared), spec.folder(asked.name) / "shared")
    return kept.disks[:wanted]


def _check_same(old: Record, asked: LabSpec) -> None:
    """What is asked for must be what is there; what is left out is."""
    has, wanted = [f"{len(old.disks)} nodes"], [f"{asked.nodes} nodes"] if asked.nodes else []
    suites = tuple(disk.suite for disk in old.disks)
    if asked.suites:
        has.append(f"of {','.join(dict.fromkeys(suites))}")
        wanted.append(f"of {','.join(dict.fromkeys(asked.suites))}")
    if asked.snapshot:
        has.append(f"from {old.snapshot or 'nothing'}")
        wanted.append(f"from {asked.snapshot}")
    if not set(wanted) <= set(has):
        raise Busy(
            f"lab {old.name!r} is there with {' '.join(has)}; asked: {' '.join(wanted)}",
            f"tfctl lab down --name {old.name}, then up again; or another --name beside it",
        )


def _boot(found: Record, progress: Progress) -> None:
    """Everything but the record: folders, network, disks, processes. What is there is kept."""
    nodes = found.nodes
    _make_folders(found)
    with locked("labs", progress):
        settings.ensure()
    network.ensure(found.lab)
    _prepare(nodes, progress)
    running = {each.machine for each in process.of_lab(found.name)}
    dead = [node for node in nodes if node.machine not in running]
    progress(f"{found.name}: starting {len(dead)} of {len(nodes)} nodes" if dead else f"{found.name}: all nodes run")
    _in_parallel(machines.start, dead)
    ready.wait(nodes, progress)


def _make_folders(found: Record) -> None:
    lab = found.lab
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


def _freeze(found: Record, name: str, progress: Progress) -> tuple[Record, Snapshot]:
    """What the halted nodes have written becomes a layer of their disks; so `found` comes back with other disks."""
    disks = record.with_layer(found.disks, tuple(_new_name() for _ in found.disks))
    frozen = replace(found, disks=disks)
    record.keep(frozen)
    for node in frozen.nodes:
        machines.settle(node)
    with locked("labs", progress):
        shared = _new_name()
        _copy_tree(found.lab.shared, spec.layer(shared))
        kept = Snapshot(name, disks, shared)
        record.keep(kept)
        _sweep_layers()
    return frozen, kept


def _copy_tree(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    run(["cp", "-a", "--reflink=auto", str(source), str(target)], timeout=600)


def _new_name() -> str:
    return uuid.uuid4().hex[:8]


def _sweep_layers() -> None:
    """Those that no lab and no snapshot rests on; none while a record cannot be read, for it may name any."""
    try:
        used = record.layers()
    except TfctlError:
        return
    for folder in spec.layer("").glob("*"):
        if folder.name not in used:
            remove_tree(folder)


def _has_traces(name: str) -> bool:
    return bool(process.of_lab(name) or cgroup.machines(name)) or network.has_traces(name)


def _clear(name: str, progress: Progress) -> None:
    """All that there is of a lab, but its inventories."""
    running = process.of_lab(name)
    if not process.end([each for each in running if each.nspawn], signal.SIGTERM, _DOWN_LIMIT_S):
        progress(f"{name}: not all nodes shut down in {_DOWN_LIMIT_S:.0f} s: pulling the plug")
    _cut_power(name, {each.machine for each in running})
    network.remove(name)
    folder = spec.folder(name)
    for point in mounts_under(folder):
        unmount(point)
    remove_tree(folder)


def _cut_power(name: str, also: Set[str] = frozenset()) -> None:
    """Nothing of the lab's nodes runs afterwards."""
    running = process.of_lab(name)
    process.end(running, signal.SIGKILL, _DOWN_LIMIT_S)
    for machine in sorted({*also} | {each.machine for each in running} | cgroup.machines(name)):
        machines.clear(machine)


def _remove_inventories(name: str) -> None:
    paths = {spec.default_inventory(name)}
    try:
        found = record.find(name)
        paths |= {Path(path) for path in found.inventories} if found else set()
    except TfctlError:  # a broken record must not keep the lab alive
        pass
    for path in paths:
        if inventory.is_ours(path, name):
            path.unlink()


def _in_parallel(work: Callable[[Node], None], nodes: Sequence[Node]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(work, nodes))


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
