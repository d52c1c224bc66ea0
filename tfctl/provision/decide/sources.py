"""Decide where NVIDIA's packages come from: its repository or the distribution. The data: stacks/nvidia.yaml."""

from __future__ import annotations

from collections.abc import Sequence

from tfctl.model.stacks.values import SourcedValue
from tfctl.provision.decide.apt_sources import holder
from tfctl.provision.decide.decision import Driver, Library, PackageSource, Repository
from tfctl.provision.decide.facts import GpuFacts
from tfctl.provision.decide.gpu_host import GpuHost

MACHINES = {"x86_64": "x86_64", "aarch64": "sbsa"}  # as NVIDIA names them; sbsa: Arm servers


def has_repository(host: GpuHost, remedy: str) -> bool:
    """Return whether NVIDIA has a repository for this system; if not, add a fault."""
    if host.facts.system in host.nvidia.repositories:
        return True
    host.findings.refuse(f"tfctl has no repository of NVIDIA for {host.facts.title}", f"set {remedy}")
    return False


def source(host: GpuHost, driver: Driver | None, libraries: Sequence[Library | None]) -> PackageSource | None:
    """Return the package sources to set up for the driver and the libraries, if any."""
    of_driver = _method_of_driver(host, driver)
    methods = {of_driver, *(each.method for each in libraries if each and each.packages)}
    components: tuple[str, ...] = ()
    if "distribution" in methods and host.distribution:
        components = host.distribution.components
    repository = _repository(host) if "repo" in methods and host.facts.system in host.nvidia.repositories else None
    if not (components or repository):
        return None
    drivers = "repo" in (of_driver, method_of(host.gpu))  # also those of a driver that tfctl did not install
    file = holder(host.gpu.apt_sources, repository.uri) if repository else ""
    if file:
        host.findings.notices.append(f"{file} already has NVIDIA's repository: tfctl uses that entry with its key")
    elif repository:
        _refuse_untrusted_key(host, repository)
    pin = driver.pin if driver else host.gpu.version.partition(".")[0]
    branch = pin if repository and of_driver == "repo" else ""
    return PackageSource(components, repository, drivers, file, branch)


def method_of(gpu: GpuFacts) -> str:
    """Return the method by which the installed driver's packages are installed: repo or distribution."""
    return "repo" if gpu.origins == ("nvidia",) else "distribution"


def _method_of_driver(host: GpuHost, driver: Driver | None) -> str:
    """Return the method whose source the driver needs, or "". A driver that tfctl has installed keeps its source."""
    if driver and driver.packages:
        return driver.method
    return method_of(host.gpu) if host.gpu.own and host.preferences.driver != "none" else ""


def mirrored(host: GpuHost, url: str) -> str:
    """Return the URL, moved to the user's mirror of NVIDIA's download host if there is one."""
    own, mirror = host.nvidia.mirror, host.preferences.nvidia_mirror.rstrip("/")
    return mirror + url[len(own) :] if mirror and url.startswith(f"{own}/") else url


def refuse_unverified(host: GpuHost, name: str, what: str, value: str, entry: SourcedValue) -> None:
    """Add a fault for a value that has not been verified, unless the inventory allows it by ``name``."""
    if not (entry.trusted or host.preferences.allows(name)):
        host.findings.refuse(
            f"{what}: {value} has not been verified; it is from {' and '.join(entry.sources)}",
            f"compare it with NVIDIA's own, then set tfctl_allow_unverified: [{name}]",
        )


def _repository(host: GpuHost) -> Repository:
    entry = host.nvidia.repositories[host.facts.system]
    machine = MACHINES.get(host.facts.machine, host.facts.machine)
    base = mirrored(host, f"{host.nvidia.mirror}/{entry.path}/{machine}")
    return Repository(f"{base}/", host.preferences.nvidia_key_file or f"{entry.key}.asc")


def _refuse_untrusted_key(host: GpuHost, repository: Repository) -> None:
    """Add a fault if the repository's key is missing or has not been verified. The user's own needs no check."""
    name = host.nvidia.repositories[host.facts.system].key
    key = host.nvidia.keys[name]
    if host.preferences.nvidia_key_file:
        return
    if key.included:
        refuse_unverified(host, name, f"key {name} of NVIDIA's repository", key.fingerprint, key)
    else:
        host.findings.refuse(
            f"tfctl does not contain the key {name}, which signs NVIDIA's repository for {host.facts.title}",
            f"download {repository.uri}{name}.pub, check that `gpg --show-keys {name}.pub` prints one key, with the "
            f"fingerprint {key.fingerprint}, and set tfctl_nvidia_key_file to the path of that file",
        )
