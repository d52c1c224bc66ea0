"""What a host has of NVIDIA: GPUs, driver loaded and installed, where it came from, and what stands in a driver's way.

Reads /sys and /proc, and asks a program only where there is something to ask about: a host without an NVIDIA device
costs one listing of a directory.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.tfctl_gpu_cards import identify, is_nvswitch, numbers

NVIDIA = 0x10DE
LIMIT_S = 30  # a sick driver hangs nvidia-smi
HELD = "var/lib/tfctl/held.json"  # written by tfctl_packages
BLACKLIST = "etc/modprobe.d/tfctl-nouveau.conf"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MOK_KEYS = ("var/lib/dkms/mok.pub", "var/lib/shim-signed/mok/MOK.der")
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
# They keep the devices open and are no one's work. comm holds 15 letters (proc(5)).
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi")
MAKERS = (("Debian", "debian"), ("NVIDIA", "nvidia"), ("Ubuntu", "canonical"), ("RPM Fusion", "rpmfusion"))
PACKAGE = re.compile(
    r"^(nvidia-(driver|kernel|open|dkms|headless|utils|smi|compute|fabricmanager|persistenced|modprobe|firmware|legacy"
    r"|tesla)|libnvidia-(?!container)|libcuda1|linux-(modules|objects)-nvidia|cuda-drivers|k?a?mod-nvidia"
    r"|xorg-x11-drv-nvidia|firmware-nvidia)"
)
# Their version is the driver's; that of nvidia-modprobe and its like may be another.
LIBRARY = re.compile(
    r"^(libcuda1$|libnvidia-(compute|ml)|nvidia-driver-(cuda-)?libs|xorg-x11-drv-nvidia-cuda|nvidia-driver-cuda)"
)
VERSION = re.compile(r"(?:^|:)(\d{3}\.\d+(?:\.\d+)?)")
QUERY = "uuid,name,compute_cap,driver_version,mig.mode.current"
OLD_QUERY = "uuid,name,driver_version"  # before 510 nvidia-smi knows no compute_cap, before 450 no MIG


def look(root="/"):
    """The facts, plain JSON; None where there is nothing of NVIDIA. ``root``: another tree, in tests."""
    root = Path(root)
    devices, switches = pci(root)
    if not devices and not (root / "proc/driver/nvidia/version").exists():
        return None
    loaded = loaded_version(root)
    secure = secure_boot(root)
    return {
        "devices": devices,
        "switches": switches,
        "loaded": loaded,
        "smi": smi() if loaded else {"said": "", "gpus": []},
        "processes": processes(root) if loaded else [],
        **packages(root),
        "nouveau": (root / "sys/module/nouveau").is_dir(),
        "blacklisted": (root / BLACKLIST).exists(),
        "persistence": (root / "run/nvidia-persistenced/socket").exists(),
        "secure_boot": secure,
        "mok": secure and enrolled(root),
        "dkms": dkms(run(["dkms", "status"])[1]) if (root / "var/lib/dkms").is_dir() else [],
        "unattended": unattended(root),
        "container": container(),
        "kernel": kernel(root),
        "initramfs": next((name for name in ("update-initramfs", "dracut") if shutil.which(name, path=SBIN)), ""),
    }


def pci(root):
    """(GPUs, number of NVSwitches) of the PCI bus."""
    devices, switches = [], 0
    for path in sorted((root / "sys/bus/pci/devices").glob("*")):
        if number(path / "vendor") != NVIDIA:
            continue
        device, pci_class = number(path / "device"), number(path / "class") >> 8
        if pci_class >> 8 == 0x03:  # a display controller: VGA 0300, or 3D 0302 as most for computing are
            devices.append({"slot": path.name, "id": f"{device:04x}", **identify(device)})
        elif is_nvswitch(device, pci_class):
            switches += 1
    return devices, switches


def loaded_version(root):
    """Of the driver in the kernel; "" without one."""
    said = first_line(root / "proc/driver/nvidia/version")
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d{3}\.\d+(?:\.\d+)?)", said)
    return match[1] if match else first_line(root / "sys/module/nvidia/version")


def smi():
    """{"said": its complaint, "gpus": [{"uuid", "name", "capability", "driver", "mig"}]} of nvidia-smi."""
    for query in (QUERY, OLD_QUERY):
        code, said = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
        if code == 0:
            return {"said": "", "gpus": [gpu_of(query, line) for line in said.splitlines() if line.strip()]}
        if "not a valid field" not in said:
            break
    return {"said": " ".join(said.split())[:300] or "there is no nvidia-smi", "gpus": []}


def gpu_of(query, line):
    row = dict(zip(query.split(","), (cell.strip() for cell in line.split(","))))
    return {
        "uuid": row["uuid"],
        "name": row.get("name", ""),
        "capability": row.get("compute_cap", ""),
        "driver": row.get("driver_version", ""),
        "mig": row.get("mig.mode.current") == "Enabled",
    }


def processes(root):
    """Who has a GPU open: [{"pid", "name"}], without NVIDIA's own daemons."""
    found = []
    for folder in (root / "proc").glob("[0-9]*"):
        name = first_line(folder / "comm")
        try:
            links = [] if name in DAEMONS else [str(path.readlink()) for path in (folder / "fd").iterdir()]
        except OSError:
            continue  # it has ended
        if any(re.match(r"/dev/nvidia(\d|-uvm)", link) for link in links):
            found.append({"pid": int(folder.name), "name": name})
    return sorted(found, key=lambda each: each["pid"])


