"""Addresses of hosts: what an inventory may call one, how tasks write it, and which hosts share one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import pairwise
from socket import inet_aton

from tfctl.errors import BadFile, together
from tfctl.model.host import Host, Ssh
from tfctl.node.names import ADDRESS
from tfctl.wording import abbreviated, listed

#: What this machine calls itself (hosts(5) of Debian, EL and macOS).
_OWN = re.compile(r"(localhost|ip6-localhost|localhost[46])(\.localdomain[46]?)?")
_NUMERIC = re.compile(r"[0-9][0-9a-fx.]*", re.IGNORECASE)
#: The remedies for what `same_machine` and `same_address` find.
SAME_MACHINE = "let a job use one of these names: remove the others from the inventory or from the `hosts` of its roles"
SAME_ADDRESS = (
    "set tfctl_address to the address at which the other hosts reach each of them; if they are one machine, remove one"
)


def fault(text: str, port: str, words: str) -> tuple[str, str]:
    """Return what keeps a text from being the address of a host, and what to write instead, or two empty strings.

    ``port``, ``words``: where a port and further words belong.
    """
    if re.search(r"[\s,;]", text):
        return "is not the address of a host: it has several words", words
    belongs: dict[str, str] = {}
    scheme, rest = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*://)?(.*)", text).groups("")  # type: ignore[union-attr]
    if scheme:
        belongs["a scheme"] = f"leave out {scheme}"
    user, at, rest = rest.rpartition("@")
    if at:
        belongs["a user"] = f"write {user.partition(':')[0] or 'it'} as ansible_user"
    rest, slash, path = rest.partition("/")
    if slash:
        directories = "" if path.isdecimal() else "; directories to which jobs write belong in tfctl_output_roots"
        belongs["a path"] = f"leave out /{path}{directories}"
    inside = re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):([^:]*)", rest)
    if inside:
        rest = inside[1]
        if inside[2] or not slash:
            belongs["a port"] = port
    if re.fullmatch(r"\[.*\]", rest):
        rest = rest[1:-1]
        belongs["brackets"] = f"write {rest or 'the address'} without them"
    if belongs:
        return f"is more than an address: it holds {listed(list(belongs))}", "; ".join(belongs.values())
    if not ADDRESS.fullmatch(text) or re.search(r"[\[\]]", text) or (":" in text and parsed(text) is None):
        return "is not the address of a host", "write a name or an IP address"
    return "", ""


def parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address, also one that is written as inet_aton(3) allows, such as 127.1; None for a name."""
    try:
        found = ip_address(inet_aton(address) if _NUMERIC.fullmatch(address) else address)
    except (OSError, ValueError):
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def canonical(address: str) -> str:
    """Return the address in the one spelling that it has in common with all its others."""
    return str(parsed(address) or address.lower().rstrip("."))


def unusable(address: str) -> str:
    """Return why no other host can reach this address, as the end of a sentence, or "" if one may."""
    found = parsed(address)
    if found is None:
        return "which other hosts cannot reach" if _OWN.fullmatch(canonical(address)) else ""
    if found.is_loopback or found.is_unspecified or found.is_multicast:
        return "which other hosts cannot reach"
    if found.version == 6 and found.is_link_local:
        return "which is valid only on one link: each host would have to add its own interface to it"
    return ""


def is_ipv6(address: str) -> bool:
    return getattr(parsed(address), "version", 4) == 6


def require_distinct(
    hosts: Sequence[Host],
    addresses: Mapping[str, str],
    ports: tuple[int, int] | None = None,
    machines: Mapping[str, str] | None = None,
) -> None:
    """Raise BadFile if tasks on two of these hosts could get one address and port, or two are one machine.

    ``addresses``: where the others reach each host, by its name. ``ports``: those of the job, if not each host's own.
    ``machines``: the identity of each host that has told one.
    """
    errors = [BadFile(sentence, SAME_MACHINE) for sentence in same_machine(hosts, machines or {})]
    if not errors:
        ranges = {host.name: ports or host.ports for host in hosts}
        errors = [BadFile(sentence, SAME_ADDRESS) for sentence in same_address(addresses, ranges)]
    if errors:
        raise together(errors)


def same_machine(hosts: Iterable[Host], machines: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each machine to which several names lead: by what it says of itself, else by where ssh
    connects to."""
    hosts = list(hosts)
    for names in names_by({host.name: machines[host.name] for host in hosts if machines.get(host.name)}).values():
        if len(names) > 1:
            yield f"{listed(names)} are the same machine"
    silent = {host.name: host.ssh for host in hosts if not machines.get(host.name)}
    for names in names_by({name: _destination(ssh) for name, ssh in silent.items()}).values():
        if len(names) > 1:
            ssh = silent[names[0]]
            at = f"port {ssh.port} of {ssh.host}" if ssh.port else ssh.host
            yield f"{listed(names)} are the same machine: ssh connects to {at} for each of them"


def same_address(addresses: Mapping[str, str], ports: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Yield a sentence for each address that several hosts have for the others, unless no port can be taken twice: a
    router may forward different ports to different machines. Both arguments are by the names of hosts."""
    for names in names_by({name: canonical(address) for name, address in addresses.items()}).values():
        ranges = sorted(ports[name] for name in names)
        if any(after[0] <= before[1] for before, after in pairwise(ranges)):
            yield f"{abbreviated(names)} have the same address, {addresses[names[0]]}, for other hosts"


def _destination(ssh: Ssh) -> tuple[str, int | None, str | None, tuple[str, ...]]:
    """Return where ssh connects to: a gateway may look at the user, and arguments may name a jump host."""
    return canonical(ssh.host), ssh.port, ssh.user, ssh.args


def names_by(values: Mapping[str, object]) -> dict[object, list[str]]:
    """Return the names that have each value."""
    found: dict[object, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    return found
