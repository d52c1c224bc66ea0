"""Decide what a host gets, and what prevents it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfctl.provision.decide import gpu, horovod, pythons, space
from tfctl.provision.decide.decision import ChosenStack, Decision, GpuSoftware
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings, fault
from tfctl.provision.decide.toolchain import toolchain
from tfctl.provision.decide.wanted import ALL, Wanted
from tfctl.provision.faults import ModuleFault
from tfctl.wording import abbreviated

OLDEST_SYSTEMD = 247  # Debian 11's: LogExtraFields, ProtectProc and prefix drop-ins as the units of tfctl use them
OLDEST_PYTHON = (3, 9)  # of the node part
LINKS = "/opt/tfctl/stacks"
NO_STACK = "no stack of tfctl is made for it: add one of your own (tfctl_stack_dirs)"
OWN_USERS = ("tfctl", "tfctl-guard")
USER_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


def decide(facts: Facts, wanted: Wanted) -> tuple[Decision, list[ModuleFault]]:
    """Return the decision and all faults. With faults, the decision has gaps."""
    findings = Findings([*_system_faults(facts, wanted), *_account_faults(facts, wanted)])
    operators = [name for name in wanted.operators or (facts.login,) if name != "root"]
    for name in operators:
        if not USER_NAME.fullmatch(name):
            message = f"tfctl_operators: {name!r} is not a user name"
            findings.faults.append(fault(message, "give plain user names", "inventory"))
        elif name in OWN_USERS and wanted.operators:
            message = f"tfctl_operators: {name} is a user of tfctl itself, as which jobs or guards run"
            findings.faults.append(fault(message, "name the users who start jobs", "inventory"))
    known = wanted.known()
    for name in wanted.preferences.allow_unverified:
        if name not in known and name != ALL:
            unverified = [each for each, entry in known.items() if not entry.trusted]
            message = f"tfctl_allow_unverified: no key or hash is called {name!r}"
            findings.refuse(message, f"these are unverified: {', '.join(unverified)}", "inventory")
    stack, gpus, compiler, mpi, hvd = None, None, None, None, None
    # For another system, nothing is known about packages, so further faults would have remedies that do not help.
    if wanted.stack != "none" and facts.system in wanted.systems:
        stack, gpus = _stack(facts, wanted, findings)
    if stack:
        entry = wanted.stacks[stack.name]
        if wanted.preferences.toolchain:
            compiler = toolchain(facts, wanted, entry, stack.edition == "gpu", findings)
        mpi, hvd = horovod.decide(facts, wanted, entry, stack, gpus, findings)
    faults = [*findings.faults, *space.faults(facts, wanted, stack)]
    notices = tuple(findings.notices)
    return Decision(tuple(sorted({*operators})), wanted.shared, notices, stack, gpus, compiler, mpi, hvd), faults


def _system_faults(facts: Facts, wanted: Wanted) -> Iterator[ModuleFault]:
    if not facts.root:
        yield fault(f"the login user {facts.login} cannot become root", "let that user use sudo, or log in as root")
    if facts.system not in wanted.systems:
        titles = ", ".join(system.title for system in wanted.systems.values())
        yield fault(
            f"{facts.title} is not supported", f"supported systems: {titles}; leave it out with --limit '!{{host}}'"
        )
        return  # what is too old or missing there has no remedy
    if facts.init != "systemd":
        remedy = "jobs are units: boot it with systemd"
        if facts.wsl:
            remedy = "write systemd=true below [boot] in its /etc/wsl.conf, then run in Windows: wsl --shutdown"
        yield fault(f"PID 1 is {facts.init or 'unknown'}, not systemd", remedy)
    elif facts.systemd < OLDEST_SYSTEMD:
        yield fault(f"systemd {facts.systemd}; {OLDEST_SYSTEMD} or newer is needed", "upgrade the operating system")
    if facts.own_python < OLDEST_PYTHON:
        version, oldest = (".".join(map(str, each)) for each in (facts.own_python, OLDEST_PYTHON))
        yield fault(
            f"/usr/bin/python3 is {version}; {oldest} or newer is needed", "install a newer python3 of the distribution"
        )
    if not facts.sudo:
        yield fault("sudo is not installed", "install the package sudo")
    if facts.unfinished:
        names = [name for name in facts.unfinished if name]
        message = f"{abbreviated(names)} {'is' if len(names) == 1 else 'are'} half installed" if names else ""
        yield fault(
            message or "dpkg was interrupted",
            "run on {host}: dpkg --configure -a, then apt --fix-broken install",
        )


def _account_faults(facts: Facts, wanted: Wanted) -> Iterator[ModuleFault]:
    uid = wanted.uid
    if facts.login == "tfctl":
        # Each task of Ansible begins as this user, and a running job could get out of its sandbox through it.
        yield fault("the login user is tfctl, the user of the jobs", "log in as another user (ansible_user)")
    if not 1 <= uid <= 999:
        yield fault(f"tfctl_uid {uid} is not the ID of a system user", "choose one from 1 to 999", "inventory")
    for kind, there, owner in (("user", facts.user, facts.uid_owner), ("group", facts.group, facts.gid_owner)):
        if there not in (None, uid):
            yield fault(
                f"the {kind} tfctl has the ID {there} here instead of {uid}",
                f"remove that {kind}, or set tfctl_uid={there} for all hosts (they share files)",
            )
        elif there is None and owner:
            yield fault(
                f"the ID {uid} belongs to the {kind} {owner} here",
                "set tfctl_uid to an ID below 1000 that is free on every host",
            )


def _stack(facts: Facts, wanted: Wanted, findings: Findings) -> tuple[ChosenStack | None, GpuSoftware | None]:
    """Return the parts stack and gpu of the decision; without a stack, add a fault."""
    name, stack = wanted.stack, wanted.stacks.get(wanted.stack)
    if not name:
        remedy = "--stack tf2.15, or tfctl_stack in the inventory; --stack none installs no TensorFlow"
        findings.refuse("no stack is named for this host", remedy, "inventory")
        return None, None
    if stack is None:
        remedy = f"choose from {', '.join(wanted.stacks)}; none installs no TensorFlow"
        findings.refuse(f"tfctl_stack: no stack is called {name!r}", remedy, "inventory")
        return None, None
    if facts.gpu is None and (expected := wanted.preferences.gpus_expected):
        message = f"tfctl_gpus_expected is {expected}, and no NVIDIA GPU is on the PCI bus"
        findings.refuse(message, "restart {host}; if the GPUs do not return, have the machine repaired")
    edition = gpu.edition_of(facts, stack, wanted.preferences.edition, findings)
    chosen = stack.editions[edition]
    if facts.machine not in chosen.machines:
        made_for = " and ".join(chosen.machines)
        message = f"{name} is made for {made_for}; this is {facts.machine}"
        editions = {each: other.editions.get(edition) for each, other in wanted.stacks.items()}
        fitting = [each for each, other in editions.items() if other and facts.machine in other.machines]
        instead = f"set tfctl_stack: {' or '.join(fitting)}" if fitting else NO_STACK
        findings.refuse(message, f"{instead}; or leave it out with --limit '!{{host}}'")
        return None, None
    host = gpu.gpu_host_of(facts, wanted, stack, findings) if edition == "gpu" else None
    gpus = gpu.decide(host, wanted.stacks) if host else None
    python = pythons.choose(facts, wanted, stack, findings)
    if python is None:
        return None, gpus
    environment = stack.environment(edition, python.version)
    found = ChosenStack(
        name=name,
        edition=edition,
        python=python,
        path=f"{LINKS}/{environment}",
        link=f"{LINKS}/{name}",
        lock=str(stack.lock(edition, python.version)),
        disk_mb=chosen.disk_mb,
        imports=stack.imports,
        there=environment in facts.environments,
    )
    return found, gpus
