"""Decide about a host's GPUs: the stack's edition, the driver and the libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfctl.model.stacks import Stack
from tfctl.model.stacks.nvidia import GpuSupport, Nvidia
from tfctl.provision.decide.cards import GpuModel, cards, named, numbers, too_new, usable
from tfctl.provision.decide.decision import GpuSoftware
from tfctl.provision.decide.driver import driver
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.gpu_host import GpuHost
from tfctl.provision.decide.libraries import library, nccl
from tfctl.provision.decide.sources import source
from tfctl.provision.decide.wanted import Wanted


def edition_of(facts: Facts, stack: Stack, wish: str, findings: Findings) -> str:
    """Return gpu or cpu. A container may see GPUs on the bus without the host's driver; it cannot use them."""
    gpu, needs = facts.gpu, stack.gpu if "gpu" in stack.editions else None
    if wish not in ("auto", "cpu", "gpu"):
        findings.refuse(f"tfctl_edition is {wish!r}", "give auto, cpu or gpu", "inventory")
    elif wish == "gpu" and facts.wsl:
        message = "tfctl_edition is gpu, and this is WSL2, whose driver is that of Windows: tfctl does not support it"
        findings.refuse(message, "set tfctl_edition: cpu, or use the GPU from a Linux that runs without Windows")
    elif wish == "gpu" and (gpu is None or needs is None):
        there = f"{stack.name} has no edition for GPUs" if gpu else "this host has no NVIDIA GPU"
        findings.refuse(f"tfctl_edition is gpu, and {there}", "set tfctl_edition: auto")
    if facts.wsl and wish == "auto":
        findings.notices.append("this is WSL2, where tfctl uses no GPU, because the driver is that of Windows")
    if wish == "cpu" or gpu is None or facts.wsl:
        return "cpu"
    if needs is None:
        findings.notices.append(f"this host has {named(cards(gpu))}, but {stack.name} has only a CPU edition")
        return "cpu"
    found = usable(gpu, needs)
    if not found:
        older = f"{named(cards(gpu))} is older than compute capability {needs.capability.min}"
        findings.notices.append(f"{older}, which {stack.name} requires: edition for CPUs")
    return "gpu" if wish == "gpu" or (found and (gpu.loaded or not gpu.container)) else "cpu"


def gpu_host_of(facts: Facts, wanted: Wanted, stack: Stack, findings: Findings) -> GpuHost | None:
    """Return what the decisions about GPUs read, or None for a host or a stack without them."""
    if facts.gpu is None or stack.gpu is None:
        return None
    needs = _with_driver_for(usable(facts.gpu, stack.gpu), stack.gpu, wanted.nvidia)
    return GpuHost(facts, facts.gpu, stack.name, needs, wanted.preferences, wanted.nvidia, findings)


def _with_driver_for(found: Sequence[GpuModel], needs: GpuSupport, nvidia: Nvidia) -> GpuSupport:
    """Return the needs with the oldest driver that can compile the stack's PTX for all these cards."""
    oldest = max((needs.oldest_driver(card.capability, nvidia.ptx) for card in found), key=numbers, default="")
    return replace(needs, driver=replace(needs.driver, min=oldest or needs.driver.min))


def decide(host: GpuHost, stacks: Mapping[str, Stack]) -> GpuSoftware | None:
    """Return what the roles have to do for the GPUs, or None if there is nothing to do. ``stacks``: all there are."""
    gpu, needs, findings = host.gpu, host.needs, host.findings
    beyond = too_new(usable(gpu, needs), needs)
    if beyond:
        newer = [name for name, stack in stacks.items() if stack.gpu and not too_new(beyond, stack.gpu)]
        others = f"set tfctl_stack: {' or '.join(newer)}, or" if newer else "no stack of tfctl has code for it yet:"
        findings.refuse(
            f"{host.stack} (CUDA {needs.cuda}) has code for compute capability up to {needs.capability.max}; "
            f"{named(beyond)} has {beyond[0].capability}",
            f"{others} set tfctl_edition: cpu",
        )
    for each in gpu.smi.gpus:
        findings.notices += [f"no task gets GPU {each.uuid}: {each.defect}"] if each.defect else []
        findings.notices += [f"GPU {each.uuid}: {text}" for text in each.notices]
    if any(each.mig for each in gpu.smi.gpus):
        findings.notices.append("MIG is on: a task sees one instance, and NCCL does not reach across them")
    chosen = driver(host)
    cuda = library(host, "cuda", host.preferences.cuda_method)
    cudnn = library(host, "cudnn", host.preferences.cudnn_method)
    found = nccl(host)
    origin = source(host, chosen, (cuda, cudnn, found))
    if not (chosen or cuda or cudnn or found or origin):
        return None
    return GpuSoftware(chosen, cuda, cudnn, found, origin)
