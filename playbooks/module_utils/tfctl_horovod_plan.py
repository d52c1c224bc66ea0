"""Which MPI and which build of Horovod a host is to have. Pure."""

from __future__ import annotations

import hashlib
import json

from ansible.module_utils.tfctl_toolchain import toolchain

FORMAT = 1  # of how Horovod is built: another one makes every build anew
HOME = "/opt/tfctl/horovod"
METHODS = ("auto", "distribution", "none")
# What runs ranks, and what a build needs beside it.
PACKAGES = {
    "apt-get": {"run": ["openmpi-bin"], "build": ["libopenmpi-dev"], "prefix": "/usr"},
    "dnf": {"run": ["openmpi"], "build": ["openmpi-devel"], "prefix": "/usr/lib64/openmpi"},
}
BAD_FILE, PREFLIGHT = 3, 8


def decide(seen, wanted, stack):
    """(openmpi, horovod, faults) for a host whose stack is ``stack`` of tfctl_judge's plan.

    openmpi: None, or {"method", "version", "prefix", "packages": none where it runs already, "again": packages that are
    there and broken}
    horovod: None where neither wished nor there, or {"home": "" for none, "environment", "python", "version", ...}
    """
    wished = str(wanted["wishes"]["horovod"]).lower() == "true"
    if not wished:
        there = stack["path"].rpartition("/")[2] in seen["horovods"]
        return None, {"home": "", "environment": stack["path"], "version": ""} if there else None, []
    offered = wanted["stacks"][stack["name"]]["horovod"]
    if offered is None:
        fitting = [name for name, each in wanted["stacks"].items() if each["horovod"]]
        return None, None, [fault(f"no release of Horovod builds for {stack['name']}",
                                  f"set tfctl_horovod: false, or take {' or '.join(fitting)}", BAD_FILE)]  # fmt: skip
    openmpi, lacking = openmpi_of(seen, wanted)
    compiler, wrong = toolchain(seen, wanted, stack["edition"])
    if lacking or wrong or compiler is None:
        return openmpi, None, lacking + wrong
    return openmpi, horovod_of(seen, stack, offered, openmpi, compiler), []


def openmpi_of(seen, wanted):
    method, system = wanted["wishes"]["openmpi"], wanted["systems"].get(seen["system"])
    if method not in METHODS:
        return None, [fault(f"tfctl_openmpi is {method!r}", f"it is {', '.join(METHODS)}", BAD_FILE)]
    if method == "none" or system is None:
        return None, []
    names = PACKAGES[seen["packager"]]
    runs = seen["mpiruns"].get(names["prefix"])
    plan = {"method": "distribution", "version": system["openmpi"], "prefix": names["prefix"]}
    return {**plan, "packages": [] if runs else names["run"], "again": runs == ""}, []


def horovod_of(seen, stack, offered, openmpi, compiler):
    """``key`` says what a build is good for: hosts with the same one take each other's wheel."""
    python = stack["python"]["version"]
    made_of = [FORMAT, seen["system"], seen["machine"], python, stack["imports"]["tensorflow"], stack["edition"]]
    made_of += [offered["version"], offered["sha256"], offered["gloo"], offered["builds"][python]["digest"]]
    made_of += [compiler["gcc"], openmpi and [openmpi[name] for name in ("method", "version", "prefix")]]
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    missing = [*compiler["packages"], *(PACKAGES[seen["packager"]]["build"] if openmpi else [])]
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
    }


def fault(message, remedy, exit_code=PREFLIGHT):
    return {"message": message, "remedy": remedy, "exit": exit_code}
