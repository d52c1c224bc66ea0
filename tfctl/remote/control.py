"""Control sockets of OpenSSH (ControlPath in ssh_config(5)): where they are, and whether an `ssh` listens."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

# A socket's path has at most 104 bytes. ssh appends 17 characters while it makes it, and our names have up to 25.
_LONGEST = 104 - 17 - 25


def folder() -> Path | None:
    """Return this user's directory for control sockets, or None if no directory is safe. Another user who could write
    to it could take over the connections."""
    usual = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")
    return next((found for each in usual if each and (found := _safe(Path(each, f"tfctl-{os.getuid()}")))), None)


def _safe(path: Path) -> Path | None:
    """Return the directory, which is created if it does not exist, if it is safe and its path is short enough."""
    if len(os.fsencode(path)) > _LONGEST:
        return None
    with suppress(OSError):
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
        safe = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
        return path if safe else None
    return None


def listens(path: Path) -> bool:
    """Return whether an `ssh` listens on the control socket ``path``."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
