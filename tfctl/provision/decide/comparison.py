"""Compare the hosts of a run with each other: find what no host can see alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import chain

from tfctl.model.addresses import SAME_ADDRESS, names_by, same_address
from tfctl.model.ports import port_range
from tfctl.model.strategies import STRATEGIES
from tfctl.provision.decide.facts import Clock, Facts, Firewalld, Identity
from tfctl.provision.decide.fault import fault
from tfctl.provision.decide.firewall import blocked
from tfctl.provision.faults import ModuleFault
from tfctl.wording import abbreviated, listed

#: Clocks that differ by less (s) are accepted.
CLOCK_S = 2.0
#: What this machine is called in messages.
_HERE = "the control machine"


@dataclass(frozen=True)
class Ahead:
    """The least and the most (s) by which the clock of a host is ahead of this machine's."""

    least: float
    most: float


@dataclass(frozen=True)
class ComparedHost:
    """What is compared of a host. ``address``: where other hosts reach it; ``resolved``: what that is on the host.

    ``synchronized``: whether provisioning will synchronize the clock. ``ports``: of jobs, such as 2222-2299. ``roots``:
    the marks of the directories to which jobs write (facts.Disk); None if provisioning mounts or checks a shared one.
    ``driver``: the version of NVIDIA's driver that is installed, or "". ``peers``: addresses of other hosts'
    names, as the host resolves them.
    """

    identity: Identity
    address: str
    resolved: tuple[str, ...]
    ahead: Ahead
    synchronized: bool = False
    firewalld: Firewalld | None = None
    ports: str = ""
    roots: Mapping[str, str] | None = None
    driver: str = ""
    peers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """``faults``: those of each host that has some; ``warnings``: sentences about several hosts."""

    faults: Mapping[str, list[ModuleFault]]
    warnings: list[str]


def compared(
    facts: Facts,
    address: str,
    sent: float,
    received: float,
    synchronized: bool = False,
    ports: str = "",
    roots: Iterable[str] = (),
) -> ComparedHost:
    """Return what is compared of a host. This machine asked for its facts at ``sent`` and got them at ``received``.

    ``roots``: the directories to which jobs write, unless provisioning itself mounts or checks a shared one.
    """
    marks = {path: facts.disks[path].mark for path in roots}
    clock = ahead(facts.clock, sent, received)
    firewalld, driver = facts.firewalld, (facts.gpu.version or facts.gpu.loaded) if facts.gpu else ""
    return ComparedHost(
        facts.identity,
        address,
        facts.addresses,
        clock,
        synchronized,
        firewalld,
        ports,
        marks or None,
        driver,
        facts.peers,
    )


def ahead(clock: Clock, sent: float, received: float) -> Ahead:
    """Return between which bounds a clock is ahead of this machine's.

    ``clock`` is read on the host after ``sent`` and before ``received``, which are times of this machine.
    """
    return Ahead(clock.ended - received, clock.begun - sent)


def compare(hosts: Mapping[str, ComparedHost], others: bool = False) -> Comparison:
    """Return what is wrong between the hosts, which are given by their names in the inventory.

    ``others``: whether the inventory has more hosts than these.
    """
    faults: dict[str, list[ModuleFault]] = {}
    for name, found in (*_equal(hosts), *_unreachable(hosts, others), *_wrong_clocks(hosts), *_blocking(hosts)):
        faults.setdefault(name, []).append(found)
    return Comparison(
        faults,
        [
            *_aliases(hosts),
            *_same_address(hosts),
            *_unknown(hosts),
            *_own_clock(hosts),
            *_not_shared(hosts),
            *_drivers(hosts),
        ],
    )


def _equal(hosts: Mapping[str, ComparedHost]) -> Iterator[tuple[str, ModuleFault]]:
    """Yield the hosts that have the hostname or machine ID of another host, although they are different machines."""
    hostnames = names_by({name: host.identity.hostname for name, host in hosts.items()})
    machine_ids = names_by({name: host.identity.machine_id for name, host in hosts.items()})
    for name, host in hosts.items():
        hostname, machine_id = host.identity.hostname, host.identity.machine_id
        if same := [other for other in hostnames[hostname] if hosts[other].identity != host.identity]:
            remedy = "give each host its own hostname: hostnamectl set-hostname NAME"
            yield name, fault(f"the hostname {hostname} is also that of {abbreviated(same)}", remedy)
        same = [other for other in machine_ids[machine_id] if hosts[other].identity != host.identity]
        if same and machine_id:
            remedy = "create another: rm -f /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup; reboot"
            yield name, fault(f"the machine ID {machine_id} is also that of {abbreviated(same)}", remedy)


def _unreachable(hosts: Mapping[str, ComparedHost], others: bool) -> Iterator[tuple[str, ModuleFault]]:
    """Yield the hosts whose address is a loopback address to themselves: no other host reaches what listens there."""
    if not others and len({host.identity for host in hosts.values()}) < 2:
        return
    for name, host in hosts.items():
        if host.resolved and not any(map(_leads_elsewhere, host.resolved)):
            there, *_ = host.resolved
            if host.address == there:
                remedy = "set tfctl_address to an address that the other hosts can reach"
                yield name, fault(f"its address is {there}, which other hosts cannot reach", remedy)
            else:
                message = f"{host.address} is {there} on the host itself, which other hosts cannot reach"
                remedy = f"remove {host.address} from the line of {there} in its /etc/hosts, or set tfctl_address"
                yield name, fault(message, remedy)


