#!/usr/bin/python3
"""Fakes of modprobe, nvidia-modprobe, nvidia-smi, nvidia-persistenced and dkms, as one program under several names.

They follow modprobe(8), nvidia-modprobe(1) and its source, nvidia-smi(1), nvidia-persistenced(1) and dkms(8). As with
the real programs, a module is built only where the kernel's headers are, and loaded only where it was built; loading it
creates no device node; nvidia-smi and nvidia-persistenced create nvidiactl and the GPUs' nodes, and only
`nvidia-modprobe -u -c=0` creates nvidia-uvm. Only root may create nodes.

The environment variable FAKE_ROOT names a tree to use instead of /. What a kernel shows of the driver is in
run/stub/driver, to which /proc/driver has to lead; it is lost at a reboot. A node is a link to /dev/null, because a
container must not create devices. Runs on nodes: standard library, Python 3.9.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ.get("FAKE_ROOT", "/"))
RELEASE = os.uname().release
DRIVER = ROOT / "run/stub/driver/nvidia"
UVM = ROOT / "run/stub/uvm"
PERSISTENCE = ROOT / "run/stub/persistence"
SOCKET = ROOT / "run/nvidia-persistenced/socket"
BUILDS = ROOT / "var/lib/dkms/fake.json"
SLOT = "0000:17:00.0"
UUID = "GPU-1b7a7a2e-0001-0000-0000-000000000001"
NAMES = ("modprobe", "nvidia-modprobe", "nvidia-smi", "nvidia-persistenced", "dkms")


def install(folder: Path, root: Path) -> None:
    """Write the programs for a tree into a directory, for PATH."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        (folder / name).write_text(f'#!/bin/sh\nFAKE_ROOT={root} exec {sys.executable} -S {__file__} {name} "$@"\n')
        (folder / name).chmod(0o755)


def modprobe(words: list[str]) -> int:
    names = [word for word in words if not word.startswith("-")]
    return next((1 for name in names if not load(name)), 0)


def load(name: str) -> bool:
    """Load a module, if there is one for the running kernel. It creates no device node."""
    if loaded():
        module = True
    else:
        folder = ROOT / "lib/modules" / RELEASE
        found = [path for each in ("nvidia", "nvidia-current") for path in folder.rglob(f"{each}.ko")]
        module = bool(found)
        if found:
            information = DRIVER / "gpus" / SLOT / "information"
            information.parent.mkdir(parents=True, exist_ok=True)
            information.write_text("Model: \t\t NVIDIA A100 80GB PCIe\nDevice Minor: \t 0\n")
            said = (
                f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {found[0].read_text().strip()}  Sat Feb 17 22:55:48"
            )
            (DRIVER / "version").write_text(f"{said} UTC 2024\n")
    if not module:
        print(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{RELEASE}", file=sys.stderr)
    elif name == "nvidia-uvm":
        UVM.touch()
    return module


def loaded() -> str:
    """Return the version of the loaded driver, or ""."""
    try:
        return (DRIVER / "version").read_text().split("Module", 1)[1].split()[0]
    except OSError:
        return ""


def node(name: str) -> None:
    place = ROOT / "dev" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to("/dev/null")


def nvidia_modprobe(words: list[str]) -> int:
    minors = [int(word.partition("=")[2]) for word in words if word.startswith("-c=")]
    if "-u" in words:
        if not (load("nvidia-uvm") and UVM.exists()):
            return 1
        for minor in minors:
            node({0: "nvidia-uvm", 1: "nvidia-uvm-tools"}.get(minor, f"nvidia-uvm{minor}"))
        return 0
    if not load("nvidia"):
        return 1
    for minor in minors:
        node({255: "nvidiactl", 254: "nvidia-modeset"}.get(minor, f"nvidia{minor}"))
    return 0


def library() -> str:
    """Return the version of the installed library of the driver."""
    try:
        said = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "libcuda1"], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        said = ""
    return said.partition("-")[0] or loaded()


def open_gpus() -> bool:
    """Open every GPU as root, as the driver's own programs do."""
    done = nvidia_modprobe(["-c=255"]) == 0 and nvidia_modprobe(["-c=0"]) == 0
    return done and loaded() == library()


