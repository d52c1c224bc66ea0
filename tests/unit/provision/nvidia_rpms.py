"""Packages of EL 9 and of NVIDIA's repository for it, with the dependencies that decide which driver dnf installs.

Those of the driver: nvidia-driver.spec of 580.105.08 (https://github.com/negativo17/nvidia-driver, from which NVIDIA
builds) and, before 560, https://github.com/NVIDIA/yum-packaging-nvidia-driver. Those of its kernel module:
https://github.com/NVIDIA/yum-packaging-dkms-nvidia and https://github.com/NVIDIA/yum-packaging-nvidia-kmod-common.
A stream has all versions of its branch, and `open-dkms` is the default: issues 68 and 52 and genmodules.py of
https://github.com/NVIDIA/yum-packaging-precompiled-kmod. The names of streams and metapackages:
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/620/kernel-modules.html. The fabric manager has
another epoch and release, as in https://github.com/NVIDIA/yum-packaging-fabric-manager, and since 580 another name.

Assumed, because no public source says it: a metapackage requires all parts in its own version, as nvidia-open 580.65.06
requires nvidia-settings (https://github.com/rocky-linux/rockylinux.org/issues/201); the fabric manager of 580 replaces
the package of the old name. Whether it is part of the streams is unknown, so `write` does both. Libraries of other
repositories, such as those of X and Vulkan, are left out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: All of them were published for EL 9.
VERSIONS = ("535.183.06", "570.133.20", "580.65.06", "580.105.08", "580.159.03", "590.48.01", "610.57.04")
#: The kernel that runs, and one that dnf must not install.
KERNEL, NEWER_KERNEL = "5.14.0-362.8.1.el9_3", "5.14.0-503.14.1.el9_5"
#: The names of the fabric manager before 580, and since.
OLD_FABRIC, FABRIC = "nvidia-fabric-manager", "nvidia-fabricmanager"
LEGACY = 560  # before this branch, the libraries were split in another way


class Rpm(NamedTuple):
    """A package. ``relations``: lines of its spec file. ``noarch``: as kernel modules that DKMS builds are."""

    name: str
    relations: tuple[str, ...] = ()
    noarch: bool = False


def write(folder: Path, *, modular_fabric: bool) -> None:
    """Write NVIDIA's repository. ``modular_fabric``: whether its streams have the fabric manager of 580 and later."""
    for version in VERSIONS:
        build(folder, [*_driver(version)], version, "1.el9", epoch=3)
        build(folder, [*_fabric_manager(version)], version, "1")
    index(folder)
    modules = folder.parent / "modules.yaml"
    modules.write_text("---\n".join(_streams(modular_fabric)))
    _run("modifyrepo_c", "--mdtype=modules", str(modules), str(folder / "repodata"))


def write_system(folder: Path) -> None:
    """Write the repository of the distribution, together with EPEL, which has DKMS."""
    for release in (KERNEL, NEWER_KERNEL):
        version, _, rest = release.partition("-")
        same = tuple(f"Requires: {name} = {release}" for name in ("kernel-core", "kernel-devel"))
        names = (Rpm("kernel-core"), Rpm("kernel-devel"), Rpm("kernel-headers"), Rpm("kernel-devel-matched", same))
        build(folder, names, version, rest)
    build(folder, [Rpm("dkms", ("Requires: (kernel-devel-matched if kernel-core)",), noarch=True)], "3.2.1", "1.el9")
    build(folder, [Rpm("epel-release", noarch=True)], "9", "7.el9")
    index(folder)


def build(folder: Path, packages: tuple[Rpm, ...] | list[Rpm], version: str, release: str, epoch: int = 0) -> None:
    """Build packages without files, which have one version."""
    folder.mkdir(exist_ok=True)
    tags = f"Epoch: {epoch}\nVersion: {version}\nRelease: {release}\nLicense: x\nSummary: x\n%description\nx\n"
    spec = folder.parent / "packages.spec"
    spec.write_text(f"Name: source\n{tags}" + "".join(map(_section, packages)))
    settings = {"_topdir": folder.parent / "build", "_rpmdir": folder, "_build_name_fmt": "%%{NEVRA}.rpm"}
    defined = [word for name, value in settings.items() for word in ("--define", f"{name} {value}")]
    _run("rpmbuild", "-bb", "--quiet", "--target", "x86_64", *defined, str(spec))


def index(folder: Path) -> None:
    _run("createrepo_c", "--quiet", "--no-database", str(folder))


def branch_of(version: str) -> int:
    return int(version.partition(".")[0])


def _section(package: Rpm) -> str:
    lines = [f"%package -n {package.name}", "Summary: x", *package.relations]
    lines += ["BuildArch: noarch"] if package.noarch else []
    return "\n".join([*lines, f"%description -n {package.name}", "x", f"%files -n {package.name}", ""])


