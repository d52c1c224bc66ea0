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

from ansible.module_utils import (
    tfctl_firewalld_facts,
    tfctl_gpu_facts,
    tfctl_horovod_facts,
    tfctl_links,
    tfctl_pythons,
    tfctl_receipts,
    tfctl_versions,
)

STACKS = "/opt/tfctl/stacks"


def gather(
    uid: int,
    directories: Iterable[str],
    pythons: Sequence[str] = (),
    libraries: Sequence[str] = (),
    address: str = "",
) -> dict[str, object]:
    """Return the facts as plain JSON, which tfctl/provision/decide/facts.py documents.

    ``uid``: the wanted UID of the job user; ``directories``: those whose disks are looked at, where ~ is the home
    directory of the login user. ``pythons`` and ``libraries`` are passed to tfctl_pythons.look. ``address``: where the
    other hosts reach this one.
    """
    begun, release = time.time(), tfctl_versions.os_release()
    login = os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
    return {
        "system": system_key(release),
        "title": release.get("PRETTY_NAME", "an unknown system"),
        "machine": platform.machine(),
        "init": read("/proc/1/comm"),
        "systemd": tfctl_versions.systemd() or 0,
        "own_python": list(sys.version_info[:2]),
        "python": tfctl_pythons.look(pythons, libraries),
        "packager": next((name for name in ("apt-get", "dnf") if shutil.which(name)), ""),
        "root": os.geteuid() == 0,
        "login": login,
        "sudo": bool(program("sudo") and program("visudo")),
        "user": account("tfctl"),
        "group": group("tfctl"),
        "uid_owner": name_of(pwd.getpwuid, uid),
        "gid_owner": name_of(grp.getgrgid, uid),
        "identity": identity(),
        "addresses": addresses(address) if address else [],
        "disks": {path: disk(re.sub("^~(?=/|$)", f"~{login}", path)) for path in directories},
        "environments": sorted(each.name for each in Path(STACKS).glob("*") if not each.is_symlink()),
        "links": links(),
        "mpiruns": tfctl_horovod_facts.mpiruns(),
        "horovods": tfctl_horovod_facts.horovods(),
        "openmpis": tfctl_horovod_facts.linked(),
        "gpu": tfctl_gpu_facts.look(),
        "firewalld": tfctl_firewalld_facts.look(),
        "selinux": Path("/sys/fs/selinux/enforce").exists(),
        "receipts": [asdict(each) for each in tfctl_receipts.check_all()],
        "clock": {"begun": begun, "ended": time.time()},
    }


def identity() -> dict[str, str]:
    return {
        "hostname": socket.gethostname(),
        "machine_id": read("/etc/machine-id"),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
    }


def addresses(name: str) -> list[str]:
    """Return the addresses to which a name resolves on this host, or nothing if it does not resolve."""
    with contextlib.suppress(OSError, UnicodeError):
        return sorted({str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    return []


def system_key(release: dict[str, str]) -> str:
    """Return the system's name in tfctl's table: debian-12, ubuntu-22.04, el-9."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    likes = release.get("ID_LIKE", "").split()
    if name in ("rhel", "rocky", "almalinux", "centos") or "rhel" in likes:
        return f"el-{version.partition('.')[0]}"
    return f"{name}-{version}"


def links() -> dict[str, dict[str, str]]:
    """Return {stack: {"current", "before"}}: the names of its environments, or ""."""
    names = [each for each in Path(STACKS).glob("*") if each.is_symlink()]
    return {
        link.name: {
            "current": getattr(tfctl_links.current(link), "name", ""),
            "before": getattr(tfctl_links.before(link), "name", ""),
        }
        for link in names
    }


def program(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin")


def account(name: str) -> int | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name).pw_uid
    return None


def group(name: str) -> int | None:
    with contextlib.suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return None


def name_of(look_up: Callable[[int], Any], number: int) -> str | None:
    """Return the name that pwd or grp has for a number."""
    with contextlib.suppress(KeyError):
        return str(look_up(number)[0])
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


def read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    return ""
