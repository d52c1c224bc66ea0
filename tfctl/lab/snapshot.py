"""Snapshots: a lab's disks become layers below the disks of other labs, without copying them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from tfctl.errors import TfctlError, UsageError
from tfctl.lab import node as machines
from tfctl.lab import power, process, record, spec
from tfctl.lab.host import locked, preflight, remove_tree, run, umask
from tfctl.lab.record import LabRecord, Snapshot
from tfctl.lab.spec import LabSpec, NodeDisk, Progress, check_name

_HALT_LIMIT_S = 120.0


def take(lab: str, name: str, progress: Progress) -> Snapshot:
    """Save the lab's current state as ``name``, for `up` with LabSpec.snapshot. Replaces a snapshot of that name.

    Running nodes are halted and booted again. Raises NotFound, and TfctlError if a node does not halt.
    """
    preflight()
    check_name("SNAPSHOT", name)
    with umask(0o022), locked(f"lab-{lab}", progress):
        found = record.get(lab)
        ran = bool(process.of_lab(lab))
        progress(f"{lab}: halting the nodes")
        _halt(found)
        found, kept = _freeze(found, name, progress)
        if ran:
            power.on(found, progress)
        progress(f"snapshot {name}: saved")
    return kept


def forget(name: str, progress: Progress) -> None:
    """Delete a snapshot. Labs made from it are not affected. Raises NotFound."""
    preflight()
    check_name("SNAPSHOT", name)
    with locked("labs", progress):
        record.get_snapshot(name)
        record.forget_snapshot(name)
        sweep()


def copy(name: str, asked: LabSpec) -> tuple[NodeDisk, ...]:
    """Return as many disks of a snapshot as a new lab needs, and copy the contents of its shared directory.

    The caller holds the lock "labs" until the lab is recorded. Raises NotFound, UsageError.
    """
    kept = record.get_snapshot(name)
    has, wanted = len(kept.disks), asked.nodes or len(kept.disks)
    if wanted > has:
        raise UsageError(f"--nodes: {wanted} requested, but snapshot {name!r} has only {has}", f"Choose at most {has}.")
    _copy_tree(spec.layer(kept.shared), spec.folder(asked.name) / "shared")
    return kept.disks[:wanted]


def sweep() -> None:
    """Delete the layers that no lab or snapshot uses. If a record cannot be read, delete none, because it may use any.

    The caller holds the lock "labs".
    """
    try:
        used = record.layers()
    except TfctlError:
        return
    for folder in spec.layer("").glob("*"):
        if folder.name not in used:
            remove_tree(folder)


def _halt(found: LabRecord) -> None:
    if not all(machines.is_prepared(node) for node in found.nodes):
        raise TfctlError(f"lab {found.name!r} was never completed", f"tfctl lab up --name {found.name}")
    if not power.halt(found.name, _HALT_LIMIT_S):
        consoles = f"{found.lab.folder}/nodes/*/console.log"
        raise TfctlError(f"{found.name}: not all nodes halt within {_HALT_LIMIT_S:.0f} s", f"See {consoles}")
    power.cut(found.name)
    for node in found.nodes:
        machines.unmount_root(node)


def _freeze(found: LabRecord, name: str, progress: Progress) -> tuple[LabRecord, Snapshot]:
    """Return the lab, with new disks, and the snapshot, which shares their lower layers."""
    disks = record.with_layer(found.disks, tuple(_new_name() for _ in found.disks))
    frozen = replace(found, disks=disks)
    record.keep(frozen)
    for node in frozen.nodes:
        machines.settle(node)
    with locked("labs", progress):
        kept = Snapshot(name, disks, _new_name())
        _copy_tree(found.lab.shared, spec.layer(kept.shared))
        record.keep(kept)
        sweep()
    return frozen, kept


def _copy_tree(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    run(["cp", "-a", "--reflink=auto", str(source), str(target)], timeout=600)


def _new_name() -> str:
    return uuid.uuid4().hex[:8]
