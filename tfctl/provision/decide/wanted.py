"""What a host is to become, as the inventory sets it, and the catalogue that decisions choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfctl.model import stacks as catalogue
from tfctl.model.stacks import OperatingSystem, Stack
from tfctl.model.stacks.nvidia import Nvidia
from tfctl.model.stacks.values import SourcedValue
from tfctl.provision.python_tree import PythonTree
from tfctl.provision.uv_pythons import PythonBuild

#: In ``allow_unverified``: every key and hash.
ALL = "all"


@dataclass(frozen=True)
class Preferences:
    """The settings of the inventory that choose between several ways. roles/preflight documents each."""

    toolchain: bool = False
    horovod: bool = False
    openmpi: str = "auto"
    openmpi_url: str = ""
    edition: str = "auto"
    driver: str = "auto"
    driver_method: str = "auto"
    upgrade_driver: bool = False
    cuda_method: str = "auto"
    cudnn_method: str = "auto"
    nccl_method: str = "auto"
    gpus_expected: int = 0
    nvidia_mirror: str = ""
    nvidia_key_file: str = ""
    allow_unverified: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Return whether a key or hash of this name may be used although it has not been verified."""
        return name in self.allow_unverified or ALL in self.allow_unverified


@dataclass(frozen=True)
class Wanted:
    """``shared``: directories that jobs write to. ``operators``: users who may run jobs; none, the login user.

    ``stack``: the name of the host's stack, "none", or "". ``trees``: CPython trees that can be sent.
    ``builds``: the CPythons that uv can download; ``no_builds``: why they are not known, or "". ``remote_tmp``: where
    Ansible keeps its temporary files on the host.
    """

    uid: int
    shared: tuple[str, ...]
    operators: tuple[str, ...] = ()
    stack: str = ""
    preferences: Preferences = field(default_factory=Preferences)
    trees: tuple[PythonTree, ...] = ()
    builds: tuple[PythonBuild, ...] = ()
    no_builds: str = ""
    remote_tmp: str = "~/.ansible/tmp"
    stacks: Mapping[str, Stack] = field(default_factory=catalogue.load)
    systems: Mapping[str, OperatingSystem] = field(default_factory=catalogue.systems)
    nvidia: Nvidia = field(default_factory=catalogue.nvidia)

    def known(self) -> dict[str, SourcedValue]:
        """Return the keys and hashes of what is downloaded, by the names that ``allow_unverified`` takes."""
        named: dict[str, SourcedValue] = dict(self.nvidia.keys)
        for library, archives in self.nvidia.archives.items():
            named |= {f"{library}-{version}": archive for version, archive in archives.items()}
        named |= {f"openmpi-{each.openmpi.version}": each.openmpi for each in self.stacks.values() if each.openmpi}
        return named
