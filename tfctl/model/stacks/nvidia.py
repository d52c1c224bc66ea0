"""The schema of nvidia.yaml: NVIDIA's repositories, what distributions have of its software, and its archives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tfctl.model.stacks.strict import Https, Known, Sha256, Strict, Version


class Range(Strict):
    """From ``min`` to ``max``, both included."""

    min: Version
    max: Version


class Key(Known):
    fingerprint: Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class Archive(Known):
    """``kind``: a tarball, or NVIDIA's own installer."""

    kind: Literal["tar", "runfile"]
    url: Https
    sha256: Sha256


class Repository(Strict):
    """``path`` is below the mirror; ``cuda``: the toolkits in it."""

    path: str
    key: str
    cuda: Range


class Branches(Strict):
    """A distribution's drivers. ``open``: whether it has open kernel modules; ``packages``: what is beside a module."""

    branches: list[int]
    open: bool
    packages: tuple[str, ...] = ()


class Packaged(Strict):
    version: Version
    packages: list[str]


class Distribution(Strict):
    """``components``: of its archive, that hold all this."""

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
    """``min``: what the stack's CUDA asks for (NVIDIA's table of minor-version compatibility)."""

    min: Version
    max_branch: int


class Gpu(Strict):
    """A stack on GPUs. ``wheels``: whether its gpu edition brings CUDA, cuDNN and NCCL itself."""

    cuda: Version
    cudnn: Version
    nccl: Version
    capability: Range
    driver: Driver
    wheels: bool