def packages(root):
    """What the package manager has of a driver; or what NVIDIA's own installer left.

    version: of the driver installed, "" for none. origins: who made it. held: packages that somebody but tfctl put on
    hold. own: whether tfctl installed it. drifted: packages of tfctl's that are no longer as it left them.
    """
    ours = [row for row in installed(root) if PACKAGE.match(row[0])]
    noted = own_holds(root)
    now = {name: version if held else None for name, version, _, held in ours}
    told = [version for name, version, _, _ in ours if LIBRARY.match(name)]
    versions = sorted({match[1] for match in map(VERSION.search, told) if match}, key=numbers)
    fabric = [VERSION.search(version) for name, version, _, _ in ours if "fabricmanager" in name]
    origins = {maker(who) for _, _, who, _ in ours}
    if (root / "usr/bin/nvidia-uninstall").exists():
        origins.add("run")
        versions = versions or [library_version(root)]
    return {
        "version": versions[-1] if versions else "",
        "origins": sorted(origins),
        "held": sorted(name for name, _, _, held in ours if held and name not in noted),
        "own": bool(noted),
        "drifted": sorted(name for name, version in noted.items() if now.get(name) != version),
        "fabric_manager": fabric[0][1] if fabric and fabric[0] else "",
    }


def installed(root):
    """[(name, version, maintainer, on hold)] of what has NVIDIA in its name."""
    patterns = ["*nvidia*", "cuda-drivers*", "libcuda1*", "libcudnn*", "libnccl*"]
    code, said = run(
        ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\t${Maintainer}\n", *patterns]
    )
    if code in (0, 1):  # 1: one of the patterns matches nothing
        rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 3]
        return [(name, version, who, status[0] == "h") for status, name, version, who in rows if status[1:2] == "i"]
    lock = root / "etc/dnf/plugins/versionlock.list"
    locked = lock.read_text(encoding="utf-8") if lock.exists() else ""
    shape = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{VENDOR} %{PACKAGER}\n"
    rows = [line.split("\t") for line in run(["rpm", "-qa", "--qf", shape, *patterns])[1].splitlines()]
    return [(name, version, who, f"{name}-" in locked) for name, version, who in (row for row in rows if len(row) == 3)]


def own_holds(root):
    """{package: version} of the driver that tfctl_packages put on hold."""
    try:
        return json.loads((root / HELD).read_text(encoding="utf-8")).get("nvidia_driver", {})
    except (OSError, ValueError):
        return {}


def maker(maintainer):
    """By a package's Maintainer ("Debian NVIDIA Maintainers") or vendor."""
    return next((name for word, name in MAKERS if word in maintainer), "unknown")


def library_version(root):
    found = [path.name.partition(".so.")[2] for path in (root / "usr").glob("lib*/**/libnvidia-ml.so.*.*")]
    return max(found, key=numbers, default="")


def kernel(root):
    """The running one, whether its headers are there, and the newest one installed."""
    release = platform.release()
    names = [path.name.partition("vmlinuz-")[2] for path in (root / "boot").glob("vmlinuz-[0-9]*")]
    newest = max(names, key=numbers, default=release)
    return {"release": release, "headers": (root / "lib/modules" / release / "build").exists(), "newest": newest}


def secure_boot(root):
    """efivarfs puts four bytes of attributes before the value."""
    try:
        return (root / SECURE_BOOT).read_bytes()[4:5] == b"\x01"
    except OSError:
        return False


def enrolled(root):
    """Whether the machine trusts the key that DKMS signs with. mokutil ends with 1 when it does, so its words count."""
    keys = [str(root / key) for key in MOK_KEYS if (root / key).exists()]
    return any("already enrolled" in run(["mokutil", "--test-key", key])[1] for key in keys)


def dkms(text):
    """`dkms status` of versions 2 (`nvidia, 470.57, 5.10.0-8-amd64, x86_64: installed`) and 3 (`nvidia/535.104, …`)."""
    shape = re.compile(r"nvidia[\w-]*[/,] ?([^,:]+)(?:, ([^,]+), [^:]+)?: (\w+)")
    found = [match.groups() for match in map(shape.match, text.splitlines()) if match]
    return [{"version": version, "kernel": release or "", "state": state} for version, release, state in found]


def unattended(root):
    """Whether packages are upgraded at night."""
    try:
        said = (root / "etc/apt/apt.conf.d/20auto-upgrades").read_text(encoding="utf-8")
        return bool(re.search(r'Unattended-Upgrade\s+"[1-9]', said))
    except OSError:
        return (root / "etc/systemd/system/timers.target.wants/dnf-automatic.timer").exists()


def container():
    said = run(["systemd-detect-virt", "--container"])[1].strip()
    return "" if said == "none" else said


def number(path):
    try:
        return int(path.read_text(encoding="ascii").strip(), 16)
    except (OSError, ValueError):
        return 0


def first_line(path):
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def run(command):
    """(exit code, what it said); 127 when it is not there, 124 when it hangs."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError:
        return 127, ""
    try:
        said = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel does not even die
            process.wait(1)
        return 124, f"{command[0]} does not answer"
    return process.returncode, said
