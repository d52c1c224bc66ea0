"""The schema of nvidia.yaml: NVIDIA's repositories, distributions' packages of its software, and its archives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tfctl.model.stacks.strict import Https, Known, Sha256, Strict, Version


class Range(Strict):
    """From ``min`` to ``max``, both inclusive."""

    min: Version
    max: Version


class Key(Known):
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class Archive(Known):
    """A tarball, or NVIDIA's own installer (`runfile`)."""

    kind: Literal["tar", "runfile"]
    url: Https
    sha256: Sha256


class Repository(Strict):
    """``path`` is relative to the mirror. ``cuda`` is the range of toolkits in it."""

    path: str
    key: str
    cuda: Range


class Branches(Strict):
    """A distribution's drivers. ``open``: whether it has open kernel modules; ``packages``: needed beside a module."""

    branches: list[int]
    open: bool
    packages: tuple[str, ...] = ()


class Packaged(Strict):
    version: Version
    packages: list[str]


class Distribution(Strict):
    """A distribution's packages of NVIDIA's software. ``components`` are the archive components that hold them."""

    components: list[str]
    driver: Branches | None = None
    cuda: Packaged | None = None
    cudnn: Packaged | None = None
    nccl: Packaged | None = None


class Nvidia(Strict):
    mirror: str
    keys: dict[str, Key]
    repositories: dict[str, Repository]
    distributions: dict[str, Distribution]
    archives: dict[Literal["cuda", "cudnn", "nccl"], dict[str, Archive]]


class Driver(Strict):
    """``min``: what the stack's CUDA requires (NVIDIA's table of minor-version compatibility)."""

    min: Version
    max_branch: int


class Gpu(Strict):
    """What a stack needs on GPUs. ``wheels``: whether its gpu edition includes CUDA, cuDNN and NCCL."""

    cuda: Version
    cudnn: Version
    nccl: Version
    capability: Range
    driver: Driver
    wheels: bool
