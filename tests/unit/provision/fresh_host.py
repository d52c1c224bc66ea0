"""The facts about a fresh host, to which tests and scripts/stack_table.py add what differs."""

from __future__ import annotations

from typing import Any

from tfctl import schema
from tfctl.provision.decide import space
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.wanted import Wanted

FREE = {"device": 1, "free_mb": 50_000, "free_inodes": 1_000_000, "noexec": False, "at": "/"}
PYTHON: dict[str, Any] = {
    "pythons": {"3.11": "/usr/bin/python3.11"},
    "given": {},
    "trees": {},
    "in_use": {},
    "libc": [2, 36],
    "lacking": [],
}
#: A Debian 12 that has no GPU.
HOST: dict[str, Any] = {
    "system": "debian-12",
    "title": "Debian GNU/Linux 12 (bookworm)",
    "machine": "x86_64",
    "wsl": False,
    "init": "systemd",
    "systemd": 252,
    "own_python": [3, 11],
    "python": PYTHON,
    "packager": "apt-get",
    "unfinished": [],
    "root": True,
    "login": "ops",
    "sudo": True,
    "user": None,
    "group": None,
    "uid_owner": None,
    "gid_owner": None,
    "identity": {"hostname": "node1", "machine_id": "1", "boot_id": "2"},
    "addresses": ["10.0.0.1"],
    "clock": {"begun": 0.0, "ended": 0.0},
    "disks": dict.fromkeys(space.directories(("/srv/tfctl",), "~/.ansible/tmp"), FREE),
    "environments": [],
    "links": {},
    "mpiruns": {},
    "horovods": [],
    "openmpis": [],
    "gpu": None,
    "firewalld": None,
    "selinux": False,
}
KERNEL: dict[str, Any] = {
    "release": "6.1.0-18-amd64",
    "newest": "6.1.0-18-amd64",
    "headers": True,
    "module": False,
    "metapackage": "linux-image-amd64",
    "follows": False,
    "dkms": False,
    "offered": None,
}
#: A host with GPUs, still without their PCI IDs, and without a driver.
GPU: dict[str, Any] = {
    "devices": [], "vgpu": False, "switches": 0, "fabric_running": False, "loaded": "", "open_module": False,
    "processes": [], "version": "", "origins": [], "held": [], "own": False,
    "drifted": [], "lost": [], "fabric_manager": "", "nouveau": False, "blacklisted": False, "persistence": False,
    "secure_boot": False, "mok": False, "signing_key": False, "dkms": [], "unattended": False, "excluded": False,
    "container": "", "display": False, "beside": [], "packages": [], "initramfs": "update-initramfs",
    "missing_nodes": [], "at_boot": False, "modprobe": False, "apt_sources": {}, "smi": {"said": "", "gpus": []},
    "kernel": KERNEL,
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    """Return the facts of a fresh Debian 12, with changes."""
    return schema.parse(Facts, {**HOST, **changes})


def wanted(**changes: Any) -> Wanted:
    """Return what an inventory asks for that sets nothing but the stack, with changes."""
    return Wanted(**{"uid": 880, "shared": ("/srv/tfctl",), "stack": "tf2.15", **changes})
