"""What tfctl knows of machines: a host of the inventory, the inventory; and of a host that was asked, its site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfctl.errors import TfctlError

DEFAULT_PORTS = (2222, 2299)
DEFAULT_OUTPUT_ROOTS = ("/srv/tfctl",)


@dataclass(frozen=True)
class Ssh:
    """How a host is reached; what is None, ssh's own configuration decides.

    ``args`` are the words of ansible_ssh_common_args and ansible_ssh_extra_args. ``key`` is an absolute path.
    """

    host: str
    port: int | None = None
    user: str | None = None
    key: str | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """One machine, under its name in the inventory.

    ``address`` is what other hosts reach it by (`tfctl_address`, else `ansible_host`), or None: then its name, as the
    hosts themselves resolve it. ``stack`` is `tfctl_stack`, or None.
    """

    name: str
    ssh: Ssh
    address: str | None = None
    stack: str | None = None
    ports: tuple[int, int] = DEFAULT_PORTS
    output_roots: tuple[str, ...] = DEFAULT_OUTPUT_ROOTS


@dataclass(frozen=True)
class Inventory:
    """``source`` is the inventory's absolute path. Hosts and the members of groups stand in inventory order; a group's
    members include those of its child groups."""

    source: str
    hosts: tuple[Host, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """What a host said of itself: ``address`` is what its peers reach it by; ``held``: port → who has it.

    ``gpus`` are the UUIDs of those that nobody has; None: not asked, and names are made up (`gpu-0`).
    ``owners`` are who has the others. ``gpu_trouble``: there are GPUs, and this is why they cannot be told.
    ``alone``: every task is on this host, so that a loopback address does.
    """

    address: str
    held: Mapping[int, str]
    gpus: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()
    gpu_trouble: TfctlError | None = None
    alone: bool = False
