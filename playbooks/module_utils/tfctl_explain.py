"""Explain what each stack would be on a host, and why. Pure functions that decide as provisioning does."""

from __future__ import annotations

from ansible.module_utils import tfctl_gpu, tfctl_gpu_libraries, tfctl_pythons
from ansible.module_utils.tfctl_gpu_cards import cards, named
from ansible.module_utils.tfctl_judge import judge


def explain(seen, wanted):
    """Return the explanation. ``seen`` and ``wanted`` are those of judge; the requested stack does not matter.

    {"title", "machine", "gpus", "driver": the loaded one, "stacks": {name: see of_stack}}
    """
    gpu = seen["gpu"]
    return {
        "title": seen["title"],
        "machine": seen["machine"],
        "gpus": named(cards(gpu)) if gpu else "",
        "driver": (gpu["loaded"] or gpu["version"]) if gpu else "",
        "stacks": {name: of_stack(seen, {**wanted, "stack": name}) for name in wanted["stacks"]},
    }


def of_stack(seen, wanted):
    """{"python": as tfctl_pythons.choose, or None, "pythons": {version: places that have it}, "edition", "why",
    "environment", "state": in use, there or absent, "before", "driver": what judge plans of it, or None, "methods":
    {library: {method: why not; "" where it would do}}, "chosen": {library: method}, "notices", "faults"}
    """
    plan, faults = judge(seen, wanted)
    stack, links = plan["stack"], seen["links"].get(wanted["stack"], {})
    case = tfctl_gpu.case_of(seen, wanted, [], [])
    edition = stack["edition"] if stack else tfctl_gpu.edition_of(case)
    environment = stack["path"].rpartition("/")[2] if stack else ""
    methods = {name: weigh(case, name) for name in tfctl_gpu_libraries.TITLES} if edition == "gpu" else {}
    return {
        "python": stack["python"] if stack else None,
        "pythons": tfctl_pythons.places(seen, wanted, wanted["stack"]),
        "edition": edition,
        "why": why(seen, wanted, edition),
        "environment": environment,
        "state": "in use" if environment == links.get("current") else "there" if stack and stack["there"] else "absent",
        "before": links.get("before", ""),
        "driver": plan["gpu"]["driver"] if plan["gpu"] else None,
        "methods": methods,
        "chosen": {name: chosen(plan["gpu"], name) for name in methods},
        "notices": plan["notices"],
        "faults": faults,
    }


def why(seen, wanted, edition):
    """Say why the host gets this edition."""
    if wanted["wishes"]["edition"] != "auto":
        return f"tfctl_edition is {wanted['wishes']['edition']}"
    if seen["gpu"] is None:
        return "no NVIDIA GPU is here"
    there = named(cards(seen["gpu"]))
    return there if edition == "gpu" else f"{there} cannot serve it"


def weigh(case, name):
    """Return {method: why it cannot be used, or ""} for one of CUDA, cuDNN and NCCL."""
    found = {}
    for method in tfctl_gpu_libraries.METHODS[1:]:
        faults = []
        wish = {**case.wish, f"{name}_method": method}
        tfctl_gpu_libraries.library(case._replace(wish=wish, faults=faults), name)
        found[method] = "; ".join(fault["message"] for fault in faults)
    return found


def chosen(gpu, name):
    return gpu[name]["method"] if gpu and gpu[name] else "wheels"
