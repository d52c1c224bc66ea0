"""Gather the facts about a host that decide what it gets, once and cheaply."""

from __future__ import annotations

import contextlib
import grp
import os
import platform
import pwd
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible_collections.tfctl.cluster.plugins.module_utils import gpu_facts, links, receipts, versions
from ansible_collections.tfctl.cluster.plugins.module_utils import pythons as interpreters
from ansible_collections.tfctl.cluster.plugins.module_utils.links import STACKS
from ansible_collections.tfctl.cluster.plugins.module_utils.lookup import addresses
from ansible_collections.tfctl.cluster.plugins.module_utils.package_lock import user_of
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import content, run

PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


def gather(
    uid: int,
    directories: Iterable[str],
    pythons: Sequence[str] = (),
    libraries: Sequence[str] = (),
    address: str = "",
    peers: Sequence[str] = (),
) -> dict[str, object]:
    """Return the facts as plain JSON, which tfctl/provision/decide/facts.py documents.

    ``uid``: the wanted UID of the job user; ``directories``: those whose disks are looked at, where ~ is the home
    directory of the login user. ``pythons`` and ``libraries`` are passed to pythons.py. ``address``: where the
    other hosts reach this one. ``peers``: names of other hosts.
    """
    begun, release = time.time(), versions.os_release()
    login = os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
    return {
        "system": system_key(release),
        "title": release.get("PRETTY_NAME", "an unknown system"),
        "machine": platform.machine(),
        "wsl": "microsoft" in platform.release().lower(),
        "init": content(Path("/proc/1/comm")).strip(),
        "systemd": versions.systemd() or 0,
        "own_python": list(sys.version_info[:2]),
        "python": interpreters.look(pythons, libraries),
        "packager": next((name for name in ("apt-get", "dnf") if shutil.which(name)), ""),
        "unfinished": unfinished(Path("/var/lib/dpkg")),
        "root": os.geteuid() == 0,
        "login": login,
        "sudo": all(shutil.which(name, path=PATH) for name in ("sudo", "visudo")),
        "user": entry(pwd.getpwnam, "tfctl", 2),
        "group": entry(grp.getgrnam, "tfctl", 2),
        "uid_owner": entry(pwd.getpwuid, uid, 0),
        "gid_owner": entry(grp.getgrgid, uid, 0),
        "identity": identity(),
        "addresses": addresses(address) if address else [],
        "peers": {name: addresses(name) for name in peers},
        "disks": {path: disk(re.sub("^~(?=/|$)", f"~{login}", path)) for path in directories},
        "environments": sorted(each.name for each in STACKS.glob("*") if not each.is_symlink()),
        "links": linked(),
        "mpiruns": mpiruns(),
        "horovods": horovods(),
        "openmpis": openmpis(),
        "gpu": gpu_facts.look(),
        "firewalld": firewalld(),
        "selinux": Path("/sys/fs/selinux/enforce").exists(),
        "receipts": [asdict(each) for each in receipts.check_all()],
        "clock": {"begun": begun, "ended": time.time()},
    }


def identity() -> dict[str, str]:
    return {
        "hostname": socket.gethostname(),
        "machine_id": content(Path("/etc/machine-id")).strip(),
        "boot_id": content(Path("/proc/sys/kernel/random/boot_id")).strip(),
    }


def system_key(release: dict[str, str]) -> str:
    """Return the system's name in tfctl's table: debian-12, ubuntu-22.04, el-9."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    likes = release.get("ID_LIKE", "").split()
    if name in ("rhel", "rocky", "almalinux", "centos") or "rhel" in likes:
        return f"el-{version.partition('.')[0]}"
    return f"{name}-{version}"


def unfinished(dpkg: Path) -> list[str]:
    """Return the packages that dpkg has left half installed or unconfigured, and "" if it was interrupted before that.

    Return nothing while another program has its lock, and therefore may be about to complete them. ``dpkg``: its
    directory.
    """
    status = dpkg / "status"
    if not status.exists() or user_of(dpkg / "lock-frontend") is not None:
        return []
    shape = r"^Package: (\S+)\nStatus: \S+ \S+ (?:half-installed|half-configured|unpacked)$"
    names = re.findall(shape, content(status), re.MULTILINE)
    return [*names, *([""] if any(each.name.isdigit() for each in (dpkg / "updates").glob("*")) else [])]


def firewalld() -> dict[str, str] | None:
    """Return the default zone, and the zones as firewall-cmd prints them, or None where firewalld does not run."""
    if not shutil.which("firewall-cmd") or run(["firewall-cmd", "--state"])[0] != 0:
        return None
    code, said = run(["firewall-cmd", "--list-all-zones"])
    default = run(["firewall-cmd", "--get-default-zone"])[1].strip()
    return {"default": default, "zones": said if code == 0 else ""}


def linked() -> dict[str, dict[str, str]]:
    """Return {stack: {"current", "before"}}: the names of its environments, or ""."""
    names = [each for each in STACKS.glob("*") if each.is_symlink()]
    return {
        link.name: {
            "current": getattr(links.current(link), "name", ""),
            "before": getattr(links.before(link), "name", ""),
        }
        for link in names
    }


def horovods(stacks: Path = STACKS) -> list[str]:
    """Return the names of the environments that use a Horovod."""
    return sorted({path.parents[3].name for path in stacks.glob(f"*-*/lib/python3.*/site-packages/{links.HOROVOD}")})


def openmpis(stacks: Path = STACKS) -> list[str]:
    """Return the names of the environments that link to an Open MPI built by tfctl."""
    return sorted({path.parents[1].name for path in stacks.glob("*-*/bin/mpirun") if path.is_symlink()})


def mpiruns(prefixes: Iterable[str] = ("/usr", "/usr/lib64/openmpi")) -> dict[str, str]:
    """Return {prefix: version of its mpirun}; the version is "" if it does not run."""
    return {prefix: mpirun_version(prefix) for prefix in prefixes if os.path.lexists(f"{prefix}/bin/mpirun")}


def mpirun_version(prefix: str) -> str:
    code, said = run([f"{prefix}/bin/mpirun", "--version"])
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return found[0] if found and code == 0 else ""


def entry(look_up: Callable[[Any], Any], key: object, field: int) -> Any:
    """Return a field of the entry that pwd or grp has for a name or number, or None."""
    with contextlib.suppress(KeyError):
        return look_up(key)[field]
    return None


def disk(path: str) -> dict[str, object]:
    """Return the device, free space and free inodes of the nearest existing directory.

    The device identifies the file system. ``free_inodes``: None if it has no fixed number of inodes. ``mark``: the
    inode and the time of the last change, which no two directories on different machines have in common.
    """
    wanted = Path(os.path.expandvars(path)).expanduser()
    here = next(each for each in (wanted, *wanted.parents) if each.is_dir())
    info, status = os.statvfs(here), here.stat()
    return {
        "device": status.st_dev,
        "free_mb": info.f_bavail * info.f_frsize // 2**20,
        "free_inodes": info.f_favail if info.f_files else None,
        "noexec": bool(info.f_flag & os.ST_NOEXEC),
        "at": str(here),
        "mark": f"{status.st_ino} {status.st_mtime_ns}" if here == wanted else "",
    }
