#!/usr/bin/python
"""Find what prevents mounting the shared directory, and what is missing for it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import INVENTORY, fail, fault

DOCUMENTATION = """
module: tfctl_share
short_description: Look at what the role shared_storage is to do
description:
  - Changes nothing. Returns C(packages) that are missing and C(unit), systemd's name for a mount at O(path).
  - Fails for a directory whose files a mount would hide, and for one that is mounted from elsewhere.
options:
  kind: {type: str, required: true, choices: [existing, nfs, sshfs], description: How the directory comes to the host.}
  source: {type: str, required: true, description: "What is mounted: HOST:/PATH, or USER@HOST:/PATH for sshfs."}
  path: {type: path, required: true, description: Where.}
  packager: {type: str, required: true, choices: [apt-get, dnf], description: The host's package manager.}
"""

SERVER = r"(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):/[^\s\x00-\x1f\x7f]*"
FORMS = {"nfs": ("HOST:/PATH", SERVER), "sshfs": ("USER@HOST:/PATH", r"[A-Za-z0-9._-]+@" + SERVER)}
TYPES = {"nfs": ("nfs", "nfs4"), "sshfs": ("fuse.sshfs",)}
PROGRAMS = {"nfs": "mount.nfs", "sshfs": "sshfs"}
PACKAGES = {
    "nfs": {"apt-get": "nfs-common", "dnf": "nfs-utils"},
    "sshfs": {"apt-get": "sshfs", "dnf": "fuse-sshfs"},
}


def main():
    module = AnsibleModule(
        argument_spec={
            "kind": {"type": "str", "required": True, "choices": ["existing", *FORMS]},
            "source": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "packager": {"type": "str", "required": True, "choices": ["apt-get", "dnf"]},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    kind, path = wanted["kind"], wanted["path"].rstrip("/")
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    # An existing mount may be above the directory; the mount at / does not count.
    places = [path, *map(str, Path(path).parents)][:-1] if kind == "existing" else [path]
    there = next(filter(None, (mounted(mounts, place) for place in places)), None)
    faults = list(faults_of(kind, wanted["source"], path, there))
    if faults:
        fail(module, faults)
    can = kind == "existing" or shutil.which(PROGRAMS[kind], path="/usr/sbin:/usr/bin:/sbin:/bin")
    packages = [] if can else [PACKAGES[kind][wanted["packager"]]]
    module.exit_json(changed=False, packages=packages, unit=f"{escaped(path)}.mount")


def faults_of(kind, source, path, there):
    """Yield the faults. ``there``: (source, type) of the current mount, or None."""
    if kind == "existing":
        if there is None:
            yield fault(f"nothing is mounted at {path}", "mount it, or set tfctl_shared_storage to nfs or sshfs")
        return
    form, pattern = FORMS[kind]
    if not re.fullmatch(pattern, source):
        yield fault(f"tfctl_shared_source {source!r} is not {form}", f"say what {path} is mounted from", INVENTORY)
    if there and (there[0] != source or there[1] not in TYPES[kind]):
        message = f"{path} is mounted from {there[0]} ({there[1]}); {source} is wanted"
        yield fault(message, f"umount {path}, or set tfctl_shared_storage to existing")
    elif not there and Path(path).is_dir() and any(Path(path).iterdir()):
        message = f"{path} has files of this host; {source} mounted over it would hide them"
        yield fault(message, f"move away what `ls -A {path}` shows")
    if kind == "sshfs" and not Path("/dev/fuse").exists():
        yield fault("/dev/fuse is missing, and sshfs needs it", "load the module fuse, or use nfs")


def mounted(mounts, path):
    """Return (source, type) of the topmost mount at exactly this path in /proc/self/mountinfo, or None."""
    found = None
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        if head.split()[4].replace("\\040", " ") == path:
            kind, source = tail.split()[:2]
            found = source.replace("\\040", " "), kind
    return found


def escaped(path):
    """Escape a path other than / as systemd-escape(1) --path does."""
    text = "-".join("".join(map(escaped_letter, part)) for part in path.split("/") if part)
    return "\\x2e" + text[1:] if text.startswith(".") else text


def escaped_letter(letter):
    plain = re.fullmatch(r"[A-Za-z0-9:_.]", letter)
    return letter if plain else "".join(f"\\x{byte:02x}" for byte in letter.encode())


if __name__ == "__main__":
    main()
