"""Decide what a host's kernel needs so that it has a driver's module, now and after an update of the kernel."""

from __future__ import annotations

import re

from tfctl.provision.decide.cards import numbers
from tfctl.provision.decide.gpu_host import GpuHost

FLAVOUR = re.compile(r"^\d[\d.]*-\d+-[a-z][\w-]*$")  # a kernel of Ubuntu's: 5.15.0-91-generic
UBUNTUS_KEY, DKMS_KEY = "/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub"  # MOK_KEYS in gpu_facts.py


def headers(host: GpuHost) -> tuple[str, ...]:
    """Return the packages with the headers of the running kernel, and the one that installs those of later kernels."""
    kernel = host.gpu.kernel
    if host.facts.packager == "dnf":
        return (f"kernel-devel-{kernel.release}", f"kernel-devel-matched-{kernel.release}", "kernel-headers")
    following = kernel.metapackage.replace("linux-image-", "linux-headers-", 1)
    return (f"linux-headers-{kernel.release}", *([following] if following else []))


def is_signed(host: GpuHost) -> bool:
    """Return whether the host takes the modules that Canonical builds and signs: Secure Boot loads no others."""
    ubuntu = host.facts.system.startswith("ubuntu")
    return ubuntu and host.gpu.secure_boot and bool(FLAVOUR.match(host.gpu.kernel.release))


def signed_modules(host: GpuHost, kind: str) -> tuple[str, ...]:
    """Return the packages with Canonical's modules for the running kernel, and the one that follows its updates.

    ``kind``: such as 580-server-open.
    """
    kernel = host.gpu.kernel
    # Virtual machines have kernels of the flavour generic.
    flavour = kernel.metapackage.replace("linux-image-", "", 1).replace("virtual", "generic", 1)
    ends = (kernel.release, *([flavour] if flavour else []))
    return tuple(f"linux-modules-nvidia-{kind}-{end}" for end in ends)


def first_packages(host: GpuHost) -> tuple[str, ...]:
    """Return the packages to install first so that DKMS can be installed. On EL it is in EPEL."""
    kernel, offered = host.gpu.kernel, host.gpu.kernel.offered
    if host.facts.packager != "dnf" or kernel.dkms or "dkms" in (offered or ()):
        return ()
    if "epel-release" in offered if offered is not None else not host.facts.title.startswith("Red Hat"):
        return ("epel-release",)
    host.findings.refuse(
        f"the package sources of {host.facts.title} do not contain DKMS, which builds the driver's module",
        "enable EPEL, which has it, then provision again; or install the driver yourself, and set tfctl_driver: none",
    )
    return ()


def judge_build(host: GpuHost) -> None:
    """Add a fault if DKMS could not build the kernel module or the kernel would not load it."""
    kernel, ubuntu = host.gpu.kernel, host.facts.system.startswith("ubuntu")
    if host.gpu.secure_boot and not host.gpu.mok:
        steps = [*key_commands(host), f"mokutil --import {UBUNTUS_KEY if ubuntu else DKMS_KEY}"]
        host.findings.refuse(
            "Secure Boot is on, and this machine does not trust the key that DKMS would sign the driver with",
            f"{', '.join(steps)}, reboot and enrol the key at the console; or turn Secure Boot off"
            + ("; or set tfctl_driver_method: distribution" if ubuntu else ""),
        )
    if kernel.headers:
        return
    if numbers(kernel.newest) > numbers(kernel.release):
        host.findings.refuse(
            f"kernel {kernel.release} runs without its headers, and {kernel.newest} is installed: "
            "the driver would be built for the wrong one",
            "reboot into the new kernel, then provision again",
        )
    elif kernel.offered is not None and headers(host)[0] not in kernel.offered:
        host.findings.refuse(
            f"kernel {kernel.release} runs, and the package sources do not have its headers any more",
            f"{upgrade(host)}, reboot, then provision again",
        )


def key_commands(host: GpuHost) -> list[str]:
    """Return the commands that create the key with which DKMS signs modules. None if the host has it."""
    kernel, known = host.gpu.kernel, host.gpu.kernel.offered or ()
    if host.gpu.signing_key:
        return []
    if host.facts.system.startswith("ubuntu"):
        return ["update-secureboot-policy --new-key"]
    if host.facts.packager == "dnf":
        epel = "enable EPEL" if host.facts.title.startswith("Red Hat") else "dnf install epel-release"
        install = [*([] if "dkms" in known else [epel]), "dnf install dkms"]
    else:
        install = ["apt-get install dkms"]
    return [*([] if kernel.dkms else install), "dkms generate_mok"]


def upgrade(host: GpuHost) -> str:
    """Return the command that installs the latest kernel."""
    if host.facts.packager == "dnf":
        return "dnf upgrade kernel"
    flavour = re.sub(r"^[\d.]+(\+\w+)?-(\d+-)?", "", host.gpu.kernel.release)
    return f"apt-get update, apt-get install {host.gpu.kernel.metapackage or f'linux-image-{flavour}'}"


def repaired(host: GpuHost, version: str) -> tuple[str, ...]:
    """Return the packages with which DKMS builds the missing module of an installed driver. None, with a fault."""
    gpu, release = host.gpu, host.gpu.kernel.release
    if any(each.version == version for each in gpu.dkms):
        judge_build(host)
        return headers(host)
    message = f"driver {version} is installed, but has no module for the running kernel {release}"
    remedy = f"install the module for {release} from where the driver is from, or boot a kernel that has one"
    if gpu.origins == ("run",):
        remedy = "run NVIDIA's installer again, or boot a kernel that has the module"
    elif gpu.origins == ("canonical",):
        modules = f"linux-modules-nvidia-{numbers(version)[0]}"
        remedy = f"install the package that `apt-cache search {modules} | grep {release}` names, or boot another kernel"
    host.findings.refuse(message, remedy)
    return ()
