"""Decide about a host's GPUs: edition, driver and libraries, and the faults that prevent them. Pure functions.

The facts are from tfctl_gpu_facts.look. A decision is plain JSON; with faults it may be incomplete.
"""

from __future__ import annotations

from typing import NamedTuple

from ansible.module_utils.tfctl_fault import INVENTORY, UNFIT, fault
from ansible.module_utils.tfctl_gpu_cards import cards, named, too_new, usable
from ansible.module_utils.tfctl_gpu_driver import driver
from ansible.module_utils.tfctl_gpu_libraries import libraries
from ansible.module_utils.tfctl_gpu_source import source


class Case(NamedTuple):
    """A host: its GPUs, its stack, the inventory's settings and NVIDIA's known sources."""

    seen: dict
    gpu: dict
    name: str
    stack: dict
    wish: dict
    sources: dict
    faults: list
    notices: list

    def refuse(self, message, remedy, kind=UNFIT):
        found = fault(message, remedy, kind)
        if found not in self.faults:
            self.faults.append(found)


def case_of(seen, wanted, faults, notices):
    """Build a Case. Later decisions append to ``faults`` and ``notices``."""
    stack = wanted["stacks"][wanted["stack"]]
    return Case(seen, seen["gpu"], wanted["stack"], stack, wanted["wishes"], wanted["nvidia"], faults, notices)


def edition_of(case):
    """Return gpu or cpu. A container may see GPUs on the bus without the host's driver; it cannot use them."""
    wish = case.wish["edition"]
    if wish not in ("auto", "cpu", "gpu"):
        case.refuse(f"tfctl_edition is {wish!r}", "give auto, cpu or gpu", INVENTORY)
    elif wish == "gpu" and (case.gpu is None or "gpu" not in case.stack["editions"]):
        there = f"{case.name} has no edition for GPUs" if case.gpu else "no NVIDIA GPU is here"
        case.refuse(f"tfctl_edition is gpu, and {there}", "set tfctl_edition: auto")
    if wish == "cpu" or case.gpu is None:
        return "cpu"
    if "gpu" not in case.stack["editions"]:
        case.notices.append(f"{named(cards(case.gpu))} is here, and {case.name} has no edition for GPUs: that for CPUs")
        return "cpu"
    found = usable(case.gpu, case.stack)
    if not found:
        least = case.stack["gpu"]["capability"]["min"]
        told = f"{named(cards(case.gpu))} is older than compute capability {least}, which {case.name} asks for"
        case.notices.append(f"{told}: edition for CPUs")
    return "gpu" if wish == "gpu" or (found and (case.gpu["loaded"] or not case.gpu["container"])) else "cpu"


def decide(case):
    """Return what the roles have to do, with None for each that has nothing to do, or None if none has.

    {"driver": see tfctl_gpu_driver, "cuda", "cudnn", "nccl": see tfctl_gpu_libraries, "source": the repository or
    components that packages of these come from}
    """
    beyond = too_new(usable(case.gpu, case.stack), case.stack)
    if beyond:
        most = case.stack["gpu"]["capability"]["max"]
        case.refuse(
            f"{case.name} (CUDA {case.stack['gpu']['cuda']}) has code for compute capability up to {most}; "
            f"{named(beyond)} has {beyond[0]['capability']}",
            "set tfctl_edition: cpu, or give this host a newer stack",
        )
    if any(each["mig"] for each in case.gpu["smi"]["gpus"]):
        case.notices.append("MIG is on: a task sees one instance, and NCCL does not reach across them")
    found = {"driver": driver(case), **libraries(case)}
    return {**found, "source": source(case, found)} if any(found.values()) else None
