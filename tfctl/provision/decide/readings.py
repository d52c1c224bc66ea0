"""Turn the answers of modules into Facts: read what programs of a host have printed, as the modules pass it on.

The classes whose names begin with Seen are the answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from tfctl import schema
from tfctl.node import gpu_defects, pci_gpus
from tfctl.provision.decide.cards import GENERATIONS, identify, numbers
from tfctl.provision.decide.facts import (
    Device,
    DkmsBuild,
    Facts,
    Firewalld,
    GpuFacts,
    LostGpu,
    Smi,
    SmiGpu,
    UnchangedGpuFacts,
    Zone,
)
from tfctl.provision.decide.reboot import DriverState

#: Words in the maintainer or vendor of a package, in lower case. Some packages of NVIDIA name only an address.
MAKERS = (("debian", "debian"), ("nvidia", "nvidia"), ("ubuntu", "canonical"), ("rpm fusion", "rpmfusion"))
#: A version of NVIDIA's own packages for Ubuntu, some of which name Ubuntu as their maintainer up to branch 550.
#: Those of Ubuntu have versions such as 550.54.15-0ubuntu0.22.04.1, or -server in their names.
NVIDIAS_FOR_UBUNTU = re.compile(r"\d{3}\.\d+(\.\d+)?-0ubuntu1")
PACKAGE = re.compile(
    r"^(nvidia-(driver(?!-local-repo)|kernel|open|dkms|headless|utils|smi|compute|fabric-?manager|persistenced|modprobe"
    r"|firmware|legacy|tesla|linux-grid|vgpu)|libnvidia-(?!container)|libcuda1|linux-(modules|objects)-nvidia|cuda-drivers"
    r"|k?a?mod-nvidia|xorg-x11-drv-nvidia|xserver-xorg-video-nvidia|firmware-nvidia)"
)
# Packages with the driver's version. Others, such as nvidia-modprobe, may have their own.
LIBRARY = re.compile(
    r"^(libcuda1$|libnvidia-(compute|ml)|nvidia-driver-(cuda-)?libs|xorg-x11-drv-nvidia-cuda|nvidia-driver-cuda)"
)
DISPLAY = "xserver-xorg-video-nvidia"  # the beginning of the names of the packages for X
VERSION = re.compile(r"(?:^|:)(\d{3}\.\d+(?:\.\d+)?)")
#: The exit code with which nvidia-smi(1) warns that the infoROM of a card is corrupt. The card computes.
CORRUPT_INFOROM = 14
#: The first line of a zone in the output of `firewall-cmd --list-all-zones`: "public (default, active)".
ZONE = re.compile(r"^(\S+)(?: \(.*\))?$")


class NvidiaPackage(NamedTuple):
    """A package of NVIDIA's software. ``maintainer``: or vendor. ``held``: "held", or ""."""

    name: str
    version: str
    maintainer: str
    held: str


@dataclass(frozen=True)
class SeenSmi:
    """What nvidia-smi has answered. ``query``: the fields that it was asked for; ``code``: its exit code."""

    query: str
    code: int
    said: str


@dataclass(frozen=True)
class SeenGpu(UnchangedGpuFacts):
    """What the module gpu_facts returns.

    ``smi``: None if nvidia-smi was not asked. ``packages``: the fields of NvidiaPackage. ``holds``: the versions of the
    driver's packages that tfctl put on hold. ``installer``: the version of what NVIDIA's own installer has installed,
    or None. ``persistenced``: whether this daemon runs. ``dkms``: the output of `dkms status`. ``log``: of the kernel,
    if nvidia-smi shows fewer GPUs than there are.
    """

    smi: SeenSmi | None
    packages: tuple[tuple[str, ...], ...]
    holds: Mapping[str, str]
    installer: str | None
    persistenced: bool
    dkms: str
    log: str = ""


@dataclass(frozen=True)
class SeenFirewalld:
    """``zones``: the output of `firewall-cmd --list-all-zones`."""

    default: str
    zones: str


