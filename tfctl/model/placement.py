"""Place tasks: first on hosts, from job file and inventory alone, then on ports and GPUs, from the hosts' answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tfctl.errors import BadFile, Busy, TfctlError
from tfctl.model import fit, gpus, pattern, stacks
from tfctl.model.host import Host, Inventory, Site
from tfctl.model.job import Layout, Slot, Task
from tfctl.model.jobfile import JobFile, RoleSpec
from tfctl.model.load import near
from tfctl.model.policy import policy
from tfctl.model.stacks import Stack
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy
from tfctl.wording import counted


def lay_out(job: JobFile, inventory: Inventory, place: str, known: Mapping[str, Stack] | None = None) -> Layout:
    """Check the roles against the strategy and give every task a host.

    Roles are placed in file order. Each role deals its replicas round-robin over its pattern's hosts, from the first.
    ``place`` names the job file in errors. ``known`` holds the stacks whose contents tfctl knows, by default those it
    ships. Raise BadFile.
    """
    strategy = _strategy(job, place)
    known = stacks.load() if known is None else known
    slots: list[Slot] = []
    for role, spec in job.roles.items():
        slots += _role_slots(job, role, spec, _hosts(inventory, role, spec, place))
    counts = Counter(slot.role for slot in slots)
    _check_counts(strategy, counts, place)
    _check_outputs(job, slots, place)
    slots = _on_stacks(strategy, slots, place, known)
    return Layout(
        name=job.name,
        strategy=strategy,
        inventory=inventory.source,
        output=job.output,
        ports=job.ports,
        cloud=job.environment == "cloud",
        policy=policy(job, strategy, counts, place),
        slots=tuple(slots),
        notes=_notes(strategy, slots, known),
    )


def assign(layout: Layout, sites: Mapping[str, Site]) -> tuple[Task, ...]:
    """Give every task a port and GPUs, from ``sites`` (by host name).

    Raise Busy or PreflightFailed if there are too few, and BadFile for a port range that is too small, GPU numbers
    that the strategy does not allow, or an address that peers cannot reach.
    """
    ports = {host.name: _free_ports(host, layout, sites[host.name].held) for host in layout.hosts}
    given = gpus.share(layout, sites)
    tasks = []
    for slot in layout.slots:
        free = ports[slot.host.name]
        if not free:
            raise _no_port(slot, layout, sites[slot.host.name])
        site = sites[slot.host.name]
        tasks.append(Task(slot, _dialable(slot.host, site), free.pop(0), given[slot.role, slot.index]))
    gpus.check_equal(layout, tasks)
    return tuple(tasks)


def _strategy(job: JobFile, place: str) -> Strategy:
    found = STRATEGIES.get(job.strategy)
    if found is None:
        raise BadFile(f"{place}: strategy: {job.strategy!r} is not known; {near(job.strategy, list(STRATEGIES))}")
    for role in job.roles:
        if found.rule(role) is None:
            raise _no_such_role(role, found, place)
    if job.environment and found.cluster_of({}, "") is None:
        raise BadFile(f"{place}: environment: tasks of {found.name} have no TF_CONFIG", "remove `environment:`")
    if job.launcher and job.launcher not in found.launchers:
        raise BadFile(f"{place}: launcher: {found.name} has no launchers to choose from", "remove `launcher:`")
    return found.launchers[job.launcher] if job.launcher else found


def _no_such_role(role: str, strategy: Strategy, place: str) -> BadFile:
    message = f"{place}: roles/{role}: {strategy.name} has no such role"
    if role == "master" and "chief" in strategy.roles:
        return BadFile(f"{message}: only tf.estimator has a master", "write `chief` instead of `master`")
    return BadFile(f"{message}; {near(role, list(strategy.roles))}")


def _hosts(inventory: Inventory, role: str, spec: RoleSpec, place: str) -> tuple[Host, ...]:
    try:
        return pattern.select(inventory, spec.hosts)
    except BadFile as error:
        raise BadFile(f"{place}: roles/{role}/hosts: {error.message}", error.remedy) from None


def _role_slots(job: JobFile, role: str, spec: RoleSpec, hosts: tuple[Host, ...]) -> Iterable[Slot]:
    if spec.per_host is not None:
        chosen = [host for host in hosts for _ in range(spec.per_host)]
    else:
        chosen = [hosts[index % len(hosts)] for index in range(spec.replicas or 1)]
    for index, host in enumerate(chosen):
        yield Slot(
            role=role,
            index=index,
            host=host,
            gpus=spec.gpus,
            command=spec.command or job.command,
            env={**job.env, **spec.env},
            stack=spec.stack or job.stack or host.stack or "none",
        )


def _check_counts(strategy: Strategy, counts: Mapping[str, int], place: str) -> None:
    for role, rule in strategy.roles.items():
        count = counts.get(role, 0)
        if count < rule.least:
            raise BadFile(f"{place}: roles: {strategy.name} needs a {role}: {rule.why}", f"add `{role}: {rule.least}`")
        if rule.most is not None and count > rule.most:
            raise BadFile(f"{place}: roles/{role}: {strategy.name} has at most {rule.most}, not {count}")
    refused = strategy.refuse(counts)
    if refused:
        raise BadFile(f"{place}: roles: {refused.message}", refused.remedy)


def _on_stacks(strategy: Strategy, slots: list[Slot], place: str, known: Mapping[str, Stack]) -> list[Slot]:
    """Return the slots with the variables that their stack needs; the job's own take precedence."""
    try:
        for stack in dict.fromkeys(slot.stack for slot in slots):
            fit.check(strategy, stack, known)
    except BadFile as error:
        raise BadFile(f"{place}: strategy {strategy.name}: {error.message}", error.remedy) from None
    return [replace(slot, env={**fit.switches(strategy, slot.stack, known), **slot.env}) for slot in slots]


