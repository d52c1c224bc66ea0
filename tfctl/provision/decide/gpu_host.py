"""A host with GPUs and a stack for them: what the decisions about its driver and libraries read."""

from __future__ import annotations

from dataclasses import dataclass

from tfctl.model.stacks.nvidia import Branches, Distribution, GpuSupport, Nvidia
from tfctl.provision.decide.facts import Facts, GpuFacts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.wanted import Preferences


@dataclass(frozen=True)
class GpuHost:
    """``stack``: its name; ``needs``: what it needs on GPUs. ``findings``: where decisions add faults and notices."""

    facts: Facts
    gpu: GpuFacts
    stack: str
    needs: GpuSupport
    preferences: Preferences
    nvidia: Nvidia
    findings: Findings

    @property
    def distribution(self) -> Distribution | None:
        """Return what the host's distribution packages of NVIDIA's software, if anything."""
        return self.nvidia.distributions.get(self.facts.system)

    @property
    def packaged_driver(self) -> Branches | None:
        """Return the drivers that the host's distribution packages, if any."""
        return self.distribution.driver if self.distribution else None
