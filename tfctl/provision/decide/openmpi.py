"""Decide which Open MPI a host gets for Horovod."""

from __future__ import annotations

import hashlib
import json

from tfctl.model.stacks import Stack
from tfctl.provision.decide.decision import ChosenStack, OpenMpi, OpenMpiBuild, Tarball, Toolchain
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.wanted import Wanted

FORMAT = 2  # of the build process: a new number rebuilds everything
HOME = "/opt/tfctl/openmpi"
METHODS = ("auto", "distribution", "source", "none")
#: For each package manager: the prefix of the distribution's Open MPI, and its packages.
PREFIXES = {"apt-get": "/usr", "dnf": "/usr/lib64/openmpi"}
PACKAGES = {"apt-get": ("openmpi-bin",), "dnf": ("openmpi",)}


def openmpi(
    facts: Facts, wanted: Wanted, stack: Stack, own: ChosenStack, compiler: Toolchain, findings: Findings
) -> OpenMpi | None:
    """Return the decision about Open MPI, or None if there is nothing to do, or with a fault. ``own``: that about the
    stack."""
    method = wanted.preferences.openmpi
    if method not in METHODS:
        findings.refuse(f"tfctl_openmpi is {method!r}", f"it is {', '.join(METHODS)}", "inventory")
        return None
    if method == "none":
        return without(facts, own)
    if method == "source":
        return _from_source(facts, wanted, stack, own, compiler, findings)
    prefix = PREFIXES[facts.packager]
    return OpenMpi(
        method="distribution",
        version=wanted.systems[facts.system].openmpi,
        prefix=prefix,
        environment=own.path,
        packages=PACKAGES[facts.packager],
        broken=facts.mpiruns.get(prefix) == "",
        source=None,
    )


def without(facts: Facts, own: ChosenStack) -> OpenMpi | None:
    """Return a decision that removes links to an Open MPI no longer wanted, or None if there are none."""
    if own.environment not in facts.openmpis:
        return None
    return OpenMpi("none", "", "", own.path, packages=(), broken=False, source=None)


def _from_source(
    facts: Facts, wanted: Wanted, stack: Stack, own: ChosenStack, compiler: Toolchain, findings: Findings
) -> OpenMpi | None:
    offered = stack.openmpi
    if offered is None:
        raise AssertionError(f"{stack.name} has a Horovod and no Open MPI")
    name = f"openmpi-{offered.version}"
    if not (offered.trusted or wanted.preferences.allows(name)):
        message = f"the hash of Open MPI {offered.version} ({offered.sha256}) has not been verified"
        findings.refuse(
            message, f"compare it, then set tfctl_allow_unverified: [{name}]; or tfctl_openmpi: distribution"
        )
        return None
    prefix = f"{HOME}/{offered.version}-{offered.sha256[:12]}"
    made_of = [FORMAT, facts.system, facts.machine, compiler.gcc, prefix]
    return OpenMpiBuild(
        method="source",
        version=offered.version,
        prefix=prefix,
        environment=own.path,
        packages=(),
        broken=False,
        source=Tarball(wanted.preferences.openmpi_url or offered.url, offered.sha256),
        key=hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16],
        compiler=compiler,
    )
