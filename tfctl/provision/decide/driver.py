"""Decide which NVIDIA driver a host gets, and what prevents it.

An installed driver that fits stays, wherever it came from. A driver is never changed under a running process or mixed
with packages of another origin.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace

from tfctl.provision.decide import kernel, reboot
from tfctl.provision.decide.cards import Generation, GpuModel, limits, named, numbers, usable
from tfctl.provision.decide.decision import Driver
from tfctl.provision.decide.gpu_host import GpuHost
from tfctl.provision.decide.sources import has_repository, method_of

METHODS = ("auto", "repo", "distribution")
OPEN_SINCE = 560  # from this branch on, NVIDIA's default if the GPU supports both kernel modules
UNBRANCHED = 590  # from this branch on, its repository's packages have no branch in their names
FABRIC_RENAMED = 580  # from this branch on, the fabric manager's package on EL is named as elsewhere
MAKERS = {"run": "NVIDIA's .run installer", "nvidia": "NVIDIA's repository", "canonical": "Ubuntu", "debian": "Debian"}
INITRAMFS = {"update-initramfs": ("update-initramfs", "-u", "-k", "all"),
             "dracut": ("dracut", "--force", "--regenerate-all")}  # fmt: skip
ROLE = "nvidia_driver"
#: Packages of distributions that have the version of the driver. Others, such as nvidia-modprobe, may have their own.
VERSIONED = re.compile(
    r"(nvidia-(headless|utils|kernel-dkms|open-kernel-dkms|driver-bin|smi|open|fabric-?manager)|libcuda1|cuda-drivers)"
)
#: All that tfctl asks NVIDIA's repository for EL for. They have the version of the driver.
OF_NVIDIA = re.compile(r"nvidia-|cuda-drivers")
PERSISTENCE, FABRIC = "nvidia-persistenced", "nvidia-fabricmanager"  # services, and packages
MODPROBE = "nvidia-modprobe"  # the program that creates device nodes, and its package


def driver(host: GpuHost) -> Driver | None:
    """Return the decision about the driver, or None if there is nothing to do."""
    gpu, requested = host.gpu, host.preferences.driver
    if not re.fullmatch(r"auto|none|\d{3}(\.\d{1,3}){0,2}", requested):
        remedy = "give auto, none, a branch such as 580, or a version such as 580.159.03"
        host.findings.refuse(f"tfctl_driver is {requested!r}", remedy, "inventory")
        return None
    found = usable(gpu, host.needs)
    bounds = limits(found)
    if requested == "none" or gpu.container or gpu.vgpu:
        _judge_foreign(host, bounds)
        return None
    _notice(host)
    if not gpu.loaded and (problem := reboot.missing(gpu, host.preferences.gpus_expected)):
        host.findings.refuse(problem, reboot.MISSING)
    version = gpu.version or gpu.loaded
    if gpu.open_module and bounds.modules == "proprietary":
        message = f"NVIDIA's open kernel module is loaded, which does not support {named(found)}"
        remedy = "install this driver's proprietary module (on {host}: the packages without -open), reboot the host"
        host.findings.refuse(message, f"{remedy}, then provision again")
        return None
    if version and bounds.newest and _branch(version) > bounds.newest:
        message = f"driver {version} is installed; {bounds.newest} is the newest branch that supports {named(found)}"
        host.findings.refuse(message, "remove this driver, reboot the host, then provision again")
        return None
    fits = version and numbers(version) >= numbers(host.needs.driver.min)
    if not (fits and requested in ("auto", version, str(_branch(version)))):
        return _installed(host, found, bounds, requested)
    if not host.preferences.upgrade_driver or requested == version:
        return _kept(host, version)
    if not gpu.own:
        host.findings.notices.append(f"driver {version} was not installed by tfctl, so it is not upgraded")
        return _kept(host, version)
    return _installed(host, found, bounds, str(_branch(version)))


def _judge_foreign(host: GpuHost, bounds: Generation) -> None:
    """Judge a driver that somebody else maintains: check only whether it works for the stack."""
    gpu, oldest, refuse = host.gpu, host.needs.driver.min, host.findings.refuse
    who = "the maintainer of the driver (tfctl_driver is none)"
    if gpu.vgpu:
        who = "the owner of this virtual machine, whose GPU is a vGPU with a driver of its own (NVIDIA vGPU software),"
    if gpu.container:
        who = "the container's host"
    wanted = f"{who} must install {oldest} or later"
    if not gpu.loaded:
        refuse(f"no driver is loaded for {named(usable(gpu, host.needs))}", wanted)
    elif numbers(gpu.loaded) < numbers(oldest):
        refuse(f"driver {gpu.loaded} is too old for {host.stack}", wanted)
    elif bounds.newest and _branch(gpu.loaded) > bounds.newest:
        refuse(f"driver {gpu.loaded} is too new for these GPUs", f"{who} must install {bounds.newest} or older")
    elif gpu.smi.said:
        refuse(f"nvidia-smi: {gpu.smi.said}", _smi_remedy(gpu.smi.said))
    elif problem := reboot.missing(gpu, host.preferences.gpus_expected):
        refuse(problem, reboot.MISSING)
    elif gpu.missing_nodes:
        refuse(reboot.missing_nodes(gpu), f"{who} must create them at each boot: nvidia-modprobe(1)")
    elif gpu.switches and not gpu.fabric_running:
        refuse(reboot.NO_FABRIC, f"{who} must start it: systemctl enable --now nvidia-fabricmanager")


def _smi_remedy(said: str) -> str:
    """Return the remedy for an error message of nvidia-smi."""
    if re.search("no nvidia-smi|libnvidia-ml", said):
        return "install the rest of the driver: its package nvidia-smi, nvidia-utils or nvidia-driver-cuda"
    return "restart the host (see dmesg there), or leave it out with --limit '!{host}'"


def _notice(host: GpuHost) -> None:
    gpu, notices = host.gpu, host.findings.notices
    if gpu.kernel.newest != gpu.kernel.release:
        notices.append(f"kernel {gpu.kernel.newest} is installed, {gpu.kernel.release} runs")
    failed = [f"{each.version} for {each.kernel or 'no kernel'}" for each in gpu.dkms if each.state != "installed"]
    if gpu.beside:
        message = "NVIDIA's .run installer and packages have both installed a driver, and overwrite each other's files"
        notices.append(f"{message}: remove one of them, by nvidia-uninstall, or {' '.join(gpu.beside)}")
    if failed:
        notices.append(f"DKMS has not built driver {' and '.join(failed)}; see `dkms status` and its make.log")


def _kept(host: GpuHost, version: str) -> Driver | None:
    """Keep a driver that fits. It may still need a reboot, a kernel module, device nodes or the fabric manager.

    Return None if nothing has to be done and tfctl has left nothing on the host that could be compared.
    """
    gpu = host.gpu
    restart = reboot.reason(gpu)
    if gpu.smi.said and not restart:
        host.findings.refuse(f"nvidia-smi: {gpu.smi.said}", _smi_remedy(gpu.smi.said))
    elif not restart and (problem := reboot.missing(gpu, host.preferences.gpus_expected)):
        host.findings.refuse(problem, reboot.MISSING)
    if gpu.missing_nodes and not gpu.modprobe:
        host.findings.refuse(reboot.missing_nodes(gpu), "install nvidia-modprobe, which creates them")
    elif not gpu.modprobe and gpu.origins != ("canonical",):  # Ubuntu's driver has a rule for udev that creates it
        remedy = "install nvidia-modprobe, then provision again"
        host.findings.notices.append(f"nothing creates /dev/nvidia-uvm at the next boot: {remedy}")
    if restart:
        host.findings.notices.append(reboot.notice(restart))
    build = not (gpu.loaded or gpu.kernel.module)
    packages: tuple[str, ...] = ()
    if build:
        packages = kernel.repaired(host, version)
    elif gpu.own and gpu.dkms and not gpu.kernel.follows:
        packages = kernel.headers(host)
    if gpu.switches and gpu.fabric_manager != version:
        packages += tuple(f"{name}={version}-*" for name in _fabric_packages(host, _branch(version), gpu.origins))
    undone = gpu.own and (gpu.drifted or not gpu.blacklisted or not gpu.persistence)
    stopped = bool(gpu.switches) and gpu.fabric_manager == version and not gpu.fabric_running
    unsafe = stopped or (gpu.modprobe and not gpu.at_boot) or gpu.missing_nodes or (gpu.unattended and not gpu.excluded)
    needed = bool(packages or restart or undone or unsafe or not gpu.loaded)
    if not (needed or gpu.own or any(receipt.role == ROLE for receipt in host.facts.receipts)):
        return None
    signed = gpu.own and gpu.origins == ("canonical",) and kernel.is_signed(host)
    return replace(
        _decision(host, method_of(gpu), version, packages),
        nodes=gpu.modprobe,
        services=_services(host, persistence=gpu.own),
        build=build,
        blacklist=gpu.nouveau or gpu.own,
        signed=signed,
        needed=needed,
    )


def _installed(host: GpuHost, found: Sequence[GpuModel], bounds: Generation, requested: str) -> Driver | None:
    """Install a driver, or another branch. Report everything that prevents it at once."""
    gpu, facts, refuse = host.gpu, host.facts, host.findings.refuse
    if bounds.modules is None:
        refuse(
            f"no single kernel module supports all of {named(found)}: some need the open one, some the proprietary",
            "move the GPUs to different hosts, or leave this one out with --limit '!{host}'",
        )
        return None
    method = _method(host, bounds)
    chosen = _chosen_branch(host, method, bounds, requested, found) if method else None
    if not method or not chosen:
        return None
    _notice_end(host, method, chosen)
    is_open = bounds.modules == "open" or (bounds.modules == "either" and chosen >= OPEN_SINCE)
    packages, first, stream = _packages(host, method, chosen, is_open)
    wanted = requested if "." in requested else str(chosen)
    signed = method == "distribution" and kernel.is_signed(host)
    ours = "nvidia" if method == "repo" else "canonical" if facts.system.startswith("ubuntu") else "debian"
    if gpu.processes:
        helps = "wait for them or end them, then provision again"
        refuse(f"the driver is not changed while {reboot.users(gpu)} use the GPU", helps)
    # Something is loaded, but from no package that tfctl knows: vGPU software, a driver container, or loose files.
    origins = gpu.origins or (("unknown",) if gpu.loaded else ())
    _refuse_mixing(host, [name for name in origins if name != ours], ours)
    if gpu.held:
        free = "apt-mark unhold" if facts.packager == "apt-get" else "dnf versionlock delete"
        refuse(
            f"{' '.join(gpu.held)} are on hold, and driver {chosen} is to replace them",
            f"{free} {' '.join(gpu.held)}, or set tfctl_driver: none",
        )
    if gpu.display and method == "distribution":
        message = "this host has a desktop, and the driver that tfctl installs has no part for displays"
        remedy = "to use a screen on an NVIDIA GPU, install the full driver yourself, and set tfctl_driver: none"
        host.findings.notices.append(f"{message}: {remedy}")
    if not signed:
        kernel.judge_build(host)
    if gpu.nouveau:
        host.findings.notices.append(reboot.notice(f"driver {chosen} is to be installed, and nouveau holds the GPU"))
    elif gpu.loaded and _branch(gpu.loaded) != chosen:
        host.findings.notices.append(reboot.notice(f"driver {chosen} is to be installed, {gpu.loaded} is loaded"))
    if gpu.switches:
        packages += _fabric_packages(host, chosen, (ours,))
    if facts.packager == "dnf":
        # dnf leaves an installed package as it is, and a package outside of the module's streams would be the newest.
        version = f"{wanted}-*" if "." in wanted else f"{wanted}.*"
        packages = tuple(f"{name}={version}" if OF_NVIDIA.match(name) else name for name in packages)
    elif "." in wanted and method == "distribution":  # in NVIDIA's repository, pins choose the version
        packages = tuple(f"{name}={wanted}-*" if VERSIONED.match(name) else name for name in packages)
    if method == "repo" and facts.packager == "apt-get":
        packages += _outdated(gpu.packages, chosen, is_open, packages)
    decision = _decision(host, method, wanted, packages)
    # The package manager may configure the driver before the headers: then nothing has built the module.
    return replace(decision, first=first, stream=stream, upgrade=True, build=not signed, signed=signed)


def _notice_end(host: GpuHost, method: str, branch: int) -> None:
    """Say it if NVIDIA does not maintain a branch any more."""
    month = time.strftime("%Y-%m", time.gmtime(host.facts.clock.ended))
    ended = host.nvidia.ended(branch, month)
    if ended is not None:
        since = f" after {ended}" if ended else ""
        other = ""
        if method == "distribution" and host.facts.system in host.nvidia.repositories:
            other = f"; tfctl_driver_method: repo installs {host.needs.driver.max_branch}"
        host.findings.notices.append(f"NVIDIA does not maintain driver branch {branch}{since}{other}")


def _method(host: GpuHost, bounds: Generation) -> str | None:
    """Return repo or distribution, or None with a fault. auto follows the installed driver, else prefers the
    distribution."""
    requested, origins, offered = host.preferences.driver_method, host.gpu.origins, host.packaged_driver
    if requested not in METHODS:
        host.findings.refuse(f"tfctl_driver_method is {requested!r}", f"give {', '.join(METHODS)}", "inventory")
        return None
    if requested == "distribution" and not offered:
        message = f"tfctl supports no NVIDIA driver from the packages of {host.facts.title}"
        host.findings.refuse(message, "set tfctl_driver_method: repo")
        return None
    fabric = host.gpu.switches and host.facts.system.startswith("debian")  # Debian has no fabric manager
    near = offered and not fabric and _branches(host, "distribution", bounds)
    if requested == "distribution" or (requested == "auto" and origins != ("nvidia",) and near):
        return "distribution"
    return "repo" if has_repository(host, "tfctl_driver: none, and install it yourself") else None


def _branches(host: GpuHost, method: str, bounds: Generation) -> list[int]:
    """Return the available branches, oldest first."""
    low = max(bounds.oldest, _branch(host.needs.driver.min))
    high = min(bounds.newest or 999, host.needs.driver.max_branch)
    if method == "repo":
        return [high] if high >= low else []
    offered = host.packaged_driver
    if not offered or (bounds.modules == "open" and not offered.open):
        return []
    return [each for each in offered.branches if low <= each <= high]


def _chosen_branch(
    host: GpuHost, method: str, bounds: Generation, requested: str, found: Sequence[GpuModel]
) -> int | None:
    """Return the branch to install, or None with a fault if none fits."""
    low, high = max(bounds.oldest, _branch(host.needs.driver.min)), bounds.newest
    span = f"{low} to {high}" if high else f"{low} or later"
    packaged = host.packaged_driver
    offered = packaged.branches if method == "distribution" and packaged else ()
    has = f"{host.facts.title} has {' and '.join(map(str, offered))}" if offered else ""
    if requested == "auto":
        fitting = _branches(host, method, bounds)
        if not fitting:
            message = f"{named(found)} and {host.stack} need a driver of branch {span}" + (f"; {has}" if has else "")
            host.findings.refuse(message, "set tfctl_driver_method: repo" if has else "set tfctl_edition: cpu")
        return fitting[-1] if fitting else None
    chosen = _branch(requested)
    if chosen < low or (high and chosen > high):
        message = f"tfctl_driver is {chosen}; {named(found)} and {host.stack} need a branch of {span}"
        host.findings.refuse(message, "set tfctl_driver: auto, or a branch of that range")
        return None
    if offered and chosen not in offered:
        remedy = "use one of these, or set tfctl_driver_method: repo"
        host.findings.refuse(f"tfctl_driver is {chosen}; {has}", remedy)
        return None
    return chosen


def _refuse_mixing(host: GpuHost, foreign: Sequence[str], ours: str) -> None:
    if not foreign:
        return
    undo = {"run": "run /usr/bin/nvidia-uninstall first", "nvidia": "set tfctl_driver_method: repo"}
    undo["unknown"] = "remove it as it was installed, and restart the host"
    other = "set tfctl_driver_method: distribution, or remove the driver's packages first"
    there = " and ".join(MAKERS.get(name, f"an {name} source") for name in foreign)
    version = host.gpu.version or host.gpu.loaded
    host.findings.refuse(
        f"driver {version} is from {there}, and a second one from {MAKERS[ours]} would conflict with it",
        f"{undo.get(foreign[0], other)}; or leave it as it is with tfctl_driver: none",
    )


def _packages(host: GpuHost, method: str, chosen: int, is_open: bool) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return a branch's packages, those to install before them, and dnf's module stream."""
    name, headers = "nvidia-open" if is_open else "cuda-drivers", kernel.headers(host)
    if method == "repo" and host.facts.packager == "dnf":
        stream = f"nvidia-driver:{chosen}-{'open' if is_open else 'dkms'}"
        return (name, MODPROBE, *headers), kernel.first_packages(host), stream
    if method == "repo":
        if chosen >= UNBRANCHED:
            return (name, MODPROBE, *headers), (f"nvidia-driver-pinning-{chosen}",), ""
        return (f"{name}-{chosen}", MODPROBE, *headers), (), ""
    if host.facts.system.startswith("ubuntu"):
        return _of_ubuntu(host, chosen, is_open, headers), (), ""
    offered = host.packaged_driver
    module = "nvidia-open-kernel-dkms" if is_open and offered and offered.open else "nvidia-kernel-dkms"
    return (module, *(offered.packages if offered else ()), *headers), (), ""