def nvidia_smi(words: list[str]) -> int:
    if not load("nvidia"):
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
              "NVIDIA driver is installed and running.\n")  # fmt: skip
        return 9
    if not open_gpus():
        print(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library()[:7]}")
        return 18
    mode = PERSISTENCE.read_text().strip() if PERSISTENCE.exists() else "Disabled"
    if words in (["--persistence-mode=1"], ["-pm", "1"]):
        PERSISTENCE.write_text("Enabled\n")
        print(f"Enabled persistence mode for GPU 0000{SLOT}.\nAll done.")
        return 0
    if words == ["-L"]:
        print(f"GPU 0: NVIDIA A100 80GB PCIe (UUID: {UUID})")
        return 0
    if words[0].startswith("--query-compute-apps="):
        return 0
    if words[0] == "-i":
        if words[1] != UUID:
            print("No devices were found")
            return 6
        words = words[2:]
    fields = {
        "index": "0", "uuid": UUID, "pci.bus_id": f"0000{SLOT}", "name": "NVIDIA A100 80GB PCIe", "compute_cap": "8.0",
        "driver_version": loaded(), "memory.total": "81920 MiB", "mig.mode.current": "Disabled",
        "persistence_mode": mode, "ecc.mode.current": "Enabled", "ecc.errors.uncorrected.volatile.total": "0",
        "clocks.current.sm": "210 MHz", "clocks.max.sm": "1410 MHz", "temperature.gpu": "31", "power.draw": "44.28 W",
    }  # fmt: skip
    asked = words[0].partition("=")[2].split(",")
    wrong = [field for field in asked if field not in fields]
    if wrong:
        print(f'Field "{wrong[0]}" is not a valid field to query.\n')
        return 2
    if "nounits" in words[-1]:
        fields = {field: re.sub(" (MiB|MHz|W)$", "", value) for field, value in fields.items()}
    print(", ".join(fields[field] for field in asked))
    return 0


def nvidia_persistenced(words: list[str]) -> int:
    if not (load("nvidia") and open_gpus()):
        print("Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist", file=sys.stderr)
        return 1
    SOCKET.parent.mkdir(parents=True, exist_ok=True)
    SOCKET.touch()
    PERSISTENCE.write_text("Disabled\n" if "--no-persistence-mode" in words else "Enabled\n")
    if "FAKE_ROOT" not in os.environ and os.fork() == 0:  # a daemon, unless in a test without systemd
        time.sleep(10**6)
    return 0


def dkms(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), "")
    options = {word: words[number] for number, word in enumerate(words[:-1], 1)}
    name, version = options.get("-m", ""), options.get("-v", "")
    if "/" in name:
        name, _, version = name.partition("/")
    kernel = options.get("-k") or options.get("--kernelver") or RELEASE
    modules = json.loads(BUILDS.read_text()) if BUILDS.exists() else {}
    if verb == "status":
        for each, known in sorted(modules.items()):
            states = known["built"] or {"": "added"}
            for where, state in states.items():
                print(f"{each}/{known['version']}{f', {where}, x86_64' if where else ''}: {state}")
        return 0
    if verb == "add":
        modules.setdefault(name, {"version": version, "built": {}})
        return keep(modules)
    if verb == "remove":
        modules.pop(name, None)
        return keep(modules)
    if verb not in ("build", "install", "autoinstall"):
        return 0
    for each in [name] if name else sorted(modules):
        if not (ROOT / "lib/modules" / kernel / "build/include").exists():
            print(f"Error! Your kernel headers for kernel {kernel} cannot be found at /lib/modules/{kernel}/build or "
                  f"/lib/modules/{kernel}/source.", file=sys.stderr)  # fmt: skip
            return 11 if verb == "autoinstall" else 21
        modules[each]["built"][kernel] = "built" if verb == "build" else "installed"
        if verb != "build":
            place = ROOT / "lib/modules" / kernel / "updates/dkms" / f"{each}.ko"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(modules[each]["version"])
            (ROOT / "lib/modules" / kernel / "modules.dep").write_text(f"updates/dkms/{each}.ko:\n")
    return keep(modules)


def keep(modules: dict[str, object]) -> int:
    BUILDS.parent.mkdir(parents=True, exist_ok=True)
    BUILDS.write_text(json.dumps(modules))
    return 0


def main(name: str, words: list[str]) -> int:
    program = {
        "modprobe": modprobe, "nvidia-modprobe": nvidia_modprobe, "nvidia-smi": nvidia_smi,
        "nvidia-persistenced": nvidia_persistenced, "dkms": dkms,
    }[name]  # fmt: skip
    return program(words)


if __name__ == "__main__":
    known = re.sub(r".*/", "", sys.argv[0]) in NAMES
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]) if known else main(sys.argv[1], sys.argv[2:]))
