"""What tfctl knows about machines: hosts, the inventory, and the site that a host reports when asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfctl.errors import BadFile, TfctlError
from tfctl.wording import abbreviated

DEFAULT_PORTS = (2222, 2299)
DEFAULT_OUTPUT_ROOTS = ("/srv/tfctl",)
#: The programs that connect to hosts by ssh (remote/transport.py); the first is the default.
TRANSPORTS = ("paramiko", "openssh")
#: The transport of a host with ansible_connection=local.
LOCAL = "local"
#: The address of a host that no other host has to reach. A machine has it whatever happens to its networks, and no
#: firewall rejects connections to it.
LOOPBACK = "127.0.0.1"
#: What an inventory can set. The roles' README files and docs/ describe them.
VARIABLES = (
    "tfctl_address", "tfctl_allow_unverified", "tfctl_batch", "tfctl_ca_bundle", "tfctl_canary", "tfctl_cuda_method",
    "tfctl_cudnn_method", "tfctl_datasets", "tfctl_drain", "tfctl_driver", "tfctl_driver_method", "tfctl_edition",
    "tfctl_firewall", "tfctl_gpus_expected", "tfctl_horovod", "tfctl_http_proxy", "tfctl_https_proxy",
    "tfctl_index_url", "tfctl_journal_max", "tfctl_nccl_method", "tfctl_no_proxy", "tfctl_ntp_servers",
    "tfctl_nvidia_key_file", "tfctl_nvidia_mirror", "tfctl_openmpi", "tfctl_openmpi_url", "tfctl_operators",
    "tfctl_output_roots", "tfctl_ports", "tfctl_python_mirror", "tfctl_python_trees", "tfctl_pythons", "tfctl_reboot",
    "tfctl_reboot_batch", "tfctl_requirements", "tfctl_shared_dir", "tfctl_shared_options", "tfctl_shared_source",
    "tfctl_shared_storage", "tfctl_ssh", "tfctl_ssh_mesh", "tfctl_stack", "tfctl_stack_dirs", "tfctl_time_sync",
    "tfctl_toolchain", "tfctl_uid", "tfctl_undrain", "tfctl_upgrade_driver", "tfctl_wheels_mb",
)  # fmt: skip


@dataclass(frozen=True)
class Ssh:
    """How to reach a host. Where a field is None, ssh's own configuration decides.

    ``args`` holds the words of ansible_ssh_common_args and ansible_ssh_extra_args. ``key`` is an absolute path.
    ``transport`` is one of TRANSPORTS, or LOCAL, or None. ``password`` is whether the inventory has a password for the
    login.
    """

    host: str
    port: int | None = None
    user: str | None = None
    key: str | None = None
    args: tuple[str, ...] = ()
    transport: str | None = None
    password: bool = False


@dataclass(frozen=True)
class Host:
    """One machine, under its name in the inventory.

    ``address`` is where other hosts reach it (`tfctl_address`, else `ansible_host`). If None, the hosts resolve its
    name themselves; nobody knows that of a local host then. ``stack`` is `tfctl_stack`, or None. ``stack_dirs``:
    directories on this machine (`tfctl_stack_dirs`). ``gpus_expected``: how many GPUs it has (`tfctl_gpus_expected`);
    0: those on its PCI bus.
    """

    name: str
    ssh: Ssh
    address: str | None = None
    stack: str | None = None
    ports: tuple[int, int] = DEFAULT_PORTS
    output_roots: tuple[str, ...] = DEFAULT_OUTPUT_ROOTS
    stack_dirs: tuple[str, ...] = ()
    gpus_expected: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it is the machine that tfctl runs on."""
        return self.ssh.transport == LOCAL


@dataclass(frozen=True)
class Inventory:
    """``source`` is the inventory's absolute path, or several, separated by commas. Hosts and group members are in
    inventory order; a group's members include those of its child groups. ``unknown``: the variables tfctl_* that tfctl
    does not read, with the hosts that have them. ``warnings``: those of Ansible, in sentences."""

    source: str
    hosts: tuple[Host, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def stack_dirs(self) -> tuple[str, ...]:
        """The directories with stacks of one's own, of all hosts."""
        return stack_dirs(self.hosts)


def is_loopback(address: str) -> bool:
    """Return whether only the machine itself reaches this address."""
    return address.startswith("127.") or address in ("localhost", "::1")


def stack_dirs(hosts: Iterable[Host]) -> tuple[str, ...]:
    """Return the directories with stacks of one's own, of these hosts."""
    return tuple(dict.fromkeys(path for host in hosts for path in host.stack_dirs))


@dataclass(frozen=True)
class Site:
    """What a host reported. ``address`` is where its peers reach it; ``held`` maps ports in use to their holders.

    ``gpus`` holds the UUIDs of free GPUs; None if the host was not asked, and names are made up (`gpu-0`).
    ``owners`` holds whoever uses the other GPUs. ``gpu_trouble`` says why GPUs that exist cannot be listed;
    ``missing`` is a sentence about those that are missing, or "".
    ``alone`` means that every task is on this host, so a loopback address is fine.
    """

    address: str
    held: Mapping[int, str]
    gpus: tuple[str, ...] | None = None
    owners: tuple[str, ...] = ()
    gpu_trouble: TfctlError | None = None
    missing: str = ""
    alone: bool = False


def check_variables(inventory: Inventory) -> None:
    """Raise BadFile for variables that look like misspelt ones of tfctl. Others may be the user's own."""
    import difflib

    known = {name.removeprefix("tfctl_"): name for name in VARIABLES}
    for name, hosts in inventory.unknown.items():
        if meant := difflib.get_close_matches(name.removeprefix("tfctl_"), known, n=1, cutoff=0.8):
            raise BadFile(
                f"{inventory.source}: {name} (of {abbreviated(hosts)}) is not a tfctl variable",
                f"did you mean {known[meant[0]]}?",
            )


def check_logins(hosts: Iterable[Host]) -> None:
    """Raise BadFile for a host whose inventory has a password, which neither tfctl nor provisioning uses."""
    for host in hosts:
        if host.ssh.password:
            raise BadFile(
                f"{host.name}: the inventory has a password (ansible_password), and tfctl logs in with keys only",
                "install a key (ssh-copy-id), and remove the password from the inventory; that of sudo may stay "
                "(ansible_become_password)",
            )


def local_paths(paths: Iterable[str], base: Path) -> tuple[str, ...]:
    """Return absolute paths for those in an inventory, on this machine. ``base``: the inventory's directory."""
    return tuple(os.path.normpath(base / Path(path.strip()).expanduser()) for path in paths if path.strip())
