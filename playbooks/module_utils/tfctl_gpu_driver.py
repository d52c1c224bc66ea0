"""Decide which NVIDIA driver a host gets, whether it needs a reboot, and what prevents either. Pure functions.

An installed driver that fits stays, wherever it came from. A driver is never changed under a running process or mixed
with packages of another origin.
"""

from __future__ import annotations

import re

from ansible.module_utils.tfctl_fault import INVENTORY
from ansible.module_utils.tfctl_gpu_cards import limits, named, numbers, usable
from ansible.module_utils.tfctl_gpu_source import distribution, has_repository

METHODS = ("auto", "repo", "distribution")
OPEN_SINCE = 560  # from this branch on, NVIDIA's default if the GPU supports both kernel modules
UNBRANCHED = 590  # from this branch on, its repository's packages have no branch in their names
FLAVOUR = re.compile(r"^\d[\d.]*-\d+-([a-z][\w-]*)$")  # Ubuntu's: 5.15.0-91-generic
MAKERS = {"run": "NVIDIA's .run installer", "nvidia": "NVIDIA's repository", "canonical": "Ubuntu", "debian": "Debian"}
INITRAMFS = {"update-initramfs": ["update-initramfs", "-u", "-k", "all"],
             "dracut": ["dracut", "--force", "--regenerate-all"]}  # fmt: skip
PERSISTENCE, FABRIC = "nvidia-persistenced", "nvidia-fabricmanager"


def driver(case):
    """Return the plan for the driver, or None if there is nothing to do.

    {"method", "version", "packages", "first", "stream", "own", "services", "blacklist", "unattended", "initramfs"}.
    version: of the driver that stays, else the branch to install. packages: installed in one transaction; first:
    installed before it. stream: the module stream for dnf. own: whether tfctl installed the driver that stays.
    blacklist: whether to block nouveau; initramfs: the command that removes it from the initramfs.
    """
    gpu, wish = case.gpu, str(case.wish["driver"])
    if not re.fullmatch(r"auto|none|\d{3}", wish):
        case.refuse(f"tfctl_driver is {wish!r}", "give auto, none, or a branch such as 580", INVENTORY)
        return None
    found = usable(gpu, case.stack)
    bounds = limits(found)
    if wish == "none" or gpu["container"]:
        judge_foreign(case, bounds)
        return None
    tell(case)
    version = gpu["version"] or gpu["loaded"]
    if version and bounds.newest and branch(version) > bounds.newest:
        said = f"driver {version} is there; {bounds.newest} is the last branch for {named(found)}"
        case.refuse(said, "remove it, reboot, then provision again")
        return None
    if version and numbers(version) >= least(case) and wish in ("auto", str(branch(version))):
        return kept(case, version)
    return brought(case, found, bounds, wish)


def reboot_reason(gpu):
    """Say why a host must be rebooted before its GPUs can be used, or return ""."""
    if gpu["nouveau"] and gpu["version"]:
        return f"driver {gpu['version']} is installed, and nouveau still holds the GPU"
    if gpu["loaded"] and gpu["version"] not in ("", gpu["loaded"]):
        return f"driver {gpu['version']} is installed, {gpu['loaded']} is loaded"
    return ""


def reboot_objection(gpu, units, control, host):
    """Return (why tfctl must not reboot this host, remedy), or ("", "") if it may.

    units: jobs that run. control and host: {"machine_id", "boot_id", "local"} of the machine tfctl runs on and of this.
    """
    same = any(host[key] and host[key] == control[key] for key in ("machine_id", "boot_id"))
    if control["local"] or same:
        return "it is the machine that tfctl runs on", "reboot it yourself, then provision again"
    if units:
        return f"{' and '.join(units[:3])} run", "tfctl stop the job, or wait for it, then provision again"
    if gpu["processes"]:
        return f"{users(gpu)} use the GPU", "wait for them or end them, then provision again"
    return "", ""


