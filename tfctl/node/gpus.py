"""The NVIDIA GPUs of this host according to nvidia-smi: those that a task can be given, and the state of the cards.

A GPU in MIG mode is not a device for tasks; its instances are, each with its own UUID. The parsers are tested on output
recorded from real cards with drivers 367 to 610 (tests/unit/node/nvidia_smi.yaml).
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import gpu_defects, names, pci_gpus
from .exits import Exit
from .session import RequestRefused
from .system import System, run
from .wire import Card, Error, Gpu, MissingGpu

#: The name comes last: only it may contain a comma. nvidia-smi before driver 450 rejects the MIG field, and others.
CARD_FIELDS: tuple[str, ...] = (
    "index", "uuid", "pci.bus_id", "memory.total", "mig.mode.current", *gpu_defects.DEFECT_FIELDS, "name"
)  # fmt: skip
#: The kinds of fields that old drivers do not have.
_OPTIONAL = (
    "mig.", "remapped_rows.", "retired_pages.", "clocks_event_reasons.", "clocks_throttle_reasons.",
    "ecc.errors.uncorrected.aggregate.sram.",
)  # fmt: skip
USERS_QUERY = ("--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader")
#: nvidia-smi reports a field that the card does not have as [N/A]. One that it does not know, it rejects: old drivers
#: lack fields that are not asked for here.
_SETTINGS = (
    "uuid", "persistence_mode", "ecc.mode.current", "clocks.current.sm", "clocks.max.sm", "temperature.gpu",
    "power.draw", "mig.mode.current", *gpu_defects.NOTICE_FIELDS, "name",
)  # fmt: skip

_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]{1,64}(?:/\d{1,3}/\d{1,3})?")
_BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
_READING = re.compile(r"(\d{1,9})(?:\.\d+)?(?: (?:MHz|W|C))?")
_MEMORY = re.compile(r"(\d{1,9}) MiB")
_LISTED = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)\s*")
#: Before driver 470 an instance's UUID is MIG-<that of its GPU>/<GPU instance>/<compute instance>.
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)\s*")
#: What nvidia-smi prints in place of a value if the card does not answer.
_SICK = re.compile(r"\[?ERR!\]?|\[(?:Unknown Error|GPU is lost|GPU requires reset)\]")
_CORRUPT_INFOROM = 14  # nvidia-smi(1); a warning: the card computes

_SEE = "run on the host: nvidia-smi; dmesg | grep -i -e nvrm -e xid"
_PROVISION = "install or repair the driver: tfctl provision INVENTORY"
#: After one card is lost, new processes often cannot initialise CUDA on the others either.
_LOST = "restart the host. If the error returns, remove the host from the inventory until the card is repaired"
#: Error messages of nvidia-smi, and their remedies.
_COMPLAINTS = (
    (r"Driver/library version mismatch", "restart the host: the driver was replaced under the running kernel"),
    (r"couldn't communicate with the NVIDIA driver", _PROVISION),
    (r"couldn't find libnvidia-ml", _PROVISION),
    (r"Unable to determine the device handle", _LOST),
    (r"(?<!\[)GPU is lost|(?<!\[)GPU requires reset", _LOST),  # in brackets it is a value: see _SICK
    (r"No devices (?:were )?found", "run on the host: lspci -d 10de:; dmesg | grep -i nvrm"),
    (r"Failed to initialize NVML", _SEE),
)


class GpuFault(Exception):
    """nvidia-smi gave no complete answer. Holds the cause in a sentence, and the remedy."""

    def __init__(self, message: str, remedy: str = _LOST) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class ListedGpu(NamedTuple):
    """A GPU as nvidia-smi lists it. ``memory``: MiB, or 0 if unknown. ``mig``: MIG mode is enabled, even without
    instances. ``defect``: why it must not be used, or ""."""

    bus: str
    uuid: str
    name: str
    memory: int
    mig: bool
    defect: str = ""


class Instance(NamedTuple):
    """A MIG instance. ``number``: its index in the GPU; ``profile``: such as 1g.10gb."""

    number: int
    uuid: str
    profile: str


class GpuUser(NamedTuple):
    """A process that uses a GPU. ``pid``: 0 if nvidia-smi does not report it."""

    pid: int
    name: str


class Seen(NamedTuple):
    """The devices; ``trouble`` says why GPUs that are present cannot be listed. ``cards``: how many nvidia-smi lists,
    or None; ``missing``: those on the PCI bus that it does not list."""

    devices: tuple[Gpu, ...] = ()
    trouble: Error | None = None
    cards: int | None = None
    missing: tuple[MissingGpu, ...] = ()


def look(system: System) -> Seen:
    """Return all devices; each ``holder`` names a process that uses the device. Return none if nvidia-smi is missing,
    or if it fails and no NVIDIA card is on the PCI bus."""
    if not os.access(system.nvidia_smi[0], os.X_OK):
        return Seen(cards=0)
    on_bus = [device.bus for device in pci_gpus.devices(system.at("/sys/bus/pci"))]
    try:
        cards = _cards(system)
        driver = pci_gpus.loaded_driver(system.at("/")) or None
        devices = tuple(device._replace(driver=driver) for device in _devices(system, cards))
        return Seen(devices, None, len(cards), _missing(system, on_bus, cards))
    except GpuFault as fault:
        return Seen((), Error(Exit.PREFLIGHT, fault.message, fault.remedy)) if on_bus else Seen(cards=0)


def cards(system: System) -> tuple[Card, ...]:
    """Return the settings and readings of each card, in the order of nvidia-smi; none if it gives no complete answer.

    Only `tfctl nodes` asks for them.
    """
    try:
        fields, status, text = ask_cards(system, _SETTINGS)
        if status != 0:
            return ()
        found = [cells for cells, _ in rows(text, fields)]
        divided = any(_enabled(cells.get("mig.mode.current", "")) for cells in found)
        layouts = parse_instances(ask(system, ("-L",))[1]) if divided else {}
    except GpuFault:
        return ()
    return tuple(_settings(cells, layouts.get(cells["uuid"], ())) for cells in found)


def _missing(system: System, on_bus: Sequence[str], cards: Sequence[ListedGpu]) -> tuple[MissingGpu, ...]:
    """Return the GPUs that nvidia-smi does not list. The kernel's log is read only if there are any.

    A container sees the bus of its host, and only the GPUs that it was given.
    """
    lost = pci_gpus.missing(on_bus, [card.bus for card in cards])
    if not lost or system.at("/run/systemd/container").exists():
        return ()
    try:
        log = run([*system.journalctl, *pci_gpus.LOG], system.nvidia_smi_timeout).output
    except RequestRefused:
        log = ""
    return tuple(MissingGpu(bus, pci_gpus.said_of(bus, log)) for bus in lost)


def _cards(system: System) -> list[ListedGpu]:
    fields, status, text = ask_cards(system, CARD_FIELDS)
    raise_complaint(status, text)
    return parse_cards(text, fields)


def _devices(system: System, cards: Sequence[ListedGpu]) -> list[Gpu]:
    users = parse_users(ask(system, USERS_QUERY)[1])
    divided = [card for card in cards if card.mig]
    listed = parse_instances(ask(system, ("-L",))[1]) if divided else {}
    places = parse_places(ask(system, ("-q",))[1]) if any(card.uuid in users for card in divided) else {}
    found: list[Gpu] = []
    for card in cards:
        computing = users.get(card.uuid, [])
        if not card.mig:
            found.append(_device(len(found), card.uuid, card.name, card.memory, computing, card.defect))
        for one in listed.get(card.uuid, ()) if card.mig else ():
            # A process whose instance is unknown may be on any of them.
            here = [user for user in computing if places.get((card.uuid, user.pid), one.number) == one.number]
            name, size = f"{card.name} MIG {one.profile}", _memory(one.profile)
            found.append(_device(len(found), one.uuid, name, size, here, card.defect))
    return found


def _device(number: int, uuid: str, name: str, memory: int, users: Sequence[GpuUser], defect: str) -> Gpu:
    """Return a device. A defect holds it, so that no task gets it, also from an older client."""
    holder = _who(users[0]) if users else f"a defect ({defect})" if defect else ""
    return Gpu(uuid, number, name, memory, holder, defect=defect or None)


def _who(user: GpuUser) -> str:
    """Describe a process, such as ``pid 812 (python) of alice``."""
    try:
        account = pwd.getpwuid(Path(f"/proc/{user.pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return f"pid {user.pid or '?'} ({user.name})"
    return f"pid {user.pid} ({user.name}) of {account}"


def _memory(profile: str) -> int:
    """Return the MiB that a MIG profile such as 1g.10gb names, or 0."""
    size = re.search(r"(\d{1,4})gb", profile)
    return int(size.group(1)) * 1024 if size else 0


def ask(system: System, words: tuple[str, ...]) -> tuple[int, str]:
    """Run nvidia-smi and return its exit status and all output. Raises GpuFault."""
    try:
        done = run([*system.nvidia_smi, *words], system.nvidia_smi_timeout)
    except RequestRefused as refused:  # a sick driver hangs it
        raise GpuFault(str(refused)) from None
    return done.status, f"{done.output}\n{done.errors}"


def ask_cards(system: System, fields: tuple[str, ...]) -> tuple[tuple[str, ...], int, str]:
    """Ask for these fields of each card. Return those that nvidia-smi knows, its exit status and its output. Raises
    GpuFault."""
    status, text = ask(system, cards_query(fields))
    for _ in _OPTIONAL:  # it rejects one field at a time; those of one kind came with the same driver
        rejected = pci_gpus.REJECTED.search(text)
        if rejected and rejected.group(1).startswith(_OPTIONAL):
            kind = next(kind for kind in _OPTIONAL if rejected.group(1).startswith(kind))
            fields = tuple(field for field in fields if not field.startswith(kind))
            status, text = ask(system, cards_query(fields))
    return fields, status, text


def cards_query(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments that list the cards."""
    return ("--query-gpu=" + ",".join(fields), "--format=csv,noheader")


