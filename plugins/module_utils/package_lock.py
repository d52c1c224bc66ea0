"""Find the process that uses apt or dnf, and wait for it. Their own messages while they wait reach nobody."""

from __future__ import annotations

import fcntl
import struct
import time
from pathlib import Path

from ansible_collections.tfctl.cluster.plugins.module_utils.install import TURN_S, Locked
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import content

#: What apt, dpkg and rpm lock, and the files into which dnf writes the ID of its process.
FILES = ("var/lib/dpkg/lock*", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock", "var/lib/rpm/.rpm.lock",
         "var/cache/dnf/*_lock.pid", "var/lib/dnf/*_lock.pid")  # fmt: skip
#: struct flock of fcntl(2): type, whence, start, length and the ID of the process.
FLOCK = "hhqqi"


def wait_until_free(root: Path) -> None:
    """Wait until no other process uses the package manager. Raises Locked after TURN_S, which names the process."""
    ends = time.monotonic() + TURN_S
    while users := [pid for pattern in FILES for path in root.glob(pattern) if (pid := user_of(path)) is not None]:
        if time.monotonic() > ends:
            name = content(Path(f"/proc/{users[0]}/comm")).strip() or "another program"
            raise Locked(f"{name} (process {users[0]}) uses the package manager")
        time.sleep(0.5)


def user_of(path: Path) -> int | None:
    """Return the ID of the process that has locked a file or written its ID into it, or None if there is none.

    The ID is 0 if the process is in another container.
    """
    if path.suffix == ".pid":
        return int(said) if (said := content(path).strip()).isdigit() and Path("/proc", said).exists() else None
    try:
        with path.open("rb") as file:
            found = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        return None
    kind, *_, pid = struct.unpack(FLOCK, found)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)
