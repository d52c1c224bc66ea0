"""Records of labs and snapshots on disk: their disks, networks and inventories."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tfctl.errors import NotFound, TfctlError
from tfctl.lab.host import write
from tfctl.lab.spec import STATE, Lab, LabNode, NodeDisk, folder

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class LabRecord:
    """A lab. ``disks``: one per node, in order; ``snapshot``: the one that the lab was made from."""

    name: str
    octet: int
    disks: tuple[NodeDisk, ...]
    snapshot: str | None = None
    inventories: tuple[str, ...] = ()

    @property
    def lab(self) -> Lab:
        return Lab(self.name, self.octet)

    @property
    def nodes(self) -> tuple[LabNode, ...]:
        return tuple(LabNode(self.lab, index, disk) for index, disk in enumerate(self.disks, start=1))


@dataclass(frozen=True)
class Snapshot:
    """A saved lab. ``shared``: the layer that holds a copy of its shared directory."""

    name: str
    disks: tuple[NodeDisk, ...]
    shared: str


def labs() -> list[str]:
    """Return the labs that have a directory, including those whose `up` was interrupted."""
    return sorted(entry.name for entry in (STATE / "labs").glob("*"))


def snapshots() -> list[str]:
    return sorted(file.stem for file in (STATE / "snapshots").glob("*.json"))


def find(name: str) -> LabRecord | None:
    """Return the lab's record, or None. Raises TfctlError if it cannot be read."""
    return _read(_lab_file(name), _record, f"tfctl lab down --name {name}")


def get(name: str) -> LabRecord:
    """Return the lab's record. Raises NotFound."""
    found = find(name)
    if found is None:
        listed = ", ".join(labs()) or "none"
        raise NotFound(
            f"no lab is called {name!r}", f"Existing labs: {listed}. To create it: tfctl lab up --name {name}"
        )
    return found


def get_snapshot(name: str) -> Snapshot:
    """Return the snapshot's record. Raises NotFound."""
    found = _read(_snapshot_file(name), _snapshot, f"rm {_snapshot_file(name)}")
    if found is None:
        listed = ", ".join(snapshots()) or "none"
        raise NotFound(
            f"no snapshot is called {name!r}",
            f"Existing snapshots: {listed}. To create it: tfctl lab snapshot {name}",
        )
    return found


def keep(record: LabRecord | Snapshot) -> None:
    file = _lab_file(record.name) if isinstance(record, LabRecord) else _snapshot_file(record.name)
    write(file, json.dumps(asdict(record), indent=2) + "\n")


def forget_snapshot(name: str) -> None:
    """Delete a snapshot's record. `sweep` removes its layers."""
    _snapshot_file(name).unlink(missing_ok=True)


def octets() -> set[int]:
    """Return the octets that labs use, running or not."""
    return {found.octet for name in labs() if (found := _readable(name))}


def layers() -> set[str]:
    """Return the layers that any lab or snapshot uses. Raises TfctlError if a record cannot be read."""
    named: set[str] = set()
    for disks in _all_disks():
        named |= {layer for disk in disks for layer in disk.layers}
    return named | {get_snapshot(name).shared for name in snapshots()}


def with_layer(disks: tuple[NodeDisk, ...], names: tuple[str, ...]) -> tuple[NodeDisk, ...]:
    """Return the disks, each with one of the layers ``names`` added on top."""
    return tuple(replace(disk, layers=(name, *disk.layers)) for disk, name in zip(disks, names, strict=True))


def _all_disks() -> Iterator[tuple[NodeDisk, ...]]:
    for name in labs():
        if found := find(name):
            yield found.disks
    for name in snapshots():
        yield get_snapshot(name).disks


def _readable(name: str) -> LabRecord | None:
    try:
        return find(name)
    except TfctlError:
        return None


def _read(file: Path, make: Callable[[dict[str, Any]], Entry], remedy: str) -> Entry | None:
    if not file.is_file():
        return None
    try:
        return make(json.loads(file.read_text()))
    except (ValueError, TypeError, KeyError) as fault:
        raise TfctlError(f"{file}: cannot be read ({fault})", remedy) from fault


def _record(fields: dict[str, Any]) -> LabRecord:
    return LabRecord(**{**fields, "disks": _disks(fields), "inventories": tuple(fields["inventories"])})


def _snapshot(fields: dict[str, Any]) -> Snapshot:
    return Snapshot(**{**fields, "disks": _disks(fields)})


def _disks(fields: dict[str, Any]) -> tuple[NodeDisk, ...]:
    return tuple(NodeDisk(**{**disk, "layers": tuple(disk["layers"])}) for disk in fields["disks"])


def _lab_file(name: str) -> Path:
    return folder(name) / "lab.json"


def _snapshot_file(name: str) -> Path:
    return STATE / "snapshots" / f"{name}.json"