def raise_complaint(status: int, text: str) -> None:
    """Raise GpuFault if nvidia-smi failed or reported an error."""
    for line in text.splitlines():
        for pattern, remedy in _COMPLAINTS:
            if re.search(pattern, line):
                raise GpuFault(f"nvidia-smi: {line.strip():.300}", remedy)
    if status not in (0, _CORRUPT_INFOROM):
        last = (text.strip().splitlines() or ["no message"])[-1]
        raise GpuFault(f"nvidia-smi ended with status {status}: {last:.300}", _SEE)


def parse_cards(text: str, fields: tuple[str, ...] = CARD_FIELDS) -> list[ListedGpu]:
    """Parse --query-gpu, sorted by PCI address. Raises GpuFault if there is no card or if any card is not well."""
    found = [_card(cells, line) for cells, line in rows(text, fields)]
    if not found:
        said = next(filter(None, map(str.strip, text.splitlines())), "nothing")
        raise GpuFault(f"nvidia-smi lists no GPUs; it says: {said:.200}", _SEE)
    return sorted(found, key=lambda card: [int(part, 16) for part in re.split(r"[:.]", card.bus)])


def rows(text: str, fields: tuple[str, ...]) -> Iterator[tuple[dict[str, str], str]]:
    """Yield the cells of each card, by field, and its line. The name of a card may contain a comma, so it is last."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",", len(fields) - 1)]
        if len(cells) == len(fields):
            yield dict(zip(fields, cells)), line.strip()


def parse_users(text: str) -> dict[str, list[GpuUser]]:
    """Parse --query-compute-apps: processes by GPU UUID, which for a MIG instance is that of the whole GPU. Includes
    processes without a name or pid."""
    found: dict[str, list[GpuUser]] = {}
    for line in text.splitlines():
        uuid, pid, name = ([cell.strip() for cell in line.split(",", 2)] + ["", ""])[:3]
        if _UUID.fullmatch(uuid):
            name = names.printable(name[:200])
            user = GpuUser(int(pid) if pid.isdigit() else 0, name if name and name[0] != "[" else "unknown")
            found.setdefault(uuid, []).append(user)
    return found


def parse_instances(text: str) -> dict[str, list[Instance]]:
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


def parse_places(text: str) -> Mapping[tuple[str, int], int]:
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


def _card(cells: dict[str, str], line: str) -> ListedGpu:
    if any(_SICK.fullmatch(cell) for cell in cells.values()):
        raise GpuFault(f"a GPU does not answer: nvidia-smi shows {line:.200}")
    uuid, bus = cells["uuid"], cells["pci.bus_id"]
    if not _UUID.fullmatch(uuid) or not _BUS.fullmatch(bus):
        raise GpuFault(f"nvidia-smi shows a GPU without UUID and PCI address: {line:.200}", _SEE)
    memory = _MEMORY.fullmatch(cells["memory.total"])  # [N/A] if the GPU shares the host's memory, as on GB10
    mig = cells.get("mig.mode.current") == "Enabled"  # [N/A] if the card has no MIG mode
    size = int(memory.group(1)) if memory else 0
    return ListedGpu(bus, uuid, cells["name"], size, mig, gpu_defects.defect_of(cells))


def _settings(cells: Mapping[str, str], instances: Sequence[Instance]) -> Card:
    divided = _enabled(cells.get("mig.mode.current", ""))
    return Card(
        uuid=cells["uuid"],
        name=cells["name"],
        persistence=_enabled(cells["persistence_mode"]),
        ecc=_enabled(cells["ecc.mode.current"]),
        ecc_errors=_reading(cells["ecc.errors.uncorrected.volatile.total"]),
        mhz=_reading(cells["clocks.current.sm"]),
        max_mhz=_reading(cells["clocks.max.sm"]),
        celsius=_reading(cells["temperature.gpu"]),
        watts=_reading(cells["power.draw"]),
        mig=tuple(instance.profile for instance in instances) if divided else None,
        notices=gpu_defects.notices_of(cells),
    )


def _enabled(text: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(text)


def _reading(text: str) -> int | None:
    match = _READING.fullmatch(text)
    return int(match.group(1)) if match else None
