"""Explain what each stack would be on a host, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tfctl import schema
from tfctl.provision.decide import gpu, pythons
from tfctl.provision.decide.cards import cards, named
from tfctl.provision.decide.decision import ChosenStack, GpuSoftware
from tfctl.provision.decide.facts import Facts, StackLink
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.gpu_host import GpuHost
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.libraries import METHODS, TITLES, library
from tfctl.provision.decide.wanted import Wanted

if TYPE_CHECKING:
    from tfctl.model.stacks.nvidia import LibraryName
    from tfctl.provision.explanation import ChosenDriver, ChosenPython, Explanation, StackOnHost
    from tfctl.provision.faults import ModuleFault


def explain(facts: Facts, wanted: Wanted) -> Explanation[ModuleFault]:
    """Return the explanation for a host. ``wanted.stack`` does not matter."""
    seen = facts.gpu
    return {
        "title": facts.title,
        "machine": facts.machine,
        "gpus": named(cards(seen)) if seen else "",
        "driver": (seen.loaded or seen.version) if seen else "",
        "stacks": {name: _on_host(facts, replace(wanted, stack=name)) for name in wanted.stacks},
    }


def _on_host(facts: Facts, wanted: Wanted) -> StackOnHost[ModuleFault]:
    entry = wanted.stacks[wanted.stack]
    found, faults = decide(facts, wanted)
    stack, gpus = found.stack, found.gpu
    link = facts.links.get(entry.name, StackLink("", ""))
    edition = stack.edition if stack else gpu.edition_of(facts, entry, wanted.preferences.edition, Findings())
    host = gpu.gpu_host_of(facts, wanted, entry, Findings()) if edition == "gpu" else None
    methods = {name: _methods(host, name) for name in TITLES} if host else {}
    python = cast("ChosenPython", schema.plain(stack.python)) if stack else None
    driver = cast("ChosenDriver", schema.plain(gpus.driver)) if gpus and gpus.driver and gpus.driver.needed else None
    return {
        "python": python,
        "pythons": pythons.places(facts, wanted, entry),
        "edition": edition,
        "why": _why(facts, wanted, edition),
        "environment": stack.environment if stack else "",
        "state": _state(stack, link),
        "before": link.before,
        "driver": driver,
        "methods": {str(name): each for name, each in methods.items()},
        "chosen": {str(name): _chosen(host, gpus, name) for name in methods},
        "notices": [*found.notices],
        "faults": faults,
    }


def _state(stack: ChosenStack | None, link: StackLink) -> str:
    if stack and stack.environment == link.current:
        return "in use"
    return "there" if stack and stack.there else "absent"


def _why(facts: Facts, wanted: Wanted, edition: str) -> str:
    """Return why the host gets this edition."""
    if wanted.preferences.edition != "auto":
        return f"tfctl_edition is {wanted.preferences.edition}"
    if facts.gpu is None:
        return "this host has no NVIDIA GPU"
    there = named(cards(facts.gpu))
    return there if edition == "gpu" else f"{there} cannot serve it"


def _methods(host: GpuHost, name: LibraryName) -> dict[str, str]:
    """Return, for each method of installing a library, why it cannot be used, or ""."""
    found = {}
    for method in METHODS[1:]:
        findings = Findings()
        library(replace(host, findings=findings), name, method)
        found[method] = "; ".join(fault["message"] for fault in findings.faults)
    return found


def _chosen(host: GpuHost | None, gpus: GpuSoftware | None, name: LibraryName) -> str:
    """Return the method by which a library is installed, or ""."""
    chosen = {"cuda": gpus.cuda, "cudnn": gpus.cudnn, "nccl": gpus.nccl}[name] if gpus else None
    return chosen.method if chosen else "wheels" if host and host.needs.wheels else ""
