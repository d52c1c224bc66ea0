"""The command that boots a node.

With ``--register=no --keep-unit``, systemd-nspawn works on a machine that systemd does not run. On one that it does,
the same command runs as a transient unit with a delegated cgroup, like systemd's systemd-nspawn@.service.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfctl.lab.spec import SHARED, LabNode

_SUPERVISOR = "tfctl-lab-supervisor"
_FUSE = Path("/dev/fuse")
# Keep /tmp on disk, as on most machines: the default, a tmpfs of a tenth of the memory, is too small for pip.
_ENVIRONMENT = "export SYSTEMD_NSPAWN_TMPFS_TMP=0 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"
# With --keep-unit, systemd-nspawn exits with 133 when the node reboots and expects to be started again. mkdir is tried
# again, because another node that is swept meanwhile removes the parent directory while it is empty.
_SCRIPT = (
    f"{_ENVIRONMENT}; shift; "
    'while [ "$1" != -- ]; do for _ in 1 2 3 4 5 6 7 8 9; do mkdir -p "$1" && break; done; '
    'echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; '
    'while :; do "$@"; status=$?; [ "$status" -eq 133 ] || exit "$status"; done'
)
_UNIT = ("Delegate=yes", "KillMode=mixed", "TasksMax=infinity", "Slice=machine.slice")


def nspawn(node: LabNode) -> list[str]:
    """Return the systemd-nspawn(1) command for this node."""
    return [
        "systemd-nspawn", "--quiet", "--boot", f"--directory={node.root}", f"--machine={node.machine}",
        f"--hostname={node.name}", "--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off",
        "--timezone=off", "--console=read-only", f"--network-bridge={node.lab.bridge}",
        f"--bind={node.lab.shared}:{SHARED}",
        "--capability=CAP_SYSLOG",  # so that root of the node can read the kernel's log
        *([f"--bind={_FUSE}"] if _FUSE.exists() else []),  # for sshfs in a node
    ]  # fmt: skip


def supervised(command: Sequence[str], machine: str, groups: Sequence[Path]) -> list[str]:
    """Return a command that runs ``command`` in its own cgroups, and runs it again after the node reboots.

    systemd-nspawn puts its node into ``payload`` below its current cgroup, so nodes started from the same cgroup would
    share their units' cgroups. A user's slice stopped on one would stay populated by processes of the other, which the
    first cannot see, and every login would wait two minutes for it.
    """
    return ["/bin/sh", "-c", _SCRIPT, _SUPERVISOR, machine, *(str(folder) for folder in groups), "--", *command]


def supervised_machine(words: Sequence[str]) -> str:
    """Return the machine of a supervisor from its command line, or "" for any other process."""
    return words[4] if len(words) > 4 and words[3] == _SUPERVISOR else ""


def unit(command: Sequence[str], node: LabNode) -> list[str]:
    """Return a command that runs ``command`` as a transient unit. Double each dollar, which systemd would expand."""
    literal = [word.replace("$", "$$") for word in command]
    properties = [f"--property={text}" for text in (*_UNIT, f"StandardOutput=append:{node.console}")]
    return ["systemd-run", "--quiet", "--collect", f"--unit=tfctl-lab-{node.machine}", *properties, "--", *literal]