def _driver(version: str) -> Iterator[Rpm]:
    """Yield the packages of a driver with the epoch 3."""
    exact = f"= 3:{version}"
    legacy = branch_of(version) < LEGACY

    def needs(*names: str) -> tuple[str, ...]:
        return tuple(f"Requires: {name} {exact}" for name in names)

    def replaces(name: str) -> tuple[str, ...]:
        return (f"Provides: {name} {exact}-1.el9", f"Obsoletes: {name} < 3:{version}-1.el9")

    yield Rpm("nvidia-driver", needs("nvidia-driver-libs", "nvidia-kmod-common"))
    yield Rpm("nvidia-driver-cuda", needs("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"))
    parts: tuple[str, ...]
    if legacy:
        parts = ("nvidia-driver-devel", "nvidia-driver-NVML", "nvidia-driver-NvFBCOpenGL")
        yield Rpm("nvidia-driver-libs")
        yield Rpm("nvidia-driver-cuda-libs")
        yield Rpm(parts[0], needs("nvidia-driver-libs", "nvidia-driver-cuda-libs", parts[2]))
        yield Rpm(parts[1])
        yield Rpm(parts[2], needs("nvidia-driver-cuda-libs"))
    else:
        parts = ("libnvidia-fbc", "libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp")
        yield Rpm("nvidia-driver-libs", needs("libnvidia-gpucomp", "libnvidia-ml"))
        libraries = needs("libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml")
        yield Rpm("nvidia-driver-cuda-libs", (*libraries, *replaces("nvidia-driver-devel")))
        yield Rpm("libnvidia-ml", replaces("nvidia-driver-NVML"))
        yield Rpm("libnvidia-fbc", (*needs("nvidia-driver-cuda-libs"), *replaces("nvidia-driver-NvFBCOpenGL")))
        yield from map(Rpm, parts[2:])
    yield from map(Rpm, PROGRAMS)
    yield Rpm("nvidia-kmod-common", (f"Requires: nvidia-kmod {exact}", "Requires: nvidia-modprobe"), noarch=True)
    kinds = {"cuda-drivers": LATEST_DKMS, "nvidia-open": OPEN_DKMS}
    for metapackage, module in kinds.items():
        (other,) = {*kinds.values()} - {module}
        provided = (f"Provides: nvidia-kmod {exact}", f"Conflicts: {other}", "Requires: dkms")
        yield Rpm(module, (*needs("nvidia-kmod-common"), *provided), noarch=True)
        yield Rpm(metapackage, needs("nvidia-driver", "nvidia-driver-cuda", *parts, *PROGRAMS, module), noarch=True)


PROGRAMS = ("nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-xconfig")
LATEST_DKMS, OPEN_DKMS = "kmod-nvidia-latest-dkms", "kmod-nvidia-open-dkms"


def _fabric_manager(version: str) -> Iterator[Rpm]:
    if branch_of(version) < 580:
        yield Rpm(OLD_FABRIC)
    else:
        yield Rpm(FABRIC, (f"Provides: {OLD_FABRIC} = {version}", f"Obsoletes: {OLD_FABRIC} < {version}"))


def _streams(modular_fabric: bool) -> Iterator[str]:
    """Yield the documents that describe the module's streams."""
    branches = {str(branch_of(version)): [branch_of(version)] for version in VERSIONS}
    every = [branch for [branch] in branches.values()]
    for name, included in {**branches, "": every}.items():
        for kind, left_out in (("dkms", OPEN_DKMS), ("open", LATEST_DKMS)):
            stream = f"{name}-{kind}" if name else {"dkms": "latest-dkms", "open": "open-dkms"}[kind]
            found = [each for version in VERSIONS if branch_of(version) in included for each in _artifacts(version)]
            rpms = [each for each in found if left_out not in each and (modular_fabric or f"{FABRIC}-" not in each)]
            yield MODULE.format(stream=stream, rpms="".join(f"      - {each}\n" for each in rpms))
    yield "document: modulemd-defaults\nversion: 1\ndata:\n  module: nvidia-driver\n  stream: open-dkms\n"


MODULE = """document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: {stream}
  version: 20261001000000
  context: f6b002c604
  arch: x86_64
  summary: NVIDIA's driver
  description: NVIDIA's driver
  license: {{module: [MIT]}}
  artifacts:
    rpms:
{rpms}"""


def _artifacts(version: str) -> Iterator[str]:
    for packages, epoch, release in ((_driver(version), 3, "1.el9"), (_fabric_manager(version), 0, "1")):
        for package in packages:
            yield f"{package.name}-{epoch}:{version}-{release}.{'noarch' if package.noarch else 'x86_64'}"


def _run(*words: str) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
