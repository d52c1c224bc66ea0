"""Create and remove labs: `up` and `down`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfctl.errors import Busy, TfctlError
from tfctl.lab import image, inventory, network, power, record, settings, snapshot, spec
from tfctl.lab.host import locked, preflight, umask
from tfctl.lab.record import LabRecord
from tfctl.lab.spec import LabSpec, NodeDisk, Progress, check_name, choose_octet


def up(asked: LabSpec, progress: Progress) -> LabRecord:
    """Start the lab: keep running nodes, start stopped ones, create missing ones.

    Raises PreflightFailed, Busy (the lab exists with other settings), NotFound (the snapshot), BadFile (the inventory
    file), Unreachable (a node does not come up). After a failure the lab stays as it is: `up` continues from there,
    `down` removes it.
    """
    preflight()
    with umask(0o022), locked(f"lab-{asked.name}", progress):
        inventory.check(asked.inventory_path, asked.name)
        found = _place(asked, progress)
        inventory.save(asked.inventory_path, found.nodes)
        power.on(found, progress)
        progress(f"{asked.name}: ready")
    return found


def down(name: str, progress: Progress) -> None:
    """Shut the nodes down and remove the whole lab, with its disks and shared directory. Raises NotFound.

    It works from names and the kernel's state, so it also cleans up after a crash, with or without a record.
    """
    preflight()
    check_name("--name", name)
    with locked(f"lab-{name}", progress):
        if not power.has_traces(name):
            record.get(name)  # raises NotFound with the names of the existing labs
        progress(f"{name}: shutting down")
        _remove_inventories(name)
        power.clear(name, progress)
        with locked("labs", progress):
            snapshot.sweep()
            if not record.labs() and not network.any_bridge():
                settings.restore()
        progress(f"{name}: removed")


def _place(asked: LabSpec, progress: Progress) -> LabRecord:
    """Find or create the lab's record, before anything of the lab is in the kernel. Choose a network that is free."""
    inventories = (str(asked.inventory_path),)
    if old := record.find(asked.name):
        _check_same(old, asked)
        present = [path for path in old.inventories if Path(path).is_file()]
        found = replace(old, inventories=tuple(dict.fromkeys((*present, *inventories))))
        record.keep(found)
        return found
    if power.has_traces(asked.name):
        power.clear(asked.name, progress)
    disks = _bare_disks(asked, progress)
    with locked("labs", progress):
        if asked.snapshot:
            disks = snapshot.copy(asked.snapshot, asked)
        octet = choose_octet(asked.name, record.octets() | network.taken_octets())
        found = LabRecord(asked.name, octet, disks, asked.snapshot, inventories)
        record.keep(found)
    return found


def _bare_disks(asked: LabSpec, progress: Progress) -> tuple[NodeDisk, ...]:
    if asked.snapshot:
        return ()
    suites = asked.new_suites()
    images = {suite: image.ensure(image.recipe(suite), progress) for suite in dict.fromkeys(suites)}
    return tuple(NodeDisk(suite, images[suite]) for suite in suites)


def _check_same(old: LabRecord, asked: LabSpec) -> None:
    """Raise Busy if the request differs from the existing lab. Options left out always match."""
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
            f"lab {old.name!r} exists with {' '.join(has)}; requested: {' '.join(wanted)}",
            f"Remove it first (tfctl lab down --name {old.name}), or choose another --name.",
        )


def _remove_inventories(name: str) -> None:
    paths = {spec.default_inventory(name)}
    try:
        found = record.find(name)
        paths |= {Path(path) for path in found.inventories} if found else set()
    except TfctlError:  # a broken record must not prevent the removal
        pass
    for path in paths:
        if inventory.is_ours(path, name):
            path.unlink()
