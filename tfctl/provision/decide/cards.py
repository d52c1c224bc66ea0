"""NVIDIA's GPUs by PCI id: generation, compute capability, and the driver that a generation requires.

The ids up to Ada and Hopper are those of pci.ids (2023-04-11); Blackwell's are general knowledge, not looked up. Branch
limits: NVIDIA's driver installation guide and its notes on the open kernel modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfctl.model.stacks.nvidia import GpuSupport
from tfctl.provision.decide.facts import GpuFacts


@dataclass(frozen=True)
class GpuModel:
    """A GPU. ``generation`` and compute ``capability`` are "" if unknown."""

    name: str
    generation: str
    capability: str


@dataclass(frozen=True)
class Generation:
    """Driver branches that serve it (None: no end known), and which kernel modules: proprietary, either or open.

    For several cards together, ``modules`` is None if no single kernel module serves them.
    """

    oldest: int
    newest: int | None
    modules: str | None


GENERATIONS = {
    "Tesla": Generation(100, 340, "proprietary"),
    "Fermi": Generation(270, 390, "proprietary"),
    "Kepler": Generation(304, 470, "proprietary"),
    "Maxwell": Generation(340, 580, "proprietary"),
    "Pascal": Generation(375, 580, "proprietary"),
    "Volta": Generation(384, 580, "proprietary"),
    "Turing": Generation(410, None, "either"),
    "Ampere": Generation(450, None, "either"),
    "Ada": Generation(525, None, "either"),
    "Hopper": Generation(525, None, "either"),
    "Grace Hopper": Generation(535, None, "open"),
    "Blackwell": Generation(570, None, "open"),
}

# First id, last id, generation, compute capability. Narrower ranges come first.
_RANGES = (
    (0x0040, 0x06BF, "Tesla", "1.0"),
    (0x06C0, 0x06DF, "Fermi", "2.0"),
    (0x06E0, 0x0DBF, "Tesla", "1.0"),
    (0x0DC0, 0x0F0F, "Fermi", "2.1"),
    (0x0FC0, 0x0FFF, "Kepler", "3.0"),
    (0x102D, 0x102D, "Kepler", "3.7"),
    (0x1001, 0x103F, "Kepler", "3.5"),
    (0x1040, 0x109F, "Fermi", "2.0"),
    (0x10C0, 0x10DF, "Tesla", "1.2"),
    (0x1140, 0x1140, "Fermi", "2.1"),
    (0x1180, 0x11FF, "Kepler", "3.0"),
    (0x1200, 0x127F, "Fermi", "2.1"),
    (0x1280, 0x12FF, "Kepler", "3.5"),
    (0x1340, 0x13BF, "Maxwell", "5.0"),
    (0x13C0, 0x143F, "Maxwell", "5.2"),
    (0x15F0, 0x15FF, "Pascal", "6.0"),
    (0x1600, 0x167F, "Maxwell", "5.2"),
    (0x1720, 0x172F, "Pascal", "6.0"),
    (0x1740, 0x17BF, "Maxwell", "5.0"),
    (0x17C0, 0x17FF, "Maxwell", "5.2"),
    (0x1B00, 0x1D7F, "Pascal", "6.1"),
    (0x1D80, 0x1DFF, "Volta", "7.0"),
    (0x1E00, 0x1FFF, "Turing", "7.5"),
    (0x2080, 0x20FF, "Ampere", "8.0"),
    (0x2180, 0x21FF, "Turing", "7.5"),
    (0x2200, 0x22FF, "Ampere", "8.6"),
    (0x2342, 0x2342, "Grace Hopper", "9.0"),
    (0x2348, 0x2348, "Grace Hopper", "9.0"),
    (0x2300, 0x23FF, "Hopper", "9.0"),
    (0x2400, 0x25FF, "Ampere", "8.6"),
    (0x2680, 0x28FF, "Ada", "8.9"),
    (0x2900, 0x29FF, "Blackwell", "10.0"),
    (0x2E00, 0x2E3F, "Blackwell", "12.1"),
    (0x2B80, 0x2FFF, "Blackwell", "12.0"),
    (0x3180, 0x31FF, "Blackwell", "10.3"),
)

# Model names for messages.
_MODELS = {
    0x1021: "Tesla K20X", 0x1023: "Tesla K40m", 0x102D: "Tesla K80", 0x1288: "GeForce GT 720", 0x128B: "GeForce GT 710",
    0x13F2: "Tesla M60", 0x15F8: "Tesla P100 PCIe 16GB", 0x15F9: "Tesla P100 SXM2 16GB", 0x1B06: "GeForce GTX 1080 Ti",
    0x1B38: "Tesla P40", 0x1BB3: "Tesla P4", 0x1DB1: "Tesla V100 SXM2 16GB", 0x1DB4: "Tesla V100 PCIe 16GB",
    0x1DB5: "Tesla V100 SXM2 32GB", 0x1DB6: "Tesla V100 PCIe 32GB", 0x1E04: "GeForce RTX 2080 Ti", 0x1EB8: "Tesla T4",
    0x20B0: "A100 SXM4 40GB", 0x20B2: "A100 SXM4 80GB", 0x20B5: "A100 PCIe 80GB", 0x20B7: "A30",
    0x20F1: "A100 PCIe 40GB",
    0x2204: "GeForce RTX 3090", 0x2235: "A40", 0x2236: "A10", 0x2330: "H100 SXM5 80GB", 0x2331: "H100 PCIe",
    0x2335: "H200 SXM 141GB", 0x2342: "GH200 120GB", 0x2684: "GeForce RTX 4090", 0x26B5: "L40", 0x26B9: "L40S",
    0x27B8: "L4", 0x28A0: "GeForce RTX 4060 Laptop", 0x2901: "B200", 0x2941: "GB200", 0x2B85: "GeForce RTX 5090",
}  # fmt: skip


def identify(device: int) -> GpuModel:
    """Return the card with a PCI device id."""
    for first, last, generation, capability in _RANGES:
        if first <= device <= last:
            return GpuModel(_MODELS.get(device, f"{generation} GPU {device:04x}"), generation, capability)
    return GpuModel(f"GPU {device:04x}", "", "")


def cards(gpu: GpuFacts) -> list[GpuModel]:
    """Return the host's GPUs, from nvidia-smi if the PCI bus does not show them (in a container, for an unknown
    model)."""
    devices, shown = [identify(int(device.id, 16)) for device in gpu.devices], gpu.smi.gpus
    if shown and not (devices and all(each.generation for each in devices)):
        return [GpuModel(each.name, _generation_of(each.capability), each.capability) for each in shown]
    return devices


def usable(gpu: GpuFacts, needs: GpuSupport) -> list[GpuModel]:
    """Return the cards that are not too old for the stack. A small display card usually is."""
    least = numbers(needs.capability.min)
    return [card for card in cards(gpu) if not card.capability or numbers(card.capability) >= least]


def too_new(found: Iterable[GpuModel], needs: GpuSupport) -> list[GpuModel]:
    """Return the cards that are too new for the code in the stack's wheels."""
    most = numbers(needs.capability.max)
    return [card for card in found if numbers(card.capability) > most]


def capabilities(least: str, most: str) -> list[str]:
    """Return the compute capabilities of NVIDIA's GPUs from ``least`` to ``most``, in order."""
    known = {capability for _, _, _, capability in _RANGES}
    return sorted((each for each in known if numbers(least) <= numbers(each) <= numbers(most)), key=numbers)


def limits(found: Sequence[GpuModel]) -> Generation:
    """Return the limits of all these cards together."""
    known = [GENERATIONS[card.generation] for card in found if card.generation]
    kinds = {each.modules for each in known} - {"either"}
    return Generation(
        max((each.oldest for each in known), default=0),
        min((each.newest for each in known if each.newest), default=None),
        None if len(kinds) > 1 else next(iter(kinds), "either"),
    )


def named(found: Sequence[GpuModel]) -> str:
    """Describe cards: "2 A100 PCIe 80GB, Tesla T4"."""
    names = [card.name for card in found]
    return ", ".join(f"{names.count(name)} {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names))


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as a tuple of numbers, for comparisons."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _generation_of(capability: str) -> str:
    """Return the first generation in the table with this capability, or ""."""
    return next((generation for _, _, generation, shown in _RANGES if shown == capability), "")
