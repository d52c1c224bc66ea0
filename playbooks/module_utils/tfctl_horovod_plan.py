"""Decide which MPI and which build of Horovod a host gets. Pure functions."""

from __future__ import annotations

import hashlib
import json

from ansible.module_utils.tfctl_fault import INVENTORY, fault
from ansible.module_utils.tfctl_toolchain import toolchain

FORMAT = 1  # of Horovod's build process: a new number rebuilds everything
OPENMPI_FORMAT = 2  # of Open MPI's
HOME = "/opt/tfctl/horovod"
OPENMPI = "/opt/tfctl/openmpi"
METHODS = ("auto", "distribution", "source", "none")
# The packages that run ranks, and those that a build also needs.
PACKAGES = {
    "apt-get": {"run": ["openmpi-bin"], "build": ["libopenmpi-dev"], "prefix": "/usr"},
    "dnf": {"run": ["openmpi"], "build": ["openmpi-devel"], "prefix": "/usr/lib64/openmpi"},
}


def decide(seen, wanted, plan):
    """Return (openmpi, horovod, faults) for a host with the stack and GPUs of tfctl_judge's ``plan``. Add a notice to
    the plan if the GPUs cannot reduce by themselves.

    openmpi: None where there is nothing to do, or {"method", "version", "prefix", "environment", "linked": false where
    links among its programs have to go, "packages": none where it runs already, "again": whether they are there and
    broken, "source": None or {"url", "sha256"}, "key" of a build, "compiler"}
    horovod: None where neither wished nor there, or {"home": "" for none, "environment", "python", "version", ...}
    """
    stack, wished = plan["stack"], str(wanted["wishes"]["horovod"]).lower() == "true"
    if not wished:
        there = stack["path"].rpartition("/")[2] in seen["horovods"]
        without = {"home": "", "environment": stack["path"], "version": ""} if there else None
        return unlinked(seen, stack), without, []
    offered = wanted["stacks"][stack["name"]]["horovod"]
    if offered is None:
        fitting = [name for name, each in wanted["stacks"].items() if each["horovod"]]
        return None, None, [fault(f"no release of Horovod builds for {stack['name']}",
                                  f"set tfctl_horovod: false, or take {' or '.join(fitting)}", INVENTORY)]  # fmt: skip
    compiler, wrong = toolchain(seen, wanted, stack["edition"])
    if wrong or compiler is None:
        return None, None, wrong
    openmpi, lacking = openmpi_of(seen, wanted, stack, compiler)
    if lacking:
        return None, None, lacking
    cuda = cuda_of(plan["gpu"])
    if stack["edition"] == "gpu" and cuda is None:
        plan["notices"].append(
            "Horovod is built without NCCL, since wheels of CUDA have no nvcc: it reduces by way of the CPU. "
            "With tfctl_cuda_method repo, distribution or archive it has NCCL"
        )
    return openmpi, horovod_of(seen, stack, offered, openmpi, compiler, cuda), []


def openmpi_of(seen, wanted, stack, compiler):
    """Return (plan, faults)."""
    method = wanted["wishes"]["openmpi"]
    if method not in METHODS:
        return None, [fault(f"tfctl_openmpi is {method!r}", f"it is {', '.join(METHODS)}", INVENTORY)]
    if method == "none":
        return unlinked(seen, stack), []
    if method == "source":
        return from_source(seen, wanted, stack, compiler)
    names = PACKAGES[seen["packager"]]
    runs = seen["mpiruns"].get(names["prefix"])
    plan = {"method": "distribution", "prefix": names["prefix"], "source": None, "environment": stack["path"]}
    plan.update(version=wanted["systems"][seen["system"]]["openmpi"], linked=unlinked(seen, stack) is None)
    return {**plan, "packages": [] if runs else names["run"], "again": runs == ""}, []


def unlinked(seen, stack):
    """Return a plan that removes links to an Open MPI no longer wanted, or None if there are none."""
    if stack["path"].rpartition("/")[2] not in seen["openmpis"]:
        return None
    plan = {"method": "none", "prefix": "", "source": None, "version": "", "environment": stack["path"]}
    return {**plan, "linked": False, "packages": [], "again": False}


def from_source(seen, wanted, stack, compiler):
    offered, wishes = wanted["stacks"][stack["name"]]["openmpi"], wanted["wishes"]
    if not offered["verified"] and str(wishes["allow_unverified"]).lower() != "true":
        message = f"nobody has compared the hash of Open MPI {offered['version']} ({offered['sha256']}) with its own"
        return None, [
            fault(message, "compare it, then set tfctl_allow_unverified: true; or tfctl_openmpi: distribution")
        ]
    prefix = f"{OPENMPI}/{offered['version']}-{offered['sha256'][:12]}"
    made_of = [OPENMPI_FORMAT, seen["system"], seen["machine"], compiler["gcc"], prefix]
    plan = {"method": "source", "version": offered["version"], "prefix": prefix, "environment": stack["path"]}
    plan.update(source={"url": wishes["openmpi_url"] or offered["url"], "sha256": offered["sha256"]}, compiler=compiler)
    plan["key"] = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    return {**plan, "linked": True, "packages": [], "again": False}, []


def cuda_of(gpu):
    """Return the paths {"cuda", "nccl"}; "nccl" is "" for the stack's own wheel. None without nvcc."""
    if not gpu or not gpu["cuda"]:
        return None
    return {"cuda": gpu["cuda"]["home"], "nccl": gpu["nccl"]["home"] if gpu["nccl"] else ""}


def horovod_of(seen, stack, offered, openmpi, compiler, cuda):
    """Return the plan for Horovod. Hosts with the same ``key`` can share a build."""
    python = stack["python"]["version"]
    made_of = [FORMAT, seen["system"], seen["machine"], python, stack["imports"]["tensorflow"], stack["edition"]]
    made_of += [offered["version"], offered["sha256"], offered["gloo"], offered["builds"][python]["digest"]]
    openmpi = openmpi if openmpi and openmpi["prefix"] else None
    made_of += [compiler["gcc"], openmpi and [openmpi[name] for name in ("method", "version", "prefix")]]
    made_of += [cuda] if cuda else []
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    packaged = openmpi and openmpi["method"] == "distribution"
    missing = [*compiler["packages"], *(PACKAGES[seen["packager"]]["build"] if packaged else [])]
    return {
        "key": key,
        "home": f"{HOME}/{key}",
        "environment": stack["path"],
        "python": python,
        "version": offered["version"],
        "source": f"horovod=={offered['version']} --hash=sha256:{offered['sha256']}\n",
        "tools": offered["builds"][python]["lock"],
        "compiler": {**compiler, "packages": missing},
        "mpi": openmpi["prefix"] if openmpi else "",
        "gloo": offered["gloo"],
        "gpu": cuda,
    }
