"""The facts about a host, as the module facts gathers them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
class StackLink:
    """A stack's environments: the current and the previous one, or ""."""

    current: str
    before: str


@dataclass(frozen=True)
class Device:
    """A GPU on the PCI bus. ``id``: four hexadecimal digits."""

    slot: str
    id: str


@dataclass(frozen=True)
class LostGpu:
    """A GPU on the PCI bus that nvidia-smi does not show. ``reason``: what the kernel's log says of it, or ""."""

    slot: str
    reason: str


@dataclass(frozen=True)
class SmiGpu:
    """A GPU that nvidia-smi shows. ``mig``: whether it is divided into instances. ``persistence``: whether the driver
    keeps it initialised while no process uses it. ``bus``: its address as it is shown, or "". ``defect``: why it must
    not be used, or "". ``notices``: what somebody should look at.
    """

    uuid: str
    name: str
    capability: str
    driver: str
    mig: bool
    persistence: bool
    bus: str = ""
    defect: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Smi:
    """The answer of nvidia-smi. ``said``: its error message, or ""."""

    said: str
    gpus: tuple[SmiGpu, ...]


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    name: str


@dataclass(frozen=True)
class DkmsBuild:
    version: str
    kernel: str
    state: str


@dataclass(frozen=True)
class Kernel:
    """``release``: of the running kernel, whether its headers are installed, and whether it has a driver's module.
    ``newest``: of those installed.

    ``metapackage``: the one that updates the kernel, or "". ``follows``: whether headers are installed with each update
    of the kernel. ``dkms``: whether DKMS is installed. ``offered``: what the host's package lists have of the packages
    that a build needs and that are not installed, or None if the host has no lists yet.
    """

    release: str
    headers: bool
    newest: str
    module: bool
    metapackage: str
    follows: bool
    dkms: bool
    offered: tuple[str, ...] | None


@dataclass(frozen=True)
class UnchangedGpuFacts:
    """The facts about NVIDIA on a host that the module gpu_facts returns in this form.

    ``vgpu``: whether a hypervisor made one of the devices. ``switches``: the number of NVSwitches. ``loaded``: the
    version of the driver in the kernel. ``processes`` have a GPU open.

    ``missing_nodes``: device nodes that CUDA needs and that do not exist, with a loaded driver. ``at_boot``: whether
    tfctl_nvidia.service creates them at each boot, with ``modprobe``: whether nvidia-modprobe is installed.
    ``mok``: whether the machine trusts the key with which DKMS signs modules, and ``signing_key``: whether the host has
    this key; both are false without Secure Boot. ``excluded``: whether the driver is excluded from ``unattended``
    upgrades. ``display``: whether a display manager is enabled, or NVIDIA's driver for X installed. ``fabric_running``:
    whether the service of the fabric manager runs; ``open_module``: whether the loaded module is NVIDIA's open one.
    ``apt_sources``: the text of the files of apt's package sources that may have a repository of NVIDIA, by path,
    without tfctl's own.
    """

    devices: tuple[Device, ...]
    vgpu: bool
    switches: int
    fabric_running: bool
    loaded: str
    open_module: bool
    missing_nodes: tuple[str, ...]
    at_boot: bool
    modprobe: bool
    processes: tuple[GpuProcess, ...]
    nouveau: bool
    blacklisted: bool
    secure_boot: bool
    mok: bool
    signing_key: bool
    unattended: bool
    excluded: bool
    apt_sources: Mapping[str, str]
    container: str
    display: bool
    kernel: Kernel
    initramfs: str


@dataclass(frozen=True)
class GpuFacts(UnchangedGpuFacts):
    """All facts about NVIDIA on a host. readings.py computes those listed here from what programs have printed.

    ``version``: of the driver installed; ``origins``: who made it; ``held``: its packages that somebody but tfctl put
    on hold; ``own``: whether tfctl installed it, and not only what was added to it; ``drifted``: packages of tfctl's
    that are no longer as it left them; ``fabric_manager``: its version. A version is "" if there is none. ``lost``: the
    GPUs that nvidia-smi does not show. ``beside``: the packages of a driver's libraries, if there is also a driver of
    NVIDIA's own installer. ``packages``: those of the driver.
    """

    smi: Smi
    version: str
    origins: tuple[str, ...]
    held: tuple[str, ...]
    own: bool
    drifted: tuple[str, ...]
    fabric_manager: str
    persistence: bool
    dkms: tuple[DkmsBuild, ...]
    lost: tuple[LostGpu, ...] = ()
    beside: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Zone:
    """A zone of firewalld. ``target``: ACCEPT accepts everything. ``sources``: networks, or other kinds of sources.
    ``ports``: those that it opens, such as 2222-2299/tcp. ``rules``: whether a rich rule accepts something.
    """

    name: str
    target: str
    interfaces: tuple[str, ...]
    sources: tuple[str, ...]
    ports: tuple[str, ...]
    rules: bool


@dataclass(frozen=True)
class Firewalld:
    """``default``: the zone of interfaces that have no other."""

    default: str
    zones: tuple[Zone, ...]


@dataclass(frozen=True)
class Facts:
    """The facts about a host. ``wsl``: whether it is WSL2, the Linux in Windows. ``gpu``: None without NVIDIA hardware
    and driver.

    ``user``, ``group``: the UID and GID of tfctl, if they exist; ``uid_owner``, ``gid_owner``: whose the wanted UID and
    GID are. ``unfinished``: packages that dpkg has left half installed, and "" if it was interrupted. ``addresses``:
    what its address in the inventory resolves to on the host itself; ``peers``: the same for names of other hosts.
    ``disks``: by directory. ``environments``: the
    names of complete and incomplete ones. ``links``: by stack. ``mpiruns``: the version of mpirun by prefix, "" if it
    does not run. ``horovods``, ``openmpis``: the environments that use a Horovod, and those that link to an Open MPI of
    tfctl's. ``firewalld``: None if it does not run. ``selinux``: whether the kernel uses it. ``receipts``: for the
    action due.
    """

    system: str
    title: str
    machine: str
    wsl: bool
    init: str
    systemd: int
    own_python: tuple[int, ...]
    python: Pythons
    packager: str
    unfinished: tuple[str, ...]
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
    links: Mapping[str, StackLink]
    mpiruns: Mapping[str, str]
    horovods: tuple[str, ...]
    openmpis: tuple[str, ...]
    gpu: GpuFacts | None
    firewalld: Firewalld | None
    selinux: bool
    receipts: tuple[CheckedReceipt, ...] = ()
    peers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
