"""The facts about a host, as the module tfctl_facts gathers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfctl.node.receipts import CheckedReceipt


@dataclass(frozen=True)
class Disk:
    """The file system of a directory: its device, and what is free. ``at``: the nearest directory that exists.

    ``free_inodes``: None if the file system has no fixed number of them. ``mark``: the same on all hosts that share the
    directory, and on no others; "" if it does not exist.
    """

    device: int
    free_mb: int
    free_inodes: int | None
    noexec: bool
    at: str
    mark: str = ""


@dataclass(frozen=True)
class Identity:
    """What should be unique to a host. The boot ID is, even for machines that were cloned."""

    hostname: str
    machine_id: str
    boot_id: str


@dataclass(frozen=True)
class Clock:
    """The time of the host's clock when the module began and when it had gathered the facts."""

    begun: float
    ended: float


@dataclass(frozen=True)
class Pythons:
    """``pythons``: the path of each version. ``given``: the version of each interpreter that the inventory names, or
    "". ``trees``: the version of each CPython tree that was sent. ``in_use``: each stack's interpreter.

    ``libc``: major and minor version. ``lacking``: the libraries that were asked for and are not on the host.
    """

    pythons: Mapping[str, str]
    given: Mapping[str, str]
    trees: Mapping[str, str]
    in_use: Mapping[str, str]
    libc: tuple[int, ...]
    lacking: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A stack's environments: the current and the previous one, or ""."""

    current: str
    before: str


@dataclass(frozen=True)
class Device:
    """A GPU on the PCI bus. ``id``: four hexadecimal digits."""

    slot: str
    id: str


@dataclass(frozen=True)
class SmiGpu:
    """A GPU that nvidia-smi shows. ``mig``: whether it is divided into instances."""

    uuid: str
    name: str
    capability: str
    driver: str
    mig: bool


@dataclass(frozen=True)
class Smi:
    """The answer of nvidia-smi. ``said``: its error message, or ""."""

    said: str
    gpus: tuple[SmiGpu, ...]


@dataclass(frozen=True)
class Process:
    pid: int
    name: str


@dataclass(frozen=True)
class DkmsBuild:
    version: str
    kernel: str
    state: str


@dataclass(frozen=True)
class Kernel:
    """``release``: of the running kernel, and whether its headers are installed. ``newest``: of those installed."""

    release: str
    headers: bool
    newest: str


@dataclass(frozen=True)
class GpuFacts:
    """``switches``: the number of NVSwitches. ``loaded``: the version of the driver in the kernel. ``processes`` have a
    GPU open.

    ``version``: of the driver installed; ``origins``: who made it; ``held``: its packages that somebody but tfctl put
    on hold; ``own``: whether tfctl installed it; ``drifted``: packages of tfctl's that are no longer as it left them;
    ``fabric_manager``: its version. A version is "" if there is none.
    """

    devices: tuple[Device, ...]
    switches: int
    loaded: str
    smi: Smi
    processes: tuple[Process, ...]
    version: str
    origins: tuple[str, ...]
    held: tuple[str, ...]
    own: bool
    drifted: tuple[str, ...]
    fabric_manager: str
    nouveau: bool
    blacklisted: bool
    persistence: bool
    secure_boot: bool
    mok: bool
    dkms: tuple[DkmsBuild, ...]
    unattended: bool
    container: str
    kernel: Kernel
    initramfs: str


@dataclass(frozen=True)
class Facts:
    """The facts about a host. ``gpu`` is None without NVIDIA hardware and driver.

    ``user``, ``group``: the UID and GID of tfctl, if they exist; ``uid_owner``, ``gid_owner``: whose the wanted UID and
    GID are. ``addresses``: what its address in the inventory resolves to on the host itself. ``disks``: by directory.
    ``environments``: the names of complete and incomplete ones. ``links``: by stack. ``mpiruns``: the version of mpirun
    by prefix, "" if it does not run. ``horovods``, ``openmpis``: the environments that use a Horovod, and those that
    link to an Open MPI of tfctl's. ``receipts``: for the action tfctl_due.
    """

    system: str
    title: str
    machine: str
    init: str
    systemd: int
    own_python: tuple[int, ...]
    python: Pythons
    packager: str
    root: bool
    login: str
    sudo: bool
    user: int | None
    group: int | None
    uid_owner: str | None
    gid_owner: str | None
    identity: Identity
    addresses: tuple[str, ...]
    clock: Clock
    disks: Mapping[str, Disk]
    environments: tuple[str, ...]
    links: Mapping[str, Link]
    mpiruns: Mapping[str, str]
    horovods: tuple[str, ...]
    openmpis: tuple[str, ...]
    gpu: GpuFacts | None
    receipts: tuple[CheckedReceipt, ...] = ()