def _notes(strategy: Strategy, slots: list[Slot], known: Mapping[str, Stack]) -> tuple[str, ...]:
    """Return sentences about the variables set for a stack, and about what a stack lacks."""
    set_by_us = {
        f"{name}={value}": slot.stack
        for slot in slots
        for name, value in fit.switches(strategy, slot.stack, known).items()
        if slot.env[name] == value
    }
    told = [f"{what} is set: {strategy.name} needs Keras 2 of stack {stack}" for what, stack in set_by_us.items()]
    doubts = dict.fromkeys(fit.doubt(strategy, slot.stack, known) for slot in slots)
    return (*told, *filter(None, doubts))


def _check_outputs(job: JobFile, slots: Iterable[Slot], place: str) -> None:
    for host in dict.fromkeys(slot.host for slot in slots):
        if not any(job.output.startswith(root.rstrip("/") + "/") for root in host.output_roots):
            raise BadFile(
                f"{place}: output: {job.output} is not below {' or '.join(host.output_roots)}, "
                f"which {host.name} allows (tfctl_output_roots)"
            )


def _free_ports(host: Host, layout: Layout, held: Collection[int]) -> list[int]:
    first, last = layout.ports or host.ports
    return [port for port in range(first, last + 1) if port not in held]


def _no_port(slot: Slot, layout: Layout, site: Site) -> TfctlError:
    first, last = layout.ports or slot.host.ports
    wanted = sum(other.host == slot.host for other in layout.slots)
    where = "ports" if layout.ports else "tfctl_ports"
    message = f"{slot.host.name}: {counted(wanted, 'task')}, but fewer free ports in {first}-{last} ({where})"
    if wanted > last - first + 1:
        return BadFile(message, "widen the range, or spread the tasks over more hosts")
    holders = ", ".join(f"{port} {who}" for port, who in list(site.held.items())[:3])
    return Busy(f"{message}; held are {holders}", "widen the range, or stop what holds them")


def _dialable(host: Host, site: Site) -> str:
    address = site.address
    if site.alone:
        return address
    if address.startswith("127.") or address in ("localhost", "::1"):
        raise BadFile(
            f"{host.name}: its address is {address}, which other hosts cannot reach",
            "set tfctl_address in the inventory to the address its peers dial",
        )
    if ":" in address:
        raise BadFile(f"{host.name}: {address} is IPv6; TensorFlow's server listens on IPv4", "set tfctl_address")
    return address
