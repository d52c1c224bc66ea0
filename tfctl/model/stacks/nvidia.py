"""The schema of nvidia.yaml: NVIDIA's repositories, distributions' packages of its software, and its archives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tfctl.model.stacks.values import Https, Sha256, SourcedValue, Version

#: The libraries that TensorFlow needs on GPUs.
LibraryName = Literal["cuda", "cudnn", "nccl"]


@dataclass(frozen=True)
class Range:
    """From ``min`` to ``max``, both inclusive."""

    min: Version
    max: Version


@dataclass(frozen=True)
class RepositoryKey(SourcedValue):
    """The key of a repository. ``included``: whether the role nvidia_repo contains it, as a file of this name."""

    included: bool
    fingerprint: Annotated[str, re.compile(r"^[0-9A-F]{40}$")]


@dataclass(frozen=True)
class LibraryArchive(SourcedValue):
    """A tarball, or NVIDIA's own installer (`runfile`)."""

    kind: Literal["tar", "runfile"]
    url: Https
    sha256: Sha256


@dataclass(frozen=True)
class MirrorRepository:
    """``path`` is relative to the mirror. ``cuda`` is the range of toolkits in it."""

    path: str
    key: str
    cuda: Range


@dataclass(frozen=True)
class Branches:
    """A distribution's drivers. ``open``: whether it has open kernel modules; ``packages``: needed beside a module."""

    branches: tuple[int, ...]
    open: bool
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packaged:
    version: Version
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Distribution:
    """A distribution's packages of NVIDIA's software. ``components`` are the archive components that hold them."""

    components: tuple[str, ...]
    driver: Branches | None = None
    cuda: Packaged | None = None
    cudnn: Packaged | None = None
    nccl: Packaged | None = None

    def library(self, name: LibraryName) -> Packaged | None:
        return {"cuda": self.cuda, "cudnn": self.cudnn, "nccl": self.nccl}[name]


@dataclass(frozen=True)
class Nvidia:
    """``ptx``: the first driver branch that supports a version of the PTX ISA. ``maintained``: the last month (YYYY-MM)
    in which NVIDIA maintains a driver branch; other branches below ``unmaintained_before`` have ended."""

    mirror: str
    ptx: Mapping[Version, int]
    maintained: Mapping[str, Annotated[str, re.compile(r"^\d{4}-\d{2}$")]]
    unmaintained_before: int
    keys: Mapping[str, RepositoryKey]
    repositories: Mapping[str, MirrorRepository]
    distributions: Mapping[str, Distribution]
    archives: Mapping[LibraryName, Mapping[str, LibraryArchive]]

    def ended(self, branch: int, month: str) -> str | None:
        """Return when NVIDIA stopped to maintain a branch, "" if that is unknown, or None if it maintains it.

        ``month``: the present one, as YYYY-MM.
        """
        last = self.maintained.get(str(branch))
        if last:
            return last if month > last else None
        return "" if branch < self.unmaintained_before else None


@dataclass(frozen=True)
class DriverSupport:
    """``min``: what the stack's CUDA requires (NVIDIA's table of minor-version compatibility)."""

    min: Version
    max_branch: int


@dataclass(frozen=True)
class GpuSupport:
    """What a stack needs on GPUs. ``wheels``: whether its gpu edition includes CUDA, cuDNN and NCCL.

    ``ptx``: by compute capability, the newest PTX ISA that a driver must compile there; without a key if all code for
    it is machine code. scripts/lock-stacks compares it with TensorFlow's wheel.
    """

    cuda: Version
    cudnn: Version
    nccl: Version
    capability: Range
    driver: DriverSupport
    ptx: Mapping[Version, Version]
    wheels: bool

    def library(self, name: LibraryName) -> str:
        """Return the version of a library."""
        return {"cuda": self.cuda, "cudnn": self.cudnn, "nccl": self.nccl}[name]

    def oldest_driver(self, capability: str, branches: Mapping[str, int]) -> str:
        """Return the oldest driver that runs the stack on GPUs of this compute capability. ``branches``: Nvidia.ptx."""
        isa = self.ptx.get(capability)
        branch = branches[isa] if isa else 0
        return str(branch) if branch > int(self.driver.min.partition(".")[0]) else self.driver.min