@dataclass(frozen=True)
class SeenOutput:
    """The parts of an answer that contain what programs have printed."""

    gpu: SeenGpu | None = None
    firewalld: SeenFirewalld | None = None


def read(seen: schema.Plain) -> Facts:
    """Return the answer of facts as Facts. Raises SchemaError."""
    facts = schema.parse(Facts, {**seen, "gpu": None, "firewalld": None})
    output = schema.parse(SeenOutput, {"gpu": seen.get("gpu"), "firewalld": seen.get("firewalld")})
    firewalld = Firewalld(output.firewalld.default, zones(output.firewalld.zones)) if output.firewalld else None
    return replace(facts, gpu=gpu_facts(output.gpu) if output.gpu else None, firewalld=firewalld)


def driver_state(seen: schema.Plain) -> DriverState:
    """Return the answer of gpu_state as DriverState. Raises SchemaError."""
    state = schema.parse(DriverState, {**seen, "gpu": None})
    output = schema.parse(SeenOutput, {"gpu": seen["gpu"]})
    return replace(state, gpu=gpu_facts(output.gpu) if output.gpu else None)


def gpu_facts(seen: SeenGpu) -> GpuFacts:
    """Return the answer of gpu_facts as GpuFacts."""
    direct = {each.name: getattr(seen, each.name) for each in fields(UnchangedGpuFacts)}
    shown = smi(seen.smi)
    installed = [NvidiaPackage(*row) for row in seen.packages]
    ours = [package for package in installed if PACKAGE.match(package.name)]
    direct["display"] = seen.display or any(each.name.startswith(DISPLAY) for each in installed)
    return GpuFacts(
        **direct,
        smi=shown,
        version=seen.installer or version(ours),  # of the newest library, whoever has installed it
        origins=origins(ours, seen.installer),
        packages=tuple(each.name for each in ours),
        beside=tuple(each.name for each in ours if seen.installer is not None and LIBRARY.match(each.name)),
        held=tuple(sorted(package.name for package in ours if package.held and package.name not in seen.holds)),
        own=any(package.name in seen.holds and LIBRARY.match(package.name) for package in ours),
        drifted=drifted(installed, seen.holds),
        fabric_manager=fabric_manager(ours),
        persistence=seen.persistenced and all(each.persistence for each in shown.gpus),
        dkms=dkms(seen.dkms),
        # A container sees the bus of its host, and only the GPUs that it was given.
        lost=() if seen.container else lost(driven(seen.devices, seen.loaded), shown.gpus, seen.log),
    )


def smi(answer: SeenSmi | None) -> Smi:
    """Return the GPUs that nvidia-smi shows, or what it said. None: it was not asked."""
    if answer is None:
        return Smi("", ())
    said = " ".join(answer.said.split())[:300]
    if answer.code not in (0, CORRUPT_INFOROM):
        return Smi(said or "it printed nothing", ())
    # Warnings have fewer commas.
    rows = [line for line in answer.said.splitlines() if line.count(",") >= answer.query.count(",")]
    return Smi("" if rows else said, tuple(gpu_of(answer.query, line) for line in rows))


def gpu_of(query: str, line: str) -> SmiGpu:
    """Return a GPU that nvidia-smi shows. ``query``: the fields in ``line``, of which the last may contain commas."""
    names = query.split(",")
    row = dict(zip(names, (cell.strip() for cell in line.split(",", len(names) - 1))))
    return SmiGpu(
        uuid=row["uuid"],
        name=row.get("name", ""),
        capability=row.get("compute_cap", ""),
        driver=row.get("driver_version", ""),
        mig=row.get("mig.mode.current") == "Enabled",
        persistence=row.get("persistence_mode") != "Disabled",
        bus=row.get("pci.bus_id", ""),
        defect=gpu_defects.defect_of(row),
        notices=gpu_defects.notices_of(row),
    )


