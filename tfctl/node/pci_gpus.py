"""What the kernel knows of a host's NVIDIA GPUs: those on the PCI bus, their driver, and what its log says of them.

plugins/module_utils/pci_gpus.py is a link to this file, which therefore imports nothing of tfctl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

#: What the driver and PCI write about a GPU that does not work: Xid errors, of which 79 is "GPU has fallen off the bus"
#: (docs.nvidia.com/deploy/xid-errors), a failed initialisation (RmInitAdapter), a GPU that the driver does not support.
_COMPLAINT = re.compile(r"Xid|fallen off the bus|RmInitAdapter|rm_init_adapter|not supported|GSP|AER:|link down", re.I)
#: Arguments of journalctl for all that may be such a line, of this boot.
LOG = ("--dmesg", "--boot", "--output=cat", "--no-pager", "--lines=1000", "--grep=NVRM|nvidia|AER")
_NVIDIA = "0x10de"
#: What nvidia-smi says of a field of --query-gpu that it does not know; it names one at a time.
REJECTED = re.compile(r'Field "([^"]+)" is not a valid field')


class Device(NamedTuple):
    """A display controller of NVIDIA (PCI class 03: VGA, or 3D as on most compute cards).

    ``bus``: its address, such as 0000:0a:00.0. ``id``: four hexadecimal digits.
    """

    bus: str
    id: str


def devices(sys_bus_pci: Path) -> Iterator[Device]:
    """Yield the devices in the order of their addresses, without those that are given to virtual machines.

    ``sys_bus_pci``: /sys/bus/pci.
    """
    for path in sorted((sys_bus_pci / "devices").glob("*")):
        try:
            vendor, kind, product = ((path / name).read_text().strip() for name in ("vendor", "class", "device"))
            lent = (path / "driver").is_symlink() and (path / "driver").readlink().name == "vfio-pci"
        except OSError:
            continue
        if vendor == _NVIDIA and kind[:4] == "0x03" and not lent:
            yield Device(path.name, product[2:].rjust(4, "0"))


def loaded_driver(root: Path) -> str:
    """Return the version of the driver in the kernel, or "". ``root``: of the file tree."""
    for place, shape in (
        ("proc/driver/nvidia/version", r"Kernel Module(?: for \S+)?\s+(\d{3}\.\d+(?:\.\d+)?)"),
        ("sys/module/nvidia/version", r"(\S.*)"),
    ):
        try:
            match = re.search(shape, (root / place).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if match:
            return match.group(1)
    return ""


def is_vgpu(sys_bus_pci: Path, bus: str) -> bool:
    """Return whether a device has the capability of NVIDIA's virtual GPUs: a vendor-specific one (ID 9) that begins
    with "VF" (NVIDIA/k8s-device-plugin, internal/vgpu). Only root can read a device's configuration space.
    """
    try:
        space = (sys_bus_pci / "devices" / bus / "config").read_bytes()
    except OSError:
        return False
    place, left = (space[0x34] if len(space) > 0x34 else 0), 48
    while place >= 0x40 and place + 5 <= len(space) and left:
        if space[place] == 0x09 and space[place + 3 : place + 5] == b"VF":
            return True
        place, left = space[place + 1], left - 1
    return False


def bus_of(shown: str) -> str:
    """Return the address that nvidia-smi shows, such as 00000000:0A:00.0, as the kernel writes it."""
    domain, _, rest = shown.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def missing(on_bus: Sequence[str], shown: Sequence[str]) -> list[str]:
    """Return the addresses of the GPUs that nvidia-smi does not show. ``shown``: as it shows the others."""
    there = {*map(bus_of, shown)}
    return [bus for bus in on_bus if bus not in there]


def said_of(bus: str, log: str) -> str:
    """Return the last line of the kernel's log that says what is wrong with the GPU at this address, or "".

    The driver writes most addresses without the number of the function.
    """
    card = re.compile(re.escape(bus.rpartition(".")[0]) + r"(?![0-9a-f])", re.IGNORECASE)
    lines = [line.strip() for line in log.splitlines() if card.search(line) and _COMPLAINT.search(line)]
    return lines[-1][:300] if lines else ""
