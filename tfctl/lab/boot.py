"""The command that boots a node.

Where systemd does not run this machine, ``--register=no --keep-unit`` makes systemd-nspawn ask it for nothing. Where
it does, the same command runs as a transient unit with a delegated cgroup, like systemd's systemd-nspawn@.service.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfctl.lab.spec import SHARED, Node

_KEEPER = "tfctl-lab-keeper"
_FUSE = Path("/dev/fuse")
# /tmp on disk, as on most machines: systemd-nspawn's default is a tmpfs of a tenth of the memory, small for pip.
_ENVIRONMENT = "export SYSTEMD_NSPAWN_TMPFS_TMP=0 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"
# The systemd-nspawn of a unit (--keep-unit) ends with 133 when the node reboots, and wants to be started again.
_SCRIPT = (
    f"{_ENVIRONMENT}; shift; "
    'while [ "$1" != -- ]; do mkdir -p "$1" && echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; '
    'while :; do "$@"; status=$?; [ "$status" -eq 133 ] || exit "$status"; done'
)
_UNIT = ("Delegate=yes", "KillMode=mixed", "TasksMax=infinity", "Slice=machine.slice")


def nspawn(node: Node) -> list[str]:
    """systemd-nspawn(1) for this node."""
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={node.root}", f"--machine={node.machine}",
        f"--hostname={node.name}", "--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off",
        "--timezone=off", "--console=read-only", f"--network-bridge={node.lab.bridge}",
        f"--bind={node.lab.shared}:{SHARED}",
        "--capability=CAP_SYSLOG",  # root of a machine reads the kernel's log
        *([f"--bind={_FUSE}"] if _FUSE.exists() else []),  # for sshfs in a node
    ]  # fmt: skip


def keeper(command: Sequence[str], machine: str, groups: Sequence[Path]) -> list[str]:
    """``command`` in cgroups of its own, and again when the node has rebooted.

    Own cgroups matter: systemd-nspawn puts its node into ``payload`` below the cgroup it finds itself in. Nodes started
    from the same one share their units' cgroups: a user's slice stopped on one stays populated by the other's
    processes, which it cannot even name, and every login then waits two minutes for it.
    """
    return ["/bin/sh", "-c", _SCRIPT, _KEEPER, machine, *(str(folder) for folder in groups), "--", *command]


def kept_machine(words: Sequence[str]) -> str:
    """The machine of a keeper, from its command line; "" for any other process."""
    return words[4] if len(words) > 4 and words[3] == _KEEPER else ""


def unit(command: Sequence[str], node: Node) -> list[str]:
    """``command`` as a transient unit of this machine; systemd.service(5) would expand a single dollar."""
    literal = [word.replace("$", "$$") for word in command]
    properties = [f"--property={text}" for text in (*_UNIT, f"StandardOutput=append:{node.console}")]
    return ["systemd-run", "--quiet", "--collect", f"--unit=tfctl-lab-{node.machine}", *properties, "--", *literal]
