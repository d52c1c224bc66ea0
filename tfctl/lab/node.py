"""A node: prepare its files, start it, and clean up after it."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from tfctl.errors import NotFound, TfctlError
from tfctl.lab import boot, cgroup, image, network, process, seed
from tfctl.lab.egress import Egress
from tfctl.lab.host import mounts_under, run, unmount, wait_for, write
from tfctl.lab.spec import STATE, LabNode, cable, is_machine, layer

_NSPAWN_RUN = Path("/run/systemd/nspawn")


def is_prepared(node: LabNode) -> bool:
    return _prepared(node).exists()


def prepare(node: LabNode, peers: Sequence[LabNode], operator_key: str, egress: Egress) -> None:
    """Create the host key, root file system and files. Start over if a previous attempt was interrupted."""
    # The key is created outside the node, so that known_hosts is ready before the first connection.
    make_key(node.host_key, node.name)
    unmount_root(node)
    shutil.rmtree(node.upper, ignore_errors=True)
    mount_root(node)
    public_key = node.host_key.with_suffix(".pub").read_text()
    identity = seed.NodeIdentity(_machine_id(node), node.host_key.read_text(), public_key, operator_key)
    for path, file in seed.seeds(node, peers, identity, egress).items():
        _plant(node.root / path, file)
    _prepared(node).touch()


def start(node: LabNode) -> None:
    """Boot the node without waiting for it. It must be prepared and not running."""
    clear(node.machine)
    mount_root(node)
    command = boot.supervised(boot.nspawn(node), node.machine, groups(node))
    if cgroup.booted_with_systemd():
        run(boot.unit(command, node))
    else:
        process.detach(command, node.console)
    if not wait_for(lambda: bool(process.of_node(node)), limit=5.0):
        raise TfctlError(f"{node.name}: systemd-nspawn did not start", f"See {node.console}")


def groups(node: LabNode) -> list[Path]:
    return [] if cgroup.booted_with_systemd() else cgroup.folders(node.machine)


def traces(lab: str) -> set[str]:
    """Return the machines of a lab that have left traces in the kernel, running or not."""
    cables = {entry.name.removeprefix(cable("")) for entry in Path("/sys/class/net").iterdir()}
    marks = {entry.name for entry in _NSPAWN_RUN.glob("*/*")}
    return {name for name in cables | marks if is_machine(lab, name)} | cgroup.machines(lab)


def clear(machine: str) -> None:
    """Remove what ended processes left in the kernel: cgroups, the cable, systemd-nspawn's own marks."""
    if not cgroup.booted_with_systemd() and not cgroup.sweep(machine):
        raise TfctlError(f"{machine}: processes in its cgroup do not end", "Find them: ps -eo pid,stat,wchan:30,args")
    network.remove_link(cable(machine))
    for folder in ("propagate", "unix-export"):
        for point in mounts_under(_NSPAWN_RUN / folder / machine):
            unmount(point)
        shutil.rmtree(_NSPAWN_RUN / folder / machine, ignore_errors=True)


def mount_root(node: LabNode) -> None:
    """Mount the node's root, ``volatile``: a lab is disposable, so no fsync (dpkg, journald, sqlite) needs to wait."""
    if mounts_under(node.root):
        return
    settle(node)
    lower = [*map(layer, node.disk.layers), image.path(node.disk.image)]
    for folder in lower:
        if not folder.is_dir():
            again = f"Remove and create the lab again: tfctl lab down --name {node.lab.name}"
            raise NotFound(f"{node.name}: {folder}, a layer of its disk, is missing", again)
    work = node.folder / "work"
    for folder in (node.upper, work, node.root):
        folder.mkdir(parents=True, exist_ok=True)
    # The kernel's mark of an earlier volatile mount. The files are intact unless this machine crashed.
    shutil.rmtree(work / "work/incompat", ignore_errors=True)
    options = f"lowerdir={':'.join(map(str, lower))},upperdir={node.upper},workdir={work},volatile"
    try:
        run(["mount", "-t", "overlay", "-o", options, node.machine, str(node.root)])
    except TfctlError as fault:
        fault.remedy = (
            f"It needs Linux 5.10 or later, and {STATE} on a disk: an overlay cannot be the upper one of another."
        )
        raise


def settle(node: LabNode) -> None:
    """Turn what the node wrote into the new layer of its disk, which is recorded before the layer exists."""
    new = layer(node.disk.layers[0]) if node.disk.layers else None
    if new and not new.exists() and node.upper.exists():
        new.parent.mkdir(parents=True, exist_ok=True)
        node.upper.rename(new)


def unmount_root(node: LabNode) -> None:
    for point in mounts_under(node.root):
        unmount(point)


def log_tail(node: LabNode, lines: int = 5) -> str:
    """Return the last lines of the node's console."""
    text = node.console.read_text(errors="replace") if node.console.is_file() else ""
    plain = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).splitlines()]
    return "\n".join([line for line in plain if line][-lines:])


def make_key(path: Path, comment: str) -> None:
    """Make an ed25519 key pair without a passphrase. Replace an incomplete pair."""
    public = path.with_suffix(".pub")
    if public.is_file() and public.read_text().endswith("\n"):
        return
    for file in (path, public):
        file.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])


def _prepared(node: LabNode) -> Path:
    return node.folder / "prepared"


def _machine_id(node: LabNode) -> str:
    """Return the machine ID of the disk, under which a snapshot's journal is stored, or a new one for a base image."""
    file = node.root / "etc/machine-id"
    return file.read_text().strip() if file.is_file() else uuid.uuid4().hex


def _plant(path: Path, file: seed.Seed) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.owner:
        os.chown(path.parent, file.owner, file.owner)
        path.parent.chmod(0o700)
    write(path, file.text, file.mode)
    os.chown(path, file.owner, file.owner)
