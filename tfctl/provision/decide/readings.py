"""Read what programs of a host have printed, as the modules pass it on, so that it becomes Facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfctl.provision.decide.cards import numbers

MAKERS = (("Debian", "debian"), ("NVIDIA", "nvidia"), ("Ubuntu", "canonical"), ("RPM Fusion", "rpmfusion"))
PACKAGE = re.compile(
    r"^(nvidia-(driver|kernel|open|dkms|headless|utils|smi|compute|fabricmanager|persistenced|modprobe|firmware|legacy"
    r"|tesla)|libnvidia-(?!container)|libcuda1|linux-(modules|objects)-nvidia|cuda-drivers|k?a?mod-nvidia"
    r"|xorg-x11-drv-nvidia|firmware-nvidia)"
)
# Packages with the driver's version. Others, such as nvidia-modprobe, may have their own.
LIBRARY = re.compile(
    r"^(libcuda1$|libnvidia-(compute|ml)|nvidia-driver-(cuda-)?libs|xorg-x11-drv-nvidia-cuda|nvidia-driver-cuda)"
)
VERSION = re.compile(r"(?:^|:)(\d{3}\.\d+(?:\.\d+)?)")
#: The first line of a zone in the output of `firewall-cmd --list-all-zones`: "public (default, active)".
ZONE = re.compile(r"^(\S+)(?: \(.*\))?$")
KEYS = {"target": "target", "interfaces": "interfaces", "sources": "sources", "ports": "ports"}


class NvidiaPackage(NamedTuple):
    """A package of NVIDIA's software. ``maintainer``: or vendor. ``held``: "held", or ""."""

    name: str
    version: str
    maintainer: str
    held: str


def read(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tfctl_facts has gathered, in the form of Facts."""
    gpu, firewalld = seen.get("gpu"), seen.get("firewalld")
    if firewalld is not None:
        firewalld = {**firewalld, "zones": zones(firewalld["zones"])}
    return {**seen, "gpu": read_gpu(gpu), "firewalld": firewalld}


def read_gpu(seen: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what tfctl_gpu_facts has gathered, in the form of GpuFacts."""
    if seen is None:
        return None
    known = dict(seen)
    shown = smi(known.pop("smi"))
    found = [NvidiaPackage(*row) for row in known.pop("packages")]
    return {
        **packages(found, known.pop("holds"), known.pop("installer")),
        "persistence": known.pop("persistenced") and all(each["persistence"] for each in shown["gpus"]),
        **known,
        "smi": shown,
        "dkms": dkms(seen["dkms"]),
    }


def smi(answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the GPUs that nvidia-smi shows, or what it said. None: it was not asked."""
    if answer is None:
        return {"said": "", "gpus": []}
    if answer["code"]:
        return {"said": " ".join(answer["said"].split())[:300] or "it printed nothing", "gpus": []}
    lines = [line for line in answer["said"].splitlines() if line.strip()]
    return {"said": "", "gpus": [gpu_of(answer["query"], line) for line in lines]}


def gpu_of(query: str, line: str) -> dict[str, object]:
    """Return a GPU that nvidia-smi shows. ``query``: the fields in ``line``."""
    row = dict(zip(query.split(","), (cell.strip() for cell in line.split(","))))
    return {
        "uuid": row["uuid"],
        "name": row.get("name", ""),
        "capability": row.get("compute_cap", ""),
        "driver": row.get("driver_version", ""),
        "mig": row.get("mig.mode.current") == "Enabled",
        "persistence": row.get("persistence_mode") != "Disabled",
    }


def packages(found: Sequence[NvidiaPackage], holds: Mapping[str, str], installer: str | None) -> dict[str, object]:
    """Return what the package manager knows of a driver, or what NVIDIA's own installer left.

    ``holds``: the versions of the driver's packages that tfctl put on hold. ``installer``: the version of what NVIDIA's
    own installer has installed, or None. GpuFacts describes the result.
    """
    ours = [package for package in found if PACKAGE.match(package.name)]
    now = {package.name: (package.version, bool(package.held)) for package in ours}
    libraries = [package.version for package in ours if LIBRARY.match(package.name)]
    versions = sorted({match[1] for match in map(VERSION.search, libraries) if match}, key=numbers)
    fabric = [VERSION.search(package.version) for package in ours if "fabricmanager" in package.name]
    origins = {maker(package.maintainer) for package in ours}
    if installer is not None:
        origins.add("run")
        versions = versions or [installer]
    return {
        "version": versions[-1] if versions else "",
        "origins": sorted(origins),
        "held": sorted(package.name for package in ours if package.held and package.name not in holds),
        "own": bool(holds),
        # Without a version, the package was not put on hold.
        "drifted": sorted(
            name for name, version in holds.items() if name not in now or (version and now[name] != (version, True))
        ),
        "fabric_manager": fabric[0][1] if fabric and fabric[0] else "",
    }


def maker(maintainer: str) -> str:
    """Return the origin of a package by its Maintainer ("Debian NVIDIA Maintainers") or vendor."""
    return next((name for word, name in MAKERS if word in maintainer), "unknown")


def dkms(text: str) -> list[dict[str, str]]:
    """Parse `dkms status` of version 2 (`nvidia, 470.57, 5.10.0-8-amd64, x86_64: installed`) or 3
    (`nvidia/535.104, …`)."""
    shape = re.compile(r"nvidia[\w-]*[/,] ?([^,:]+)(?:, ([^,]+), [^:]+)?: (\w+)")
    found = [match.groups() for match in map(shape.match, text.splitlines()) if match]
    return [{"version": version, "kernel": release or "", "state": state} for version, release, state in found]


def zones(text: str) -> list[dict[str, object]]:
    """Parse the zones. Of rich rules, it is only noted whether one accepts something."""
    found: list[dict[str, object]] = []
    for line in text.splitlines():
        if match := ZONE.match(line):
            found.append({"name": match[1], "target": "", "interfaces": [], "sources": [], "ports": [], "rules": False})
        key, _, value = line.strip().partition(": ")
        if found and key in KEYS:
            found[-1][key] = value if key == "target" else value.split()
        elif found and line.strip().startswith("rule ") and line.rstrip().endswith(" accept"):
            found[-1]["rules"] = True
    return found
