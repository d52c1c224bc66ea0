"""Facts about NVIDIA on a host: GPUs, the loaded and the installed driver, its origin, and what may block a driver.

It reads /sys and /proc and runs programs only if there is something to ask. On a host without an NVIDIA device it only
lists one directory.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.tfctl.cluster.plugins.module_utils import gpu_defects, kernel_facts, pci_gpus
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import (
    content,
    first_line,
    number,
    numbers,
    read_json,
    run,
)

NVIDIA = 0x10DE
HELD = "var/lib/tfctl/held.json"  # written by the role nvidia_packages
BLACKLIST = "etc/modprobe.d/tfctl-nouveau.conf"
EXCLUSION = "etc/apt/apt.conf.d/52tfctl-nvidia"
UNIT = "etc/systemd/system/tfctl_nvidia.service"
AT_BOOT = "etc/systemd/system/multi-user.target.wants/tfctl_nvidia.service"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOK_KEYS = ("var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der")
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
# Daemons that keep the devices open without using them. comm holds 15 characters (proc(5)).
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "dcgm-exporter", "nvidia-smi")
#: What nvidia-smi is asked for. It lacks compute_cap before driver 510, and mig.mode.current before 450. The name comes
#: last, because only it may contain a comma.
FIELDS: tuple[str, ...] = (
    "uuid", "pci.bus_id", "compute_cap", "driver_version", "mig.mode.current", "persistence_mode", *gpu_defects.FIELDS,
    "name",
)  # fmt: skip


def look(root: Path = Path("/")) -> dict[str, object] | None:
    """Return the facts as plain JSON, or None without NVIDIA hardware or driver. ``root``: another tree, for tests.

    SeenGpu in tfctl/provision/decide/readings.py documents them.
    """
    found, switches = pci(root)
    devices = [{"slot": device.bus, "id": device.id} for device in found]
    if not devices and not (root / "proc/driver/nvidia/version").exists():
        return None
    loaded = pci_gpus.loaded_driver(root)
    secure = secure_boot(root)
    answer = smi() if loaded else None
    return {
        "devices": devices,
        "vgpu": any(pci_gpus.is_vgpu(root / "sys/bus/pci", device.bus) for device in found),
        "switches": switches,
        "fabric_running": bool(switches) and run(["systemctl", "is-active", "nvidia-fabricmanager"])[0] == 0,
        "loaded": loaded,
        "open_module": "Open Kernel Module" in first_line(root / "proc/driver/nvidia/version"),
        "smi": answer,
        "log": run(["journalctl", *pci_gpus.LOG])[1] if answer and answer["said"].count("\n") < len(devices) else "",
        "missing_nodes": missing_nodes(root) if loaded else [],
        "at_boot": (root / AT_BOOT).is_symlink() and (root / UNIT).is_file(),
        "modprobe": (root / "usr/bin/nvidia-modprobe").exists(),
        "processes": processes(root) if loaded else [],
        "packages": installed(root),
        "holds": own_holds(root),
        "installer": library_version(root) if (root / "usr/bin/nvidia-uninstall").exists() else None,
        "nouveau": (root / "sys/module/nouveau").is_dir(),
        "blacklisted": (root / BLACKLIST).exists(),
        "persistenced": (root / "run/nvidia-persistenced/socket").exists(),
        "secure_boot": secure,
        "mok": secure and enrolled(root),
        "signing_key": secure and any((root / key).exists() for key in MOK_KEYS),
        "dkms": run(["dkms", "status"])[1] if (root / "var/lib/dkms").is_dir() else "",
        "unattended": unattended(root),
        "excluded": (root / EXCLUSION).exists() or not (root / "etc/apt").is_dir(),
        "apt_sources": apt_sources(root),
        "container": container(),
        "display": (root / "etc/systemd/system/display-manager.service").is_symlink(),
        "kernel": kernel_facts.look(root),
        "initramfs": next((name for name in ("update-initramfs", "dracut") if shutil.which(name, path=SBIN)), ""),
    }


def pci(root: Path) -> tuple[list[pci_gpus.Device], int]:
    """Return (GPUs, number of NVSwitches) on the PCI bus."""
    bus, switches = root / "sys/bus/pci", 0
    for path in (bus / "devices").glob("*"):
        # A bridge; the ids of NVIDIA's chip sets are lower.
        if number(path / "vendor") == NVIDIA and number(path / "class") >> 8 == 0x0680:
            switches += number(path / "device") >= 0x1AC0
    return [*pci_gpus.devices(bus)], switches


def smi() -> dict[str, Any]:
    """Return the exit code and the output of nvidia-smi, and which fields it was asked for: all that it knows."""
    fields = FIELDS
    while True:
        query = ",".join(fields)
        code, said = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
        rejected = pci_gpus.REJECTED.search(said)
        if rejected is None or rejected[1] not in fields:
            return {"query": query, "code": code, "said": said}
        fields = tuple(field for field in fields if field != rejected[1])


def missing_nodes(root: Path) -> list[str]:
    """Return the device nodes that CUDA needs and that do not exist. A job cannot create them."""
    gpus = (root / "proc/driver/nvidia/gpus").glob("*/information")
    minors = [re.search(r"^Device Minor:\s*(\d+)", content(path), re.MULTILINE) for path in gpus]
    names = ["nvidiactl", *sorted(f"nvidia{match[1]}" for match in minors if match), "nvidia-uvm"]
    return [f"/dev/{name}" for name in names if not (root / "dev" / name).is_char_device()]


def processes(root: Path) -> list[dict[str, object]]:
    """Return the processes that have a GPU open, without NVIDIA's own daemons: [{"pid", "name"}]."""
    found: dict[int, str] = {}
    for folder in (root / "proc").glob("[0-9]*"):
        name = first_line(folder / "comm")
        try:
            links = [] if name in DAEMONS else [str(path.readlink()) for path in (folder / "fd").iterdir()]
        except OSError:
            continue  # it has ended
        if any(re.match(r"/dev/nvidia(\d|-uvm)", link) for link in links):
            found[int(folder.name)] = name
    return [{"pid": pid, "name": name} for pid, name in sorted(found.items())]


