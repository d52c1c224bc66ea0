"""Who runs where: first hosts, from job file and inventory alone; then ports and GPUs, from what the hosts say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tfctl.errors import BadFile, Busy
from tfctl.model import pattern
from tfctl.model.host import Host, Inventory
from tfctl.model.job import Layout, Policy, Slot, Task
from tfctl.model.jobfile import JobFile, RoleSpec
from tfctl.model.load import near
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy


@dataclass(frozen=True)
class Site:
    """What a host said of itself: ``address`` is what its peers reach it by; ``held``: port → who has it.

    ``gpus`` are the UUIDs of those that nobody has; None: not asked, and names are made up (`gpu-0`). ``alone``: every
    task is on this host, so that a loopback address does.
    """

    address: str
    held: Mapping[int, str]
    gpus: tuple[str, ...] | None = None
    alone: bool = False


def lay_out(job: JobFile, inventory: Inventory, place: str) -> Layout:
    """Check roles against the strategy and give every task a host: roles in file order, replicas round over the
    pattern's hosts, every role beginning at the first. ``place`` names the job file in errors. Raises BadFile."""
    strategy = _strategy(job, place)
    slots: list[Slot] = []
    for role, spec in job.roles.items():
        slots += _role_slots(job, role, spec, _hosts(inventory, role, spec, place))
    counts = Counter(slot.role for slot in slots)
    _check_counts(strategy, counts, place)
    _check_outputs(job, slots, place)
    return Layout(
        name=job.name,
        strategy=strategy,
        inventory=inventory.source,
        output=job.output,
        ports=job.ports,
        cloud=job.environment == "cloud",
        policy=_policy(job, strategy, counts, place),
        slots=tuple(slots),
    )


def assign(layout: Layout, sites: Mapping[str, Site]) -> tuple[Task, ...]:
    """Ports and GPUs, by what each host (by name) said. Raises Busy when they do not suffice, BadFile for addresses
    that peers cannot reach."""
    ports = {host.name: _free_ports(host, layout, sites[host.name].held) for host in layout.hosts}
    gpus = _gpus(layout, sites)
    tasks = []
    for slot in layout.slots:
        free = ports[slot.host.name]
        if not free:
            raise _no_port(slot, layout, sites[slot.host.name])
        site = sites[slot.host.name]
        tasks.append(Task(slot, _dialable(slot.host, site), free.pop(0), gpus[slot.role, slot.index]))
    return tuple(tasks)


def _strategy(job: JobFile, place: str) -> Strategy:
    found = STRATEGIES.get(job.strategy)
    if found is None:
        raise BadFile(f"{place}: strategy: {job.strategy!r} is not known; {near(job.strategy, list(STRATEGIES))}")
    for role in job.roles:
        if found.rule(role) is None:
            raise BadFile(f"{place}: roles/{role}: {found.name} has no such role; {near(role, list(found.roles))}")
    return found


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
        raise BadFile(f"{place}: roles: {refused}")


def _check_outputs(job: JobFile, slots: Iterable[Slot], place: str) -> None:
    for host in dict.fromkeys(slot.host for slot in slots):
        if not any(job.output.startswith(root.rstrip("/") + "/") for root in host.output_roots):
            raise BadFile(
                f"{place}: output: {job.output} is not below {' or '.join(host.output_roots)}, "
                f"which {host.name} allows (tfctl_output_roots)"
            )


def _policy(job: JobFile, strategy: Strategy, counts: Mapping[str, int], place: str) -> Policy:
    asked = job.policy
    restarts = strategy.restarts if asked.max_restarts is None else asked.max_restarts
    if asked.on_failure == "fail":
        restarts = 0
    elif asked.on_failure == "restart" and asked.max_restarts is None:
        restarts = restarts or 3
    return Policy(
        deciders=_deciders(asked.success, strategy, counts, place),
        clean=asked.clean,
        max_restarts=restarts,
        deadline=asked.deadline,
        grace=asked.grace or strategy.grace,
        drain=asked.drain,
    )


def _deciders(success: str, strategy: Strategy, counts: Mapping[str, int], place: str) -> tuple[tuple[str, int], ...]:
    wanted: Callable[[], tuple[tuple[str, int], ...]] = {
        "auto": lambda: strategy.deciders(counts),
        "chief": lambda: tuple((role, 0) for role in ("chief", "master") if role in counts),
        "worker0": lambda: (("worker", 0),) if "worker" in counts else (),
        "all_workers": lambda: tuple(
            (role, index) for role in ("chief", "master", "worker") for index in range(counts.get(role, 0))
        ),
    }[success]
    found = wanted()
    if not found:
        raise BadFile(f"{place}: policy/success: {success}, but the job has no such task")
    return found


def _free_ports(host: Host, layout: Layout, held: Collection[int]) -> list[int]:
    first, last = layout.ports or host.ports
    return [port for port in range(first, last + 1) if port not in held]


def _no_port(slot: Slot, layout: Layout, site: Site) -> Exception:
    first, last = layout.ports or slot.host.ports
    wanted = sum(other.host == slot.host for other in layout.slots)
    where = "ports" if layout.ports else "tfctl_ports"
    message = f"{slot.host.name}: {wanted} tasks, and not as many free ports in {first}-{last} ({where})"
    if wanted > last - first + 1:
        return BadFile(message, "widen the range, or spread the tasks over more hosts")
    holders = ", ".join(f"{port} {who}" for port, who in list(site.held.items())[:3])
    return Busy(f"{message}; held are {holders}", "widen the range, or stop what holds them")


def _gpus(layout: Layout, sites: Mapping[str, Site]) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """Disjoint: first to those who say how many, then the rest in equal shares to those who compute and do not say."""
    given: dict[tuple[str, int], tuple[str, ...] | None] = {}
    by_host: dict[str, list[Slot]] = defaultdict(list)
    for slot in layout.slots:
        by_host[slot.host.name].append(slot)
    for name, slots in by_host.items():
        asked = sum(slot.gpus or 0 for slot in slots)
        known = sites[name].gpus
        free = list(known) if known is not None else [f"gpu-{number}" for number in range(asked)]
        if asked > len(free):
            raise Busy(f"{name}: {asked} GPUs wanted, {len(free)} free", "lower `gpus`, or wait for those that run")
        for slot in slots:
            if slot.gpus is not None:
                given[slot.role, slot.index], free = tuple(free[: slot.gpus]), free[slot.gpus :]
        open_slots = [slot for slot in slots if slot.gpus is None]
        computing = [slot for slot in open_slots if _computes(layout.strategy, slot.role)]
        share = len(free) // len(computing) if computing else 0
        for slot in open_slots:
            if slot not in computing:
                given[slot.role, slot.index] = ()
            elif not free:
                given[slot.role, slot.index] = None
            else:
                given[slot.role, slot.index], free = tuple(free[:share]), free[share:]
    return given


def _computes(strategy: Strategy, role: str) -> bool:
    rule = strategy.rule(role)
    return rule is not None and rule.gpu


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