def broken(gpu):
    """Say why an installed driver does not work, or return ""."""
    answers = sorted({each["driver"] for each in gpu["smi"]["gpus"]})
    if not gpu["loaded"]:
        return "the driver is installed, and is not loaded"
    if gpu["smi"]["said"] or not answers:
        return f"nvidia-smi: {gpu['smi']['said'] or 'it shows no GPU'}"
    if gpu["version"] and answers != [gpu["version"]]:
        return f"nvidia-smi answers with driver {', '.join(answers)}, {gpu['version']} is installed"
    if gpu["switches"] and gpu["fabric_manager"] != gpu["version"]:
        return f"fabric manager {gpu['fabric_manager'] or 'none'} and driver {gpu['version']} differ: CUDA cannot start"
    return "" if gpu["persistence"] or not gpu["own"] else "nvidia-persistenced does not run"


def judge_foreign(case, bounds):
    """Judge a driver that somebody else maintains: check only whether it works for the stack."""
    gpu = case.gpu
    who = "the container's host" if gpu["container"] else "whoever looks after it (tfctl_driver is none)"
    wanted = f"{who} must bring {case.stack['gpu']['driver']['min']} or later"
    if not gpu["loaded"]:
        case.refuse(f"no driver is loaded for {named(usable(gpu, case.stack))}", wanted)
    elif numbers(gpu["loaded"]) < least(case):
        case.refuse(f"driver {gpu['loaded']} is too old for {case.name}", wanted)
    elif bounds.newest and branch(gpu["loaded"]) > bounds.newest:
        case.refuse(f"driver {gpu['loaded']} is too new for these GPUs", f"{who} must bring {bounds.newest} or older")
    elif gpu["smi"]["said"]:
        case.refuse(f"nvidia-smi: {gpu['smi']['said']}", mends(gpu["smi"]["said"]))


def mends(said):
    """Return the remedy for an error message of nvidia-smi."""
    if re.search("no nvidia-smi|libnvidia-ml", said):
        return "install the rest of the driver: its package nvidia-smi, nvidia-utils or nvidia-driver-cuda"
    return "restart the host (dmesg says more), or leave it out with --limit '!{host}'"


def tell(case):
    kernel = case.gpu["kernel"]
    if kernel["newest"] != kernel["release"]:
        case.notices.append(f"kernel {kernel['newest']} is installed, {kernel['release']} runs")
    failed = [f"{each['version']} for {each['kernel'] or 'no kernel'}" for each in case.gpu["dkms"]
              if each["state"] != "installed"]  # fmt: skip
    if failed:
        case.notices.append(f"DKMS has not built driver {' and '.join(failed)}; `dkms status` and its make.log say why")


def kept(case, version):
    """Keep a driver that fits. It may still need a reboot, its kernel module or the fabric manager."""
    gpu, packages = case.gpu, []
    restart = reboot_reason(gpu)
    if gpu["smi"]["said"] and not restart:
        case.refuse(f"nvidia-smi: {gpu['smi']['said']}", mends(gpu["smi"]["said"]))
    if gpu["switches"] and gpu["fabric_manager"] != version:
        packages = [f"{name}={version}-*" for name in fabric_packages(case, branch(version), gpu["origins"])]
    undone = gpu["own"] and (gpu["drifted"] or not gpu["blacklisted"] or not gpu["persistence"])
    if not (packages or restart or undone or not gpu["loaded"]):
        return None
    method = "repo" if gpu["origins"] == ["nvidia"] else "distribution"
    services = [PERSISTENCE] * gpu["own"] + [FABRIC] * bool(gpu["switches"])
    return {**around(gpu, services), "method": method, "packages": packages, "version": version}