def _wrong_clocks(hosts: Mapping[str, ComparedHost]) -> Iterator[tuple[str, ModuleFault]]:
    """Yield the hosts whose clocks differ from most others."""
    clocks = _clocks(hosts)
    for name, host in hosts.items():
        difference = "" if host.synchronized else _difference(name, clocks)
        if difference:
            remedy = "synchronize it (timedatectl set-ntp true), or let provision do it: tfctl_time_sync=true"
            yield name, fault(f"the clock is {difference}", remedy)


def _blocking(hosts: Mapping[str, ComparedHost]) -> Iterator[tuple[str, ModuleFault]]:
    """Yield the hosts whose firewalld does not let other hosts connect to the ports of jobs."""
    for name, host in hosts.items():
        if host.firewalld is None:
            continue
        theirs = {
            address: other
            for other, each in hosts.items()
            for address in each.resolved
            if each.identity != host.identity and _leads_elsewhere(address)
        }
        rejected = blocked(host.firewalld, [address.partition("%")[0] for address in theirs], host.ports)
        if rejected:
            others = list(dict.fromkeys(theirs[address] for address in theirs if address.partition("%")[0] in rejected))
            sources = " ".join(f"--add-source={address}" for address in rejected)
            yield (
                name,
                fault(
                    f"firewalld does not let {abbreviated(others)} connect to the ports of jobs, {host.ports} "
                    "(tfctl_ports)",
                    f"firewall-cmd --permanent --zone=trusted {sources}; firewall-cmd --reload",
                ),
            )


def _drivers(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    """Yield a sentence if the hosts have different drivers: a driver stays as it was when its host was provisioned."""
    named = names_by({name: host.driver for name, host in hosts.items() if host.driver})
    if len(named) > 1:
        found = [f"{version} on {abbreviated(names)}" for version, names in sorted(named.items())]
        yield f"the hosts have different NVIDIA drivers: {'; '.join(found)}"


def _own_clock(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    difference = _difference(_HERE, _clocks(hosts)) if len(hosts) > 1 else ""
    if difference:
        yield f"the clock of {_HERE} is {difference}: times that tfctl prints may be wrong"


def _clocks(hosts: Mapping[str, ComparedHost]) -> dict[str, Ahead]:
    return {_HERE: Ahead(0.0, 0.0), **{name: host.ahead for name, host in hosts.items()}}


def _difference(name: str, clocks: Mapping[str, Ahead]) -> str:
    """Return by how much a clock certainly differs from most others, or ""."""
    own = clocks[name]
    gaps = {other: own.least - each.most for other, each in clocks.items() if own.least - each.most > CLOCK_S}
    behind = {other: each.least - own.most for other, each in clocks.items() if each.least - own.most > CLOCK_S}
    if 2 * (len(gaps) + len(behind)) < len(clocks):
        return ""
    direction = "ahead of"
    if len(behind) > len(gaps):
        gaps, direction = behind, "behind"
    return f"at least {min(gaps.values()):.0f} s {direction} {_theirs([*gaps])}"


def _theirs(names: list[str]) -> str:
    return f"that of {names[0]}" if len(names) == 1 else f"those of {abbreviated(names)}"


def _aliases(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    """Yield the names of each machine that has several."""
    names = names_by({name: host.identity for name, host in hosts.items()})
    yield from (f"{abbreviated(same)} are the same machine" for same in names.values() if len(same) > 1)


def _same_address(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    """Yield the machines that have one address for all others."""
    different = {host.identity: (name, host) for name, host in hosts.items()}.values()
    ports = {name: port_range(host.ports or "1-65535") for name, host in different}
    for sentence in same_address({name: host.address for name, host in different}, ports):
        yield f"{sentence}: {SAME_ADDRESS}"


def _unknown(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    """Yield the addresses that hosts have for others and that other hosts cannot resolve."""
    for name, host in hosts.items():
        asked = {
            other: each.peers[host.address]
            for other, each in hosts.items()
            if host.address in each.peers and each.identity != host.identity
        }
        if unknown := [other for other, found in asked.items() if not any(map(_leads_elsewhere, found))]:
            yield (
                f"{abbreviated(unknown)} cannot resolve {host.address}, the address of {name} for other hosts: "
                f"set tfctl_address to an address at which the other hosts reach {name}"
            )


def _leads_elsewhere(address: str) -> bool:
    return not ip_address(address.partition("%")[0]).is_loopback


def _not_shared(hosts: Mapping[str, ComparedHost]) -> Iterator[str]:
    """Yield a sentence if the hosts have no directory in common to which jobs may write."""
    roots = [host.roots for host in hosts.values() if host.roots is not None]
    if len(roots) < len(hosts) or len({host.identity for host in hosts.values()}) < 2:
        return
    everywhere = set(roots[0]).intersection(*roots)
    if any(len({marks[path] for marks in roots}) == 1 and roots[0][path] for path in everywhere):
        return
    refused = [strategy.name for strategy in STRATEGIES.values() if strategy.shared_output]
    local = [strategy.name for strategy in STRATEGIES.values() if not strategy.why_shared]
    yield (
        f"the hosts share no directory of tfctl_output_roots ({abbreviated(sorted({*chain(*roots)}))}): `start` will "
        f"refuse jobs of {listed(refused)}, and jobs with several ps; jobs of {listed(local)} run with `output: local` "
        "in the job file"
    )
