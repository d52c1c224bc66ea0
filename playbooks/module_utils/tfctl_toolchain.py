"""Decide which compiler builds a stack's extensions, such as Horovod, on a host. Pure functions."""

from __future__ import annotations

from ansible.module_utils.tfctl_fault import fault


def toolchain(seen, wanted, edition):
    """Return (what the role toolchain has to do or None, faults).

    {"gcc": major number, "cc", "cxx": the commands, "packages": none where it is there}. Of the distribution's the
    first that fits: nvcc takes none that is newer than it knows, and without a GPU any later one will do.
    """
    span = wanted["stacks"][wanted["stack"]]["gcc"]
    system = wanted["systems"].get(seen["system"])
    if not span or not system:
        return None, []
    low, high = span["min"], span["max"] if edition == "gpu" else None
    fitting = [major for major in system["gcc"] if low <= major <= (high or major)]
    if not fitting:
        has, asked = ", ".join(map(str, system["gcc"])), f"{low} to {high}" if high else f"{low} or later"
        message = f"{system['title']} has gcc {has}; extensions of {wanted['stack']} are built with {asked}"
        return None, [fault(message, "give this host another stack")]
    major, own = fitting[0], fitting[0] == system["gcc"][0]
    there = major in seen["compilers"]
    if seen["packager"] == "dnf":
        return {"gcc": major, "cc": "gcc", "cxx": "g++", "packages": [] if there else ["gcc-c++", "make"]}, []
    names = [f"g++-{major}", "make", *(["g++"] if own else [])]
    return {"gcc": major, "cc": f"gcc-{major}", "cxx": f"g++-{major}", "packages": [] if there else names}, []