def brought(case, found, bounds, wish):
    """Install a driver, or another branch. Report everything that prevents it at once."""
    gpu, seen = case.gpu, case.seen
    if bounds.modules is None:
        case.refuse(
            f"no one kernel module serves all of {named(found)}: some need the open one, some the proprietary",
            "move the GPUs to different hosts, or leave this one out with --limit '!{host}'",
        )
        return None
    method = method_of(case, bounds)
    chosen = method and branch_of(case, method, bounds, wish, found)
    if not chosen:
        return None
    is_open = bounds.modules == "open" or (bounds.modules == "either" and chosen >= OPEN_SINCE)
    names = packages_of(case, method, chosen, is_open)
    ours = "nvidia" if method == "repo" else "canonical" if seen["system"].startswith("ubuntu") else "debian"
    if gpu["processes"]:
        helps = "wait for them or end them, then provision again"
        case.refuse(f"the driver is not changed while {users(gpu)} use the GPU", helps)
    refuse_mixing(case, [name for name in gpu["origins"] if name != ours], ours)
    if gpu["held"]:
        free = "apt-mark unhold" if seen["packager"] == "apt-get" else "dnf versionlock delete"
        case.refuse(
            f"{' '.join(gpu['held'])} are on hold, and driver {chosen} is to replace them",
            f"{free} {' '.join(gpu['held'])}, or set tfctl_driver: none",
        )
    if not any(name.startswith("linux-modules-nvidia") for name in names["packages"]):
        judge_build(case)
    if gpu["switches"]:
        names["packages"] += fabric_packages(case, chosen, [ours])
    services = [PERSISTENCE] + [FABRIC] * bool(gpu["switches"])
    return {**around(gpu, services), **names, "blacklist": True, "method": method, "version": str(chosen)}


def method_of(case, bounds):
    """Return repo or distribution, or None with a fault. auto follows the installed driver, else prefers the
    distribution."""
    wish, origins, offered = case.wish["driver_method"], case.gpu["origins"], distribution(case, "driver")
    if wish not in METHODS:
        case.refuse(f"tfctl_driver_method is {wish!r}", f"give {', '.join(METHODS)}", INVENTORY)
        return None
    if wish == "distribution" and not offered:
        case.refuse(f"{case.seen['title']} has no driver of NVIDIA's that tfctl knows", "set tfctl_driver_method: repo")
        return None
    fabric = case.gpu["switches"] and case.seen["system"].startswith("debian")  # Debian has no fabric manager
    near = offered and not fabric and branches(case, "distribution", bounds)
    if wish == "distribution" or (wish == "auto" and origins != ["nvidia"] and near):
        return "distribution"
    return "repo" if has_repository(case, "tfctl_driver: none, and bring it yourself") else None


def branches(case, method, bounds):
    """Return the available branches, oldest first."""
    low = max(bounds.oldest, branch(case.stack["gpu"]["driver"]["min"]))
    high = min(bounds.newest or 999, case.stack["gpu"]["driver"]["max_branch"])
    if method == "repo":
        return [high] if high >= low else []
    offered = distribution(case, "driver")
    return [
        each for each in offered["branches"] if low <= each <= high and (bounds.modules != "open" or offered["open"])
    ]


def branch_of(case, method, bounds, wish, found):
    """Return the branch to install, or None with a fault if none fits."""
    low, high = max(bounds.oldest, branch(case.stack["gpu"]["driver"]["min"])), bounds.newest
    span = f"{low} to {high}" if high else f"{low} or later"
    offered = distribution(case, "driver")["branches"] if method == "distribution" else []
    has = f"{case.seen['title']} has {' and '.join(map(str, offered))}" if offered else ""
    if wish == "auto":
        fitting = branches(case, method, bounds)
        if not fitting:
            told = f"{named(found)} and {case.name} need a driver of branch {span}" + (f"; {has}" if has else "")
            case.refuse(told, "set tfctl_driver_method: repo" if has else "set tfctl_edition: cpu")
        return fitting[-1] if fitting else None
    chosen = int(wish)
    if chosen < low or (high and chosen > high):
        told = f"tfctl_driver is {chosen}; {named(found)} and {case.name} need a branch of {span}"
        case.refuse(told, "set tfctl_driver: auto, or a branch of that range")
        return None
    if offered and chosen not in offered:
        case.refuse(f"tfctl_driver is {chosen}; {has}", "take one of these, or set tfctl_driver_method: repo")
        return None
    return chosen


def refuse_mixing(case, foreign, ours):
    if not foreign:
        return
    undo = {"run": "run /usr/bin/nvidia-uninstall first", "nvidia": "set tfctl_driver_method: repo"}
    other = "set tfctl_driver_method: distribution, or remove the driver's packages first"
    there = " and ".join(MAKERS.get(name, name) for name in foreign)
    version = case.gpu["version"] or case.gpu["loaded"]
    case.refuse(
        f"driver {version} came from {there}, and {MAKERS[ours]} is to bring another: they break each other",
        f"{undo.get(foreign[0], other)}; or leave it as it is with tfctl_driver: none",
    )


