"""What a host gets: the result of the decisions, which the roles carry out. A part with nothing to do is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree:
    """A CPython to send. ``name``: of its directory on the host; ``release``: the exact version; ``key``: what uv calls
    it, or "" for a tree of the control machine. ``archive``: its path there, and ``sha256`` its hash; for one of uv,
    empty until uv has downloaded it.
    """

    name: str
    release: str
    megabytes: int
    key: str = ""
    archive: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Python:
    """A stack's interpreter. ``packages``: those that provide it; ``from_``: its source in words."""

    version: str
    path: str
    from_: str
    packages: tuple[str, ...] = ()
    tree: Tree | None = None


@dataclass(frozen=True)
class ChosenStack:
    """``path``: of the environment; ``link``: of the stack. ``lock``: the lock file on the control machine.

    ``there``: whether the environment exists.
    """

    name: str
    edition: str
    python: Python
    path: str
    link: str
    lock: str
    disk_mb: int
    imports: Mapping[str, str]
    there: bool

    @property
    def environment(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Driver:
    """``version``: of the driver that stays, else the branch or the version to install. ``pin``: a branch or a version,
    with which the versions of its packages must begin. ``packages``: installed in one transaction;
    ``first``: installed before it. ``stream``: the module stream for dnf. ``upgrade``: whether packages that are
    installed get the version that pins and package sources choose. ``own``: whether tfctl installed the driver that
    stays. ``nodes``: whether to create the device nodes at each boot. ``services``: to be started. ``build``: whether
    DKMS has to build the module for the running kernel. ``blacklist``: whether to block nouveau; ``initramfs``:
    the command that removes it from the initramfs. ``unattended``: whether to exclude the driver from unattended
    upgrades, and ``signed``: with the kernel, because the distribution builds the modules of both together.
    ``needed``: whether something has to be done. If not, the receipt of the role decides whether it runs.
    """

    method: str
    version: str
    pin: str
    packages: tuple[str, ...]
    first: tuple[str, ...]
    stream: str
    upgrade: bool
    own: bool
    nodes: bool
    services: tuple[str, ...]
    build: bool
    blacklist: bool
    unattended: bool
    signed: bool
    initramfs: tuple[str, ...]
    needed: bool


@dataclass(frozen=True)
class Archive:
    """``kind``: tar or runfile; ``path``: where it is unpacked."""

    url: str
    sha256: str
    path: str
    kind: str


@dataclass(frozen=True)
class Library:
    """CUDA, cuDNN or NCCL. ``exact``: whether a later version will not do. ``folders``: of which the loader has to be
    told; ``home``: for compilers; ``soname``: what programs ask the loader for.
    """

    method: str
    version: str
    exact: bool
    packages: tuple[str, ...]
    archive: Archive | None
    folders: tuple[str, ...]
    home: str
    soname: str


@dataclass(frozen=True)
class Repository:
    """NVIDIA's package repository. ``key``: the file with the key that signs it, among those of the role nvidia_repo or
    an absolute path on the control machine."""

    uri: str
    key: str


@dataclass(frozen=True)
class PackageSource:
    """Where packages are from: ``components`` of the distribution's archive, or NVIDIA's repository.

    ``drivers``: whether drivers are taken from that repository. ``file``: of the host's package sources, which already
    has the repository, or "". ``branch``: that of the drivers, if tfctl installs them.
    """

    components: tuple[str, ...]
    repository: Repository | None
    drivers: bool
    file: str
    branch: str = ""


@dataclass(frozen=True)
class GpuSoftware:
    driver: Driver | None
    cuda: Library | None
    cudnn: Library | None
    nccl: Library | None
    source: PackageSource | None


@dataclass(frozen=True)
class Toolchain:
    """``gcc``: the major number; ``cc``, ``cxx``: the commands."""

    gcc: int
    cc: str
    cxx: str
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Tarball:
    url: str
    sha256: str


@dataclass(frozen=True)
class OpenMpi:
    """``environment``: the path of the one that uses it. ``packages``: the distribution's. ``broken``: whether mpirun
    exists but does not start.
    """

    method: str
    version: str
    prefix: str
    environment: str
    packages: tuple[str, ...]
    broken: bool
    source: Tarball | None


@dataclass(frozen=True)
class OpenMpiBuild(OpenMpi):
    """An Open MPI that tfctl builds. Hosts with the same ``key`` can share a build."""

    key: str
    compiler: Toolchain


@dataclass(frozen=True)
class Horovod:
    """``home``: where it is, or "" to remove it from the environment. ``environment``: its path."""

    home: str
    environment: str
    version: str


@dataclass(frozen=True)
class CudaHomes:
    """``nccl`` is "" for the stack's own wheel."""

    cuda: str
    nccl: str


@dataclass(frozen=True)
class HorovodBuild(Horovod):
    """A Horovod to install. Hosts with the same ``key`` can share a build. ``source``: a line for pip; ``tools``: the
    lock of what builds it; ``mpi``: a prefix, or ""; ``gpu``: None without nvcc.
    """

    key: str
    python: str
    source: str
    tools: str
    compiler: Toolchain
    mpi: str
    gloo: bool
    gpu: CudaHomes | None


@dataclass(frozen=True)
class Decision:
    """What a host gets. With faults, it has gaps."""

    operators: tuple[str, ...]
    output_roots: tuple[str, ...]
    notices: tuple[str, ...]
    stack: ChosenStack | None
    gpu: GpuSoftware | None
    toolchain: Toolchain | None
    openmpi: OpenMpi | None
    horovod: Horovod | None
