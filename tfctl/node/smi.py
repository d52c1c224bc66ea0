"""Queries to nvidia-smi and parsers for its answers.

The parsers are tested on output recorded from real cards with drivers 367 to 610 (tests/unit/node/nvidia_smi.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

#: The name comes last: only it may contain a comma. nvidia-smi before driver 450 rejects the MIG field.
FIELDS: tuple[str, ...] = ("index", "uuid", "pci.bus_id", "memory.total", "mig.mode.current", "name")
OLD_FIELDS = tuple(field for field in FIELDS if not field.startswith("mig."))
USERS = ("--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader")

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]{1,64}(?:/\d{1,3}/\d{1,3})?")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_MEMORY = re.compile(r"(\d{1,9}) MiB")
_LISTED = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)\s*")
#: Before driver 470 an instance's UUID is MIG-<that of its GPU>/<GPU instance>/<compute instance>.
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)\s*")
#: What nvidia-smi prints in place of a value if the card does not answer.
_SICK = re.compile(r"\[?ERR!\]?|\[(?:Unknown Error|GPU is lost|GPU requires reset)\]")
_CORRUPT_INFOROM = 14  # nvidia-smi(1); a warning: the card computes

_SEE = "look there: nvidia-smi; dmesg | grep -i -e nvrm -e xid"
_PROVISION = "install or mend the driver: tfctl provision INVENTORY"
#: After one card is lost, new processes often cannot initialise CUDA on the others either.
_LOST = "restart the host, and leave it out until it is well"
#: Error messages of nvidia-smi, and their remedies.
_COMPLAINTS = (
    (r"Driver/library version mismatch", "restart the host: the driver was replaced under the running kernel"),
    (r"couldn't communicate with the NVIDIA driver", _PROVISION),
    (r"couldn't find libnvidia-ml", _PROVISION),
    (r"Unable to determine the device handle", _LOST),
    (r"(?<!\[)GPU is lost|(?<!\[)GPU requires reset", _LOST),  # in brackets it is a value: see _SICK
    (r"No devices (?:were )?found", "look there: lspci -d 10de:; dmesg | grep -i nvrm"),
    (r"Failed to initialize NVML", _SEE),
)


class Sick(Exception):
    """nvidia-smi gave no complete answer. Holds the cause in a sentence, and the remedy."""

    def __init__(self, message: str, remedy: str = _LOST) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Card(NamedTuple):
    """A GPU. ``memory``: MiB, or 0 if unknown; ``mig``: MIG mode is enabled, with or without instances."""

    bus: str
    uuid: str
    name: str
    memory: int
    mig: bool


class Instance(NamedTuple):
    """A MIG instance. ``number``: its index in the GPU; ``profile``: such as 1g.10gb."""

    number: int
    uuid: str
    profile: str


class User(NamedTuple):
    """A process that uses a GPU. ``pid``: 0 if nvidia-smi does not tell."""

    pid: int
    name: str


def query(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments that list the cards."""
    return ("--query-gpu=" + ",".join(fields), "--format=csv,noheader")


def heed(status: int, text: str) -> None:
    """Raise Sick if nvidia-smi failed or reported an error."""
    for line in text.splitlines():
        for pattern, remedy in _COMPLAINTS:
            if re.search(pattern, line):
                raise Sick(f"nvidia-smi: {line.strip():.300}", remedy)
    if status not in (0, _CORRUPT_INFOROM):
        last = (text.strip().splitlines() or ["no message"])[-1]
        raise Sick(f"nvidia-smi ended with status {status}: {last:.300}", _SEE)


def cards(text: str, fields: tuple[str, ...] = FIELDS) -> list[Card]:
    """Parse --query-gpu, sorted by PCI address. Raises Sick if there is no card or if any card is not well."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",", len(fields) - 1)]
        if len(cells) == len(fields):
            found.append(_card(dict(zip(fields, cells)), line.strip()))
    if not found:
        said = next(filter(None, map(str.strip, text.splitlines())), "nothing")
        raise Sick(f"nvidia-smi lists no GPUs; it says: {said:.200}", _SEE)
    return sorted(found, key=lambda card: [int(part, 16) for part in re.split(r"[:.]", card.bus)])


def users(text: str) -> dict[str, list[User]]:
    """Parse --query-compute-apps: processes by GPU UUID, which for a MIG instance is that of the whole GPU. Includes
    processes without a name or pid."""
    found: dict[str, list[User]] = {}
    for line in text.splitlines():
        uuid, pid, name = ([cell.strip() for cell in line.split(",", 2)] + ["", ""])[:3]
        if _UUID.fullmatch(uuid):
            name = "".join(char if char.isprintable() else "?" for char in name[:200])
            user = User(int(pid) if pid.isdigit() else 0, name if name and name[0] != "[" else "unknown")
            found.setdefault(uuid, []).append(user)
    return found


def instances(text: str) -> dict[str, list[Instance]]:
    """Parse -L: MIG instances by their GPU's UUID."""
    found: dict[str, list[Instance]] = {}
    parent = ""
    for line in text.splitlines():
        card, instance = _LISTED.fullmatch(line), _INSTANCE.fullmatch(line)
        if card:
            parent = card.group(1)
        elif instance and parent and _UUID.fullmatch(instance.group(3)):
            profile, number, uuid = instance.groups()
            found.setdefault(parent, []).append(Instance(int(number), uuid, profile))
    return {uuid: sorted(listed) for uuid, listed in found.items()}


def places(text: str) -> Mapping[tuple[str, int], int]:
    """Parse -q: the number of the MIG instance that each process uses, by GPU UUID and pid. The text names the GPU
    instance and the compute instance of each MIG device and of each process."""
    found: dict[tuple[str, int], int] = {}
    uuid = section = index = ""
    ids: tuple[str, ...] = ()
    numbers: dict[tuple[str, ...], int] = {}
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(" : "))
        if not value:
            section = key
            if key.startswith("GPU ") and _BUS.fullmatch(key[4:]):
                uuid, numbers = "", {}
        elif key == "GPU UUID":
            uuid = value
        elif key.lower() == "gpu instance id":
            ids = (value,)
        elif key.lower() == "compute instance id":
            ids = (*ids[:1], value)
            if section == "MIG Device" and index.isdigit():
                numbers[ids] = int(index)
        elif key == "Index" and section == "MIG Device":
            index = value
        elif key == "Process ID" and value.isdigit() and ids in numbers:
            found[uuid, int(value)] = numbers[ids]
    return found


def _card(cells: dict[str, str], line: str) -> Card:
    if any(_SICK.fullmatch(cell) for cell in cells.values()):
        raise Sick(f"a GPU does not answer: nvidia-smi shows {line:.200}")
    uuid, bus = cells["uuid"], cells["pci.bus_id"]
    if not _UUID.fullmatch(uuid) or not _BUS.fullmatch(bus):
        raise Sick(f"nvidia-smi shows a GPU without UUID and PCI address: {line:.200}", _SEE)
    memory = _MEMORY.fullmatch(cells["memory.total"])  # [N/A] if the GPU shares the host's memory, as on GB10
    mig = cells.get("mig.mode.current") == "Enabled"  # [N/A] if the card has no MIG mode
    return Card(bus, uuid, cells["name"], int(memory.group(1)) if memory else 0, mig)