def judge_build(case):
    """Add a fault if DKMS could not build the kernel module or the kernel would not load it."""
    kernel, ubuntu = case.gpu["kernel"], case.seen["system"].startswith("ubuntu")
    if case.gpu["secure_boot"] and not case.gpu["mok"]:
        key = "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"
        case.refuse(
            "Secure Boot is on, and this machine does not trust the key that DKMS would sign the driver with",
            f"mokutil --import {key} (dkms makes the key), reboot and enrol it at the console; or turn Secure Boot off"
            + ("; or set tfctl_driver_method: distribution" if ubuntu else ""),
        )
    if not kernel["headers"] and numbers(kernel["newest"]) > numbers(kernel["release"]):
        case.refuse(
            f"kernel {kernel['release']} runs without its headers, and {kernel['newest']} is installed: "
            "the driver would be built for the wrong one",
            "reboot into the new kernel, then provision again",
        )


def packages_of(case, method, chosen, is_open):
    """Return {"packages", "first", "stream"} of a branch."""
    release, system = case.gpu["kernel"]["release"], case.seen["system"]
    if method == "repo" and case.seen["packager"] == "dnf":
        names = ["nvidia-open" if is_open else "cuda-drivers", f"kernel-devel-{release}", "kernel-headers"]
        return {"packages": names, "first": [], "stream": f"nvidia-driver:{chosen}-{'open' if is_open else 'dkms'}"}
    headers = f"linux-headers-{release}"
    if method == "repo":
        name, late = "nvidia-open" if is_open else "cuda-drivers", chosen >= UNBRANCHED
        names = [name if late else f"{name}-{chosen}", headers]
        return {"packages": names, "first": [f"nvidia-driver-pinning-{chosen}"] if late else [], "stream": ""}
    if system.startswith("ubuntu"):
        return {"packages": of_ubuntu(case.gpu, chosen, is_open, headers), "first": [], "stream": ""}
    offered = distribution(case, "driver")
    module = "nvidia-open-kernel-dkms" if is_open and offered["open"] else "nvidia-kernel-dkms"
    return {"packages": [module, *offered["packages"], headers], "first": [], "stream": ""}


def of_ubuntu(gpu, chosen, is_open, headers):
    """Return Ubuntu's packages: with Secure Boot, the modules that Canonical built and signed."""
    kind, flavour = f"{chosen}-server{'-open' if is_open else ''}", FLAVOUR.match(gpu["kernel"]["release"])
    names = [f"nvidia-headless-{kind}", headers]
    if gpu["secure_boot"] and flavour:
        modules = [f"linux-modules-nvidia-{kind}-{end}" for end in (gpu["kernel"]["release"], flavour[1])]
        names = [f"nvidia-headless-no-dkms-{kind}", *modules]
    return [*names, f"nvidia-utils-{chosen}-server"]


def fabric_packages(case, chosen, origins):
    """Return the packages for the NVSwitches, in the driver's own version (NVIDIA's fabric manager guide)."""
    if origins not in (["nvidia"], ["canonical"]):
        told = f"the NVSwitches need a fabric manager of the driver's own version; {' and '.join(origins)} has none"
        case.refuse(told, "bring the driver with tfctl_driver_method: repo")
        return []
    late = case.seen["packager"] == "dnf" or chosen >= UNBRANCHED
    return ["nvidia-fabricmanager" if late else f"nvidia-fabricmanager-{chosen}"]


def around(gpu, services):
    """Return the settings that accompany a driver, and those that keep conflicts away."""
    return {
        "first": [],
        "stream": "",
        "own": gpu["own"],
        "services": services,
        "blacklist": gpu["nouveau"] or gpu["own"],
        "unattended": gpu["unattended"],
        "initramfs": INITRAMFS.get(gpu["initramfs"], []),
    }


def least(case):
    return numbers(case.stack["gpu"]["driver"]["min"])


def branch(version):
    return numbers(version)[0]


def users(gpu):
    told = [f"{each['name']} ({each['pid']})" for each in gpu["processes"][:3]]
    more = len(gpu["processes"]) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")