def driven(devices: Sequence[Device], loaded: str) -> list[Device]:
    """Return the devices that the loaded driver supports: an old card for a display may need an older one."""
    known = {device: GENERATIONS.get(identify(int(device.id, 16)).generation) for device in devices}
    branch = (numbers(loaded) or (0,))[0]
    return [device for device, found in known.items() if not found or not found.newest or branch <= found.newest]


def lost(devices: Sequence[Device], shown: Sequence[SmiGpu], log: str) -> tuple[LostGpu, ...]:
    """Return the GPUs that nvidia-smi does not show; none if it shows none, which is another fault."""
    if not shown or not all(each.bus for each in shown):
        return ()
    slots = pci_gpus.missing([device.slot for device in devices], [each.bus for each in shown])
    return tuple(LostGpu(slot, pci_gpus.said_of(slot, log)) for slot in slots)


def version(ours: Sequence[NvidiaPackage]) -> str:
    """Return the version of the driver's libraries, the newest if there are several, or "" if there is none."""
    libraries = [package.version for package in ours if LIBRARY.match(package.name)]
    return max((match[1] for match in map(VERSION.search, libraries) if match), key=numbers, default="")


def origins(ours: Sequence[NvidiaPackage], installer: str | None) -> tuple[str, ...]:
    """Return who made the driver. ``installer``: see SeenGpu."""
    makers = {maker(package) for package in ours}
    return tuple(sorted(makers if installer is None else {*makers, "run"}))


def drifted(installed: Sequence[NvidiaPackage], holds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages that are no longer as tfctl left them. One without a version may change, or be removed.

    ``installed`` includes packages that do not match PACKAGE: tfctl holds all packages of NVIDIA that it installs.
    """
    now = {package.name: (package.version, bool(package.held)) for package in installed}
    return tuple(sorted(name for name, version in holds.items() if version and now.get(name) != (version, True)))


def fabric_manager(ours: Sequence[NvidiaPackage]) -> str:
    """Return the version of NVIDIA's fabric manager, or ""."""
    fabric = [VERSION.search(package.version) for package in ours if re.search("fabric-?manager", package.name)]
    return fabric[0][1] if fabric and fabric[0] else ""


def maker(package: NvidiaPackage) -> str:
    """Return the origin of a package, by its Maintainer ("Debian NVIDIA Maintainers") or vendor and its version."""
    said = package.maintainer.lower()
    found = next((name for word, name in MAKERS if word in said), "unknown")
    if found == "canonical" and NVIDIAS_FOR_UBUNTU.fullmatch(package.version) and "-server" not in package.name:
        return "nvidia"
    return found


def dkms(text: str) -> tuple[DkmsBuild, ...]:
    """Parse `dkms status` of version 2 (`nvidia, 470.57, 5.10.0-8-amd64, x86_64: installed`) or 3
    (`nvidia/535.104, …`)."""
    shape = re.compile(r"nvidia[\w-]*[/,] ?([^,:]+)(?:, ([^,]+), [^:]+)?: (\w+)")
    found = [match.groups() for match in map(shape.match, text.splitlines()) if match]
    return tuple(DkmsBuild(version, release or "", state) for version, release, state in found)


def zones(text: str) -> tuple[Zone, ...]:
    """Parse the zones."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if match := ZONE.match(line):
            blocks.append((match[1], []))
        elif blocks:
            blocks[-1][1].append(line.strip())
    return tuple(zone(name, lines) for name, lines in blocks)


def zone(name: str, lines: Sequence[str]) -> Zone:
    """Parse the lines of a zone. Of rich rules, it is only noted whether one accepts something."""
    values = {key: value for key, _, value in (line.partition(": ") for line in lines)}
    return Zone(
        name,
        target=values.get("target", ""),
        interfaces=tuple(values.get("interfaces", "").split()),
        sources=tuple(values.get("sources", "").split()),
        ports=tuple(values.get("ports", "").split()),
        rules=any(line.startswith("rule ") and line.endswith(" accept") for line in lines),
    )