def _outdated(installed: Sequence[str], chosen: int, is_open: bool, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the installed packages that are to follow. NVIDIA's metapackages for apt require minimal versions only."""
    found = []
    for name in installed:
        branch = re.search(r"-(\d{3})(?:-|$)", name)
        module = re.search("kernel|dkms", name)
        if not (branch and int(branch[1]) != chosen) and not (module and ("open" in name) != is_open):
            found.append(name)
    return tuple(name for name in found if name not in asked)


def _of_ubuntu(host: GpuHost, chosen: int, is_open: bool, headers: tuple[str, ...]) -> tuple[str, ...]:
    """Return Ubuntu's packages: with Secure Boot, the modules that Canonical built and signed."""
    kind = f"{chosen}-server{'-open' if is_open else ''}"
    programs = (f"nvidia-utils-{chosen}-server", MODPROBE)
    if kernel.is_signed(host):
        return (f"nvidia-headless-no-dkms-{kind}", *kernel.signed_modules(host, kind), *programs)
    return (f"nvidia-headless-{kind}", *headers, *programs)


def _fabric_packages(host: GpuHost, chosen: int, origins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages for the NVSwitches, in the driver's own version (NVIDIA's fabric manager guide)."""
    if origins not in (("nvidia",), ("canonical",)):
        message = f"the NVSwitches need a fabric manager of the driver's own version; {' and '.join(origins)} has none"
        host.findings.refuse(message, "install the driver with tfctl_driver_method: repo")
        return ()
    if host.facts.packager == "dnf":
        return (FABRIC if chosen >= FABRIC_RENAMED else "nvidia-fabric-manager",)
    return (FABRIC if chosen >= UNBRANCHED else f"{FABRIC}-{chosen}",)


def _decision(host: GpuHost, method: str, version: str, packages: tuple[str, ...]) -> Driver:
    """Return the decision about a driver that tfctl installs, with everything that it needs."""
    return Driver(
        method=method,
        version=version,
        pin=version if version == host.preferences.driver or "." not in version else str(_branch(version)),
        packages=packages,
        first=(),
        stream="",
        upgrade=False,
        own=host.gpu.own,
        nodes=True,
        services=_services(host, persistence=True),
        build=False,
        blacklist=True,
        unattended=host.gpu.unattended,
        signed=False,
        initramfs=INITRAMFS.get(host.gpu.initramfs, ()),
        needed=True,
    )


def _services(host: GpuHost, *, persistence: bool) -> tuple[str, ...]:
    return (*([PERSISTENCE] if persistence else []), *([FABRIC] if host.gpu.switches else []))


def _branch(version: str) -> int:
    return numbers(version)[0]
