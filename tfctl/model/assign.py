"""Give every task a port and GPUs, from what its host reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tfctl.errors import BadFile, Taken, TfctlError
from tfctl.model import addresses, gpus
from tfctl.model.host import LOOPBACK, Host, Site, is_loopback
from tfctl.model.job import Job, Layout
from tfctl.model.ports import port_for_guard
from tfctl.model.task import Slot, Task
from tfctl.wording import QUEUE, abbreviated, counted

if TYPE_CHECKING:
    from random import Random

    from tfctl.model.strategies.base import Strategy

#: The range from which Linux takes the ports of outgoing connections, unless somebody has changed it (ip(7)).
_OUTGOING = (32768, 60999)


def assign(layout: Layout, sites: Mapping[str, Site], draw: Random | None = None) -> tuple[Task, ...]:
    """Give every task a port and GPUs, from ``sites`` (by host name).

    Ports are the lowest that are free or, with ``draw``, drawn from all of `tfctl_ports` that are free, so that starts
    which compete for ports choose different ones. The `ports:` of a job always ascend: people rely on their order.

    Raise Taken, Busy or PreflightFailed if there are too few, and BadFile for a port range that is too small, GPU
    numbers that the strategy does not allow, or an address that peers cannot reach.
    """
    shares = gpus.share(layout, sites)
    free = {host.name: _free_ports(host, layout, sites[host.name].held) for host in layout.hosts}
    if draw and layout.ports is None:
        for ports in free.values():
            draw.shuffle(ports)
    tasks = []
    for slot in layout.slots:
        site, ports = sites[slot.host.name], free[slot.host.name]
        if not ports:
            raise _no_port(slot, layout, site)
        tasks.append(Task(slot, _dialable(slot.host, site, layout.strategy), ports.pop(0), shares[slot.name]))
    return tuple(tasks)


def draft(layout: Layout) -> Job:
    """Return the job as its first attempt would be if all ports and GPUs were free.

    Raise as `assign` does, and BadFile if two of the hosts are one machine or have one address.
    """
    alone = len(layout.hosts) == 1
    sites = {
        host.name: Site(own_address(host, alone) or host.name, {}, alone=alone and host.is_local)
        for host in layout.hosts
    }
    addresses.require_distinct(layout.hosts, {name: site.address for name, site in sites.items()}, layout.ports)
    return Job(layout, attempt=1, run="00000000", started=0.0, tasks=assign(layout, sites), secret="0" * 32)


def own_address(host: Host, alone: bool) -> str | None:
    """Return the address of a host that the inventory has, or None. That of a local host may be a loopback address if
    it is ``alone``, the only host of the job: it does not depend on a network, and TensorFlow's server listens there
    too."""
    return host.address or (LOOPBACK if alone and host.is_local else None)


def guard_port(layout: Layout, sites: Mapping[str, Site], tasks: Sequence[Task], draw: Random | None = None) -> int:
    """Return a port of the head's `tfctl_ports` that no task has, or 0 if the job has one host alone.

    It is the lowest or, with ``draw``, any. Raise Taken if there is none.
    """
    if len(layout.hosts) == 1:
        return 0
    head = layout.head.host
    return port_for_guard(head, {*sites[head.name].held, *(task.port for task in tasks if task.host == head)}, draw)


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
    return Taken(f"{message}; in use: {holders}", f"widen the range, stop the processes that use them, or {QUEUE}")


def _dialable(host: Host, site: Site, strategy: Strategy) -> str:
    """Return the address at which the other tasks reach this host. Raise BadFile if they cannot."""
    address = site.address
    why = addresses.unusable(address)
    if why and not (site.alone and is_loopback(address)):
        raise BadFile(
            f"{host.name}: its address is {address}, {why}",
            "set tfctl_address in the inventory to an address that the other hosts can reach",
        )
    if strategy.ipv4_only and addresses.is_ipv6(address):
        raise BadFile(
            f"{host.name}: {address} is an IPv6 address; {strategy.ipv4_only}",
            "set tfctl_address to an IPv4 address of this host, or use another strategy",
        )
    return address


def outgoing_ports(layout: Layout, ranges: Mapping[str, tuple[int, int] | None] | None = None) -> list[str]:
    """Return a sentence for each range of ports of the job from which a host takes those of outgoing connections.

    ``ranges``: the range of each host that has one in common with the job; by default, that of Linux for all.
    """
    found: dict[tuple[str, tuple[int, int], tuple[int, int]], list[str]] = {}
    for host in layout.hosts:
        taken = _OUTGOING if ranges is None else ranges.get(host.name)
        ranges_of_job = {"ports": layout.ports} if layout.ports else {"tfctl_ports": host.ports}
        if len(layout.hosts) > 1 and host == layout.head.host:
            ranges_of_job["tfctl_ports"] = host.ports  # the guard of the job has one of these
        for name, (first, last) in ranges_of_job.items():
            if taken and first <= taken[1] and last >= taken[0]:
                found.setdefault((name, (first, last), taken), []).append(host.name)
    return [
        f"{name}: {first}-{last} is in the range of outgoing connections of {abbreviated(hosts)} ({low}-{high}), which "
        f"may take a port before a task does: choose ports below {low}"
        for (name, (first, last), (low, high)), hosts in found.items()
    ]
