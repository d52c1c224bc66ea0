"""How a lab acts on this machine: commands, locks, mounts and files."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from tfctl.errors import PreflightFailed, TfctlError
from tfctl.lab.spec import Progress

_TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
}
_LOCKS = Path("/run/tfctl-lab")
_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def preflight() -> None:
    """Raise PreflightFailed if this machine or user cannot run a lab."""
    require_linux()
    if os.geteuid() != 0:
        raise PreflightFailed("a lab needs root (mounts, bridge, namespaces)", "Run it with sudo.")
    missing = sorted({package for tool, package in _TOOLS.items() if not which(tool)})
    if missing:
        raise PreflightFailed(
            f"a lab needs packages that are not installed: {', '.join(missing)}",
            f"apt-get install --yes {' '.join(missing)}",
        )


def require_linux() -> None:
    """Raise PreflightFailed on any other system."""
    if sys.platform != "linux":
        raise PreflightFailed(
            "a lab boots Linux nodes and needs a Linux machine",
            "All other commands work on this machine.",
        )


def which(tool: str) -> str | None:
    """Find a program on PATH or in sbin, which a user's PATH often lacks."""
    return shutil.which(tool, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN)))


def run(command: Sequence[str], *, timeout: float = 60.0, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command. If ``check`` is set, raise TfctlError with the command and its last output when it fails."""
    words = [which(command[0]) or command[0], *command[1:]]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=timeout, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        what = f"`{shorten(' '.join(command), 160)}` ran longer than {timeout:g} s and was killed"
        raise TfctlError(what, "run it by hand to see what it waits for") from None
    except OSError as fault:
        raise TfctlError(f"{command[0]}: {fault}") from fault
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise TfctlError(f"`{shorten(' '.join(command), 160)}` ended with {done.returncode}: {' / '.join(said)}")
    return done


@contextmanager
def locked(what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock on this machine; report if it has to wait. The lock is released if the process dies.

    Its holder removes the lock file.
    """
    _LOCKS.mkdir(parents=True, exist_ok=True)
    path = _LOCKS / f"{what}.lock"
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(f"waiting for another tfctl process that holds the lock {what}")
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # the last holder has removed the file; another process may have created and locked a new one
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def mounts_under(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Return the mount points at or below ``folder`` (an absolute path without links), innermost first."""
    inside = [point for point in _mount_points(table) if point == folder or folder in point.parents]
    return sorted(inside, key=lambda point: len(point.parts), reverse=True)


def unmount(point: Path) -> None:
    """Unmount. If the mount is in use, detach it: it leaves the tree at once and is released after its last use."""
    if run(["umount", str(point)], check=False).returncode != 0:
        run(["umount", "--lazy", str(point)])


def remove_tree(folder: Path) -> None:
    """Delete a directory. Raises TfctlError if anything is mounted in it."""
    if left := mounts_under(folder):
        raise TfctlError(f"{left[0]}: is mounted, so it cannot be deleted", f"umount {left[0]}")
    run(["rm", "-rf", "--one-file-system", str(folder)], timeout=600)


def wait_for(condition: Callable[[], bool], limit: float, pause: float = 0.02) -> bool:
    """Poll until ``condition`` holds. Return False after ``limit`` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def give_to_caller(path: Path) -> None:
    """Under sudo, make the calling user the owner of a file that they must read, such as a key."""
    if "SUDO_UID" in os.environ:
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1")), follow_symlinks=False)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file atomically. A link in its place is replaced, not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    part.replace(path)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _mount_points(table: Path) -> Iterator[Path]:
    for line in table.read_text().splitlines():
        # proc_pid_mountinfo(5): the fifth field, with space, tab, newline and backslash as octal escapes
        yield Path(line.split()[4].encode().decode("unicode_escape"))
