"""Decide how a host gets CUDA, cuDNN and NCCL: as wheels, packages or an archive."""

from __future__ import annotations

from dataclasses import replace

from tfctl.model.stacks.nvidia import LibraryName, Packaged
from tfctl.provision.decide.cards import numbers
from tfctl.provision.decide.decision import Archive, Library
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.gpu_host import GpuHost
from tfctl.provision.decide.sources import has_repository, mirrored, refuse_unverified

METHODS = ("auto", "wheels", "repo", "distribution", "archive")
TITLES: dict[LibraryName, str] = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}
PREFIX = "/opt/tfctl"


def library(host: GpuHost, name: LibraryName, method: str) -> Library | None:
    """Return the decision about a library by this method; None if it is in the stack's wheels, or with a fault."""
    if method not in METHODS:
        host.findings.refuse(f"tfctl_{name}_method is {method!r}", f"give {', '.join(METHODS)}", "inventory")
        return None
    decide = {"wheels": _of_wheels, "repo": _of_repo, "distribution": _of_distribution, "archive": _of_archive}
    return decide[_best(host, name) if method == "auto" else method](host, name)


def nccl(host: GpuHost) -> Library | None:
    """Return the decision about NCCL; None if it is in the stack's wheels, not needed or not there, or with a fault.

    TensorFlow contains its own or has it as a wheel, so only Horovod needs it, and can do without: then add a notice.
    """
    method = host.preferences.nccl_method
    if method != "auto" or host.needs.wheels:
        return library(host, "nccl", method)
    if not host.preferences.horovod:
        return None
    trial = Findings()
    found = library(replace(host, findings=trial), "nccl", method)
    for fault in trial.faults:
        host.findings.notices.append(
            f"{fault['message']}: Horovod is built without NCCL, so it averages gradients on the CPU"
        )
    return found


def soname(name: LibraryName, version: str) -> str:
    """Return what programs ask the loader for."""
    parts = numbers(version)
    if name != "cuda":
        return f"lib{name}.so.{parts[0]}"
    if parts[0] == 11:
        return "libcudart.so.11.0"
    return f"libcudart.so.{parts[0] if parts[0] > 11 else _release(version)}"


def serves(name: LibraryName, have: str, wanted: str) -> bool:
    """Return whether version ``have`` can replace ``wanted``. CUDA before 11 has no minor-version compatibility, and
    11.1 has a later libcusolver than 11.0."""
    mine, asked = numbers(have), numbers(wanted)
    if name == "cuda" and asked[:2] < (11, 1):
        return mine[:2] == asked[:2]
    depth = 2 if name == "cuda" else 3
    return mine[0] == asked[0] and mine[:depth] >= asked[:depth]


def _best(host: GpuHost, name: LibraryName) -> str:
    """Return the first method available of: wheels, NVIDIA's repository, the distribution, an archive."""
    if host.needs.wheels:
        return "wheels"
    if _in_repository(host):
        return "repo"
    return "distribution" if _served(host, name) else "archive"


def _of_wheels(host: GpuHost, name: LibraryName) -> Library | None:
    if not host.needs.wheels:
        message = f"there are no wheels of {TITLES[name]} for {host.stack}"
        host.findings.refuse(message, f"set tfctl_{name}_method: auto")
    return None


def _of_repo(host: GpuHost, name: LibraryName) -> Library | None:
    if not has_repository(host, f"tfctl_{name}_method: archive"):
        return None
    cuda, wanted = host.needs.cuda, host.needs.library(name)
    if not _in_repository(host):
        held = host.nvidia.repositories[host.facts.system].cuda
        host.findings.refuse(
            f"NVIDIA's repository for {host.facts.title} has CUDA {held.min} to {held.max}; {host.stack} needs "
            f"{TITLES[name]} for CUDA {cuda}",
            f"set tfctl_{name}_method: archive",
        )
        return None
    home = f"/usr/local/cuda-{_release(cuda)}" if name == "cuda" else "/usr"
    folders = (f"{home}/lib64", f"{home}/extras/CUPTI/lib64") if name == "cuda" else ()
    packages = _repo_packages(name, wanted, cuda, host.facts.packager)
    return Library("repo", wanted, True, packages, None, folders, home, soname(name, wanted))


