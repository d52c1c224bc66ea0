"""Facts about the kernel of a host with GPUs: whether it has a driver's module, and whether one can be built for it."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from ansible_collections.tfctl.cluster.plugins.module_utils.programs import content, numbers, run

#: The driver's module, as Debian, Ubuntu, EL and NVIDIA's installer name it; not nvidia-drm, nvidiafb and the like.
MODULE = re.compile(r"/nvidia(-current|-tesla[-\w]*|-legacy[-\w]*)?\.ko(\.\w+)?:", re.MULTILINE)
#: A metapackage, which depends on a kernel, such as linux-image-amd64 or linux-image-generic-hwe-22.04.
METAPACKAGE = re.compile(r"linux-image-(?!\d|unsigned-|dbg)(?!.*-dbg$)")
#: The package of EL with which headers follow updates of the kernel.
FOLLOWING = "kernel-devel-matched"
#: In the package lists of every Debian and Ubuntu: if they lack it, nobody has updated them.
WITNESS = "linux-libc-dev"


def look(root: Path = Path("/")) -> dict[str, object]:
    """Return the facts as plain JSON, which Kernel in tfctl/provision/decide/facts.py documents."""
    release = platform.release()
    names = [path.name.partition("vmlinuz-")[2] for path in (root / "boot").glob("vmlinuz-[0-9]*")]
    headers = (root / "lib/modules" / release / "build").exists()
    meta, following = metapackage(release)
    wanted = [] if headers else [f"linux-headers-{release}"]
    tools = (root / "usr/sbin/dkms").exists()
    if not shutil.which("apt-get"):
        following = "" if run(["rpm", "-q", FOLLOWING])[0] == 0 else FOLLOWING
        wanted = [*([] if headers else [f"kernel-devel-{release}"]), *([] if tools else ["dkms", "epel-release"])]
    return {
        "release": release,
        "headers": headers,
        "newest": max(names, key=numbers, default=release),
        "module": bool(MODULE.search(content(root / "lib/modules" / release / "modules.dep"))),
        "metapackage": meta,
        "follows": not following,
        "dkms": tools,
        "offered": offered(wanted) if wanted else [],
    }


def metapackage(release: str) -> tuple[str, str]:
    """Return the installed metapackage of the running kernel, and that of its headers if it is not installed.

    Each is "" if there is none. If there are several, that of the running kernel's series is returned.
    """
    shape = "${db:Status-Abbrev}\t${Package}\t${Depends}\n"
    code, said = run(["dpkg-query", "-W", "-f", shape, "linux-image-*", "linux-headers-*"])
    rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2] if code in (0, 1) else []
    installed = {name: depends for status, name, depends in rows if status[1:2] == "i"}
    found = sorted(name for name in installed if METAPACKAGE.match(name))
    series = ".".join(release.split(".")[:2])
    fitting = [name for name in found if f"linux-image-{series}." in installed[name]] or found
    if not fitting:
        return "", ""
    headers = fitting[0].replace("linux-image-", "linux-headers-", 1)
    return fitting[0], "" if headers in installed else headers


def offered(names: Collection[str]) -> list[str] | None:
    """Return those of the packages that the host's package lists contain, or None if it has no lists yet.

    The lists are not updated.
    """
    if not shutil.which("apt-get"):
        shape = "%{name} %{name}-%{version}-%{release}.%{arch}\n"
        kinds = ["kernel-devel", "dkms", "epel-release"]
        code, said = run(["dnf", "-q", "-C", "repoquery", "--qf", shape, *kinds])
        known = {word for line in said.splitlines() for word in line.split()}
        return sorted(known & {*names}) if code == 0 else None
    said = run(["apt-cache", "madison", WITNESS, *names])[1]
    known = {match[1] for match in re.finditer(r"^ *(\S+) \|", said, re.MULTILINE)}
    return sorted(known & {*names}) if WITNESS in known else None