def installed(root: Path) -> list[list[str]]:
    """Return name, version, maintainer or vendor of NVIDIA's packages, and "held" for those on hold.

    The packages that tfctl has recorded for the driver are among them, whatever their names.
    """
    patterns = ["*nvidia*", "cuda-drivers*", "libcuda1*", "libcudnn*", "libnccl*", *own_holds(root)]
    shape = "${db:Status-Abbrev}\t${Package}\t${Version}\t${Maintainer}\n"
    code, said = run(["dpkg-query", "-W", "-f", shape, *patterns])
    if code in (0, 1):  # 1: one of the patterns matches nothing
        rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 3]
        return [[*row, "held" if status[0] == "h" else ""] for status, *row in rows if status[1:2] == "i"]
    lock = content(root / "etc/dnf/plugins/versionlock.list")
    shape = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{VENDOR} %{PACKAGER}\n"
    rows = [line.split("\t") for line in run(["rpm", "-qa", "--qf", shape, *patterns])[1].splitlines()]
    return [[*row, "held" if f"{row[0]}-" in lock else ""] for row in rows if len(row) == 3]


def own_holds(root: Path) -> dict[str, str]:
    """Return {package: version} of the driver packages that the role nvidia_packages put on hold."""
    return dict(read_json(root / HELD).get("nvidia_driver", {}))


def library_version(root: Path) -> str:
    found = [path.name.partition(".so.")[2] for path in (root / "usr").glob("lib*/**/libnvidia-ml.so.*.*")]
    return max(found, key=numbers, default="")


def secure_boot(root: Path) -> bool:
    """Return whether Secure Boot is on. efivarfs puts four bytes of attributes before the value."""
    try:
        return (root / SECURE_BOOT).read_bytes()[4:5] == b"\x01"
    except OSError:
        return False


def enrolled(root: Path) -> bool:
    """Return whether the machine trusts DKMS's signing key. mokutil exits with 1 if it does, so parse its output."""
    keys = [str(root / key) for key in MOK_KEYS if (root / key).exists()]
    return any("already enrolled" in run(["mokutil", "--test-key", key])[1] for key in keys)


def unattended(root: Path) -> bool:
    """Return whether unattended upgrades are enabled."""
    said = content(root / "etc/apt/apt.conf.d/20auto-upgrades")
    timer = root / "etc/systemd/system/timers.target.wants/dnf-automatic.timer"
    return bool(re.search(r'Unattended-Upgrade\s+"[1-9]', said)) or timer.exists()


def apt_sources(root: Path) -> dict[str, str]:
    """Return the text of apt's source files that may have a repository of NVIDIA, by path, without tfctl's own.

    Users and passwords in URLs are left out.
    """
    files = [root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").glob("*.[ls]*")]
    texts = {f"/{path.relative_to(root)}": content(path) for path in files if path.name != "tfctl-nvidia.sources"}
    return {path: re.sub(r"(?<=://)[^/\s]+@", "", text) for path, text in texts.items() if "/cuda/repos/" in text}


def container() -> str:
    """Return the kind of the container that this is, or ""."""
    code, said = run(["systemd-detect-virt", "--container"])
    return said.strip() if code == 0 else ""
