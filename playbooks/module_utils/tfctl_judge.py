"""Decide what a host becomes, and what prevents it: from facts and wishes to a plan and faults. Pure functions."""

from __future__ import annotations

import re

from ansible.module_utils import tfctl_gpu, tfctl_horovod_plan, tfctl_pythons
from ansible.module_utils.tfctl_fault import INVENTORY, fault
from ansible.module_utils.tfctl_toolchain import toolchain

OLDEST_SYSTEMD = 247  # Debian 11's: LogExtraFields, ProtectProc and prefix drop-ins as the units of tfctl use them
OLDEST_PYTHON = (3, 9)  # of the node part
# Free space that tfctl itself needs, besides a stack's.
SPARE_MB = {"/var/lib/tfctl/jobs": 200, "/usr/local/lib/tfctl": 10}
STACKS = "/opt/tfctl"
LINKS = "/opt/tfctl/stacks"
USER_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


def judge(seen, wanted):
    """Return (plan, faults). ``seen`` is from tfctl_facts.gather; ``wanted`` are the module's own parameters.

    plan: {"operators", "output_roots", "notices", "stack": None or {"name", "edition", "python": what
    tfctl_pythons.choose says, "path", "link", "lock", "disk_mb", "imports", "there"}, "gpu": None or what
    tfctl_gpu.decide says, "toolchain": None or what tfctl_toolchain says, "openmpi", "horovod": what
    tfctl_horovod_plan says}; with faults it has gaps.
    faults: see tfctl_fault; all there are.
    """
    faults = [*of_system(seen, wanted), *of_accounts(seen, wanted)]
    operators = [name for name in wanted["operators"] or [seen["login"]] if name != "root"]
    plan = {"operators": sorted(set(operators)), "output_roots": wanted["shared"], "notices": []}
    plan.update(stack=None, gpu=None, toolchain=None, openmpi=None, horovod=None)
    for name in operators:
        if not USER_NAME.fullmatch(name):
            faults.append(fault(f"tfctl_operators: {name!r} is no user's name", "give plain user names", INVENTORY))
    if wanted["stack"] != "none":
        plan["stack"], plan["gpu"] = stack_of(seen, wanted, faults, plan["notices"])
    if plan["stack"] and str(wanted["wishes"]["toolchain"]).lower() == "true":
        plan["toolchain"], lacking = toolchain(seen, wanted, plan["stack"]["edition"])
        faults += lacking
    if plan["stack"]:
        plan["openmpi"], plan["horovod"], lacking = tfctl_horovod_plan.decide(seen, wanted, plan)
        faults += [each for each in lacking if each not in faults]
    faults += of_disks(seen, plan["stack"], wanted)
    return plan, faults


def of_system(seen, wanted):
    if not seen["root"]:
        yield fault(
            f"logged in as {seen['login']}, who may not become root", "let that user use sudo, or log in as root"
        )
    if seen["system"] not in wanted["systems"]:
        titles = ", ".join(system["title"] for system in wanted["systems"].values())
        yield fault(f"{seen['title']} is not supported", f"there are: {titles}; leave it out with --limit '!{{host}}'")
    if seen["init"] != "systemd":
        yield fault(f"PID 1 is {seen['init'] or 'unknown'}, not systemd", "jobs are units: boot it with systemd")
    elif seen["systemd"] < OLDEST_SYSTEMD:
        yield fault(f"systemd {seen['systemd']}; {OLDEST_SYSTEMD} or newer is needed", "upgrade the operating system")
    if tuple(seen["own_python"]) < OLDEST_PYTHON:
        version, oldest = (".".join(map(str, each)) for each in (seen["own_python"], OLDEST_PYTHON))
        yield fault(
            f"/usr/bin/python3 is {version}; {oldest} or newer is needed", "install a newer python3 of the distribution"
        )
    if not seen["sudo"]:
        yield fault("sudo is not installed", "install the package sudo")


def of_accounts(seen, wanted):
    uid = wanted["uid"]
    if not 1 <= uid <= 999:
        yield fault(f"tfctl_uid {uid} is not a system user's number", "take one from 1 to 999", INVENTORY)
    for kind, there, owner in (("user", seen["user"], seen["uid_owner"]), ("group", seen["group"], seen["gid_owner"])):
        if there not in (None, uid):
            yield fault(
                f"the {kind} tfctl has number {there} here, {uid} is wanted",
                f"remove that {kind}, or set tfctl_uid={there} for all hosts (they share files)",
            )
        elif there is None and owner:
            yield fault(
                f"number {uid} is the {kind} {owner}'s here",
                "set tfctl_uid to a number below 1000 that is free on every host",
            )


def stack_of(seen, wanted, faults, notices):
    """Return (stack, gpu) of the plan; without a stack, add a fault."""
    name, known = wanted["stack"], wanted["stacks"]
    if not name:
        remedy = "--stack tf2.15, or tfctl_stack in the inventory; --stack none goes without TensorFlow"
        faults.append(fault("no stack is named for this host", remedy, INVENTORY))
        return None, None
    if name not in known:
        remedy = f"there are: {', '.join(known)}; none goes without TensorFlow"
        faults.append(fault(f"tfctl_stack: no stack is called {name!r}", remedy, INVENTORY))
        return None, None
    stack, case = known[name], tfctl_gpu.case_of(seen, wanted, faults, notices)
    edition = tfctl_gpu.edition_of(case)
    gpu = tfctl_gpu.decide(case) if edition == "gpu" else None
    chosen = stack["editions"][edition]
    if seen["machine"] not in chosen["machines"]:
        made_for = " and ".join(chosen["machines"])
        faults.append(
            fault(f"{name} is made for {made_for}; this is {seen['machine']}", "give this host another stack")
        )
    python = tfctl_pythons.choose(seen, wanted, name, faults)
    if python is None:
        return None, gpu
    built = chosen["environments"][python["version"]]
    plan = {
        "name": name,
        "edition": edition,
        "python": python,
        "path": f"{LINKS}/{built['name']}",
        "link": f"{LINKS}/{name}",
        "lock": built["lock"],
        "disk_mb": chosen["disk_mb"],
        "imports": stack["imports"],
        "there": built["name"] in seen["environments"],
    }
    return plan, gpu


def of_disks(seen, stack, wanted):
    needs = dict(SPARE_MB)
    if stack and not stack["there"]:
        needs[STACKS] = stack["disk_mb"]
    if stack and stack["python"]["tree"]:
        needs[STACKS] = needs.get(STACKS, 0) + stack["python"]["tree"]["megabytes"]
    for path in wanted["shared"]:
        needs.setdefault(path, 1)
    by_device = {}
    for path, megabytes in needs.items():
        by_device.setdefault(seen["disks"][path]["device"], []).append((path, megabytes))
    for asked in by_device.values():
        free = seen["disks"][asked[0][0]]["free_mb"]
        total = sum(megabytes for _, megabytes in asked)
        if free < total:
            paths = " and ".join(path for path, _ in asked)
            yield fault(
                f"{free} MB are free for {paths}, {total} MB are needed",
                "free some space there (df -h and du -xsh say where it went)",
            )
    if stack and seen["disks"][STACKS]["noexec"]:
        at = seen["disks"][STACKS]["at"]
        yield fault(f"{at} is mounted noexec, and stacks hold programs", f"mount -o remount,exec {at}")
