"""Decide which compiler builds a stack's extensions, such as Horovod, on a host."""

from __future__ import annotations

from tfctl.model.stacks import Stack
from tfctl.provision.decide.decision import Toolchain
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.wanted import Wanted


def toolchain(facts: Facts, wanted: Wanted, stack: Stack, nvcc: bool, findings: Findings) -> Toolchain | None:
    """Return the compiler, or None with a fault; None too if the stack builds nothing.

    Of the distribution's the first that fits: ``nvcc`` takes none that is newer than it knows, and without it any later
    one will do.
    """
    span, system = stack.gcc, wanted.systems.get(facts.system)
    if not span or not system:
        return None
    low, high = span.min, span.max if nvcc else None
    fitting = [major for major in system.gcc if low <= major <= (high or major)]
    if not fitting:
        has, asked = ", ".join(map(str, system.gcc)), f"{low} to {high}" if high else f"{low} or later"
        message = f"{system.title} has gcc {has}; extensions of {stack.name} are built with {asked}"
        findings.refuse(message, "give this host another stack")
        return None
    major, default = fitting[0], fitting[0] == system.gcc[0]
    if facts.packager == "dnf":
        return Toolchain(major, "gcc", "g++", ("gcc-c++", "make"))
    packages = (f"g++-{major}", "make", *(["g++"] if default else []))
    return Toolchain(major, f"gcc-{major}", f"g++-{major}", packages)