def _of_distribution(host: GpuHost, name: LibraryName) -> Library | None:
    offered, wanted = _packaged(host, name), host.needs.library(name)
    if not offered or not _served(host, name):
        has = f"{TITLES[name]} {offered.version}" if offered else f"no supported {TITLES[name]}"
        message = f"{host.facts.title} has {has}; {host.stack} needs {wanted}"
        host.findings.refuse(message, f"set tfctl_{name}_method: auto")
        return None
    version = offered.version
    return Library("distribution", version, False, offered.packages, None, (), "/usr", soname(name, version))


def _of_archive(host: GpuHost, name: LibraryName) -> Library | None:
    wanted, cuda = host.needs.library(name), host.needs.cuda
    known = host.nvidia.archives.get(name, {}) if host.facts.machine == "x86_64" else {}
    fitting = sorted((key for key in known if _fits(name, key, wanted, cuda)), key=numbers)
    if not fitting:
        message = f"tfctl has no archive of {TITLES[name]} {wanted} for CUDA {cuda} on {host.facts.machine}"
        host.findings.refuse(message, f"set tfctl_{name}_method: auto")
        return None
    entry, version = known[fitting[0]], fitting[0].partition("-cuda")[0]
    file = entry.url.rpartition("/")[2]
    refuse_unverified(host, f"{name}-{fitting[0]}", f"{TITLES[name]} archive {file}", f"sha256 {entry.sha256}", entry)
    home = f"{PREFIX}/{name}/{version}"
    folders = (f"{home}/lib", *([f"{home}/extras/CUPTI/lib64"] if name == "cuda" else []))
    archive = Archive(mirrored(host, entry.url), entry.sha256, home, entry.kind)
    return Library("archive", version, True, (), archive, folders, home, soname(name, version))


def _packaged(host: GpuHost, name: LibraryName) -> Packaged | None:
    return host.distribution.library(name) if host.distribution else None


def _served(host: GpuHost, name: LibraryName) -> bool:
    """Return whether the distribution's library will do. Its NCCL is built with its own CUDA."""
    offered, cuda = _packaged(host, name), _packaged(host, "cuda")
    if not offered or not serves(name, offered.version, host.needs.library(name)):
        return False
    return name != "nccl" or cuda is None or numbers(cuda.version)[0] == numbers(host.needs.cuda)[0]


def _in_repository(host: GpuHost) -> bool:
    held = host.nvidia.repositories.get(host.facts.system)
    return held is not None and numbers(held.cuda.min) <= numbers(host.needs.cuda) <= numbers(held.cuda.max)


def _repo_packages(name: LibraryName, wanted: str, cuda: str, packager: str) -> tuple[str, ...]:
    """Return NAME=VERSION of library and headers, always in the same version. VERSION may contain a shell's *."""
    major, dnf = numbers(cuda)[0], packager == "dnf"
    dev = "devel" if dnf else "dev"
    if name == "cuda":
        return (f"cuda-toolkit-{_release(cuda).replace('.', '-')}={wanted}.*",)
    if name == "nccl":
        return tuple(f"{each}={wanted}-1+cuda{major}*" for each in ("libnccl" if dnf else "libnccl2", f"libnccl-{dev}"))
    ninth = numbers(wanted)[0] >= 9
    base, end = f"libcudnn{numbers(wanted)[0]}", f"-cuda-{major}" if ninth else ""
    exact = f"{wanted}-*" if ninth else f"{wanted}-1{'.' if dnf else '+'}cuda{major}*"
    return (f"{base}{end}={exact}", f"{base}-{dev}{end}={exact}")


def _fits(name: LibraryName, key: str, wanted: str, cuda: str) -> bool:
    version, _, made_for = key.partition("-cuda")
    if name == "cuda":
        return numbers(version)[:2] == numbers(wanted)[:2]
    return serves(name, version, wanted) and numbers(made_for) == numbers(cuda)[: len(numbers(made_for))]


def _release(version: str) -> str:
    return ".".join(map(str, numbers(version)[:2]))
