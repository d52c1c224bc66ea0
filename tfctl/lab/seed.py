"""The files that turn a base image into a particular node. Pure functions of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfctl.lab.egress import Egress
from tfctl.lab.spec import USER, LabNode

USER_ID = 1000


@dataclass(frozen=True)
class Seed:
    text: str
    mode: int = 0o644
    owner: int = 0


@dataclass(frozen=True)
class NodeIdentity:
    """``host_key``, ``public_host_key``: the pair of host keys; ``operator_key``: the public key that may log in."""

    machine_id: str
    host_key: str
    public_host_key: str
    operator_key: str


def seeds(node: LabNode, peers: Sequence[LabNode], identity: NodeIdentity, egress: Egress) -> dict[str, Seed]:
    """Return the files by their path in the node."""
    return {
        "etc/hostname": Seed(f"{node.name}\n"),
        "etc/hosts": Seed(hosts(peers)),
        "etc/machine-id": Seed(f"{identity.machine_id}\n", mode=0o444),
        "etc/systemd/network/10-host0.network": Seed(network(node, egress.mtu)),
        "etc/ssh/ssh_host_ed25519_key": Seed(identity.host_key, mode=0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": Seed(identity.public_host_key),
        f"home/{USER}/.ssh/authorized_keys": Seed(identity.operator_key, mode=0o600, owner=USER_ID),
        **egress_seeds(egress),
    }


def egress_seeds(egress: Egress) -> dict[str, Seed]:
    """Return the files with which a system reaches what this machine reaches: name servers, package indexes and
    certificates."""
    files = {
        "etc/resolv.conf": Seed(egress.resolv_conf),
        "etc/pip.conf": Seed(pip_conf(egress)),
        "etc/apt/apt.conf.d/90tfctl-lab": Seed(apt_conf(egress)),
    }
    if egress.ca_bundle:
        files["etc/ssl/certs/ca-certificates.crt"] = Seed(egress.ca_bundle)
    files |= {f"usr/local/share/ca-certificates/{name}": Seed(text) for name, text in egress.own_cas.items()}
    files |= {f"etc/apt/auth.conf.d/{name}": Seed(text, mode=0o600) for name, text in egress.apt_logins.items()}
    return files


def hosts(peers: Sequence[LabNode]) -> str:
    """Return /etc/hosts with every node's address. No 127.0.1.1: peers must reach a server that binds its own name."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "".join(f"{line}\n" for line in lines + [f"{node.address} {node.name}" for node in peers])


def known_hosts(public_keys: Sequence[tuple[LabNode, str]]) -> str:
    """Return a known_hosts file (sshd(8)) with each node's address and name."""
    return "".join(f"{node.address},{node.name} {' '.join(key.split()[:2])}\n" for node, key in public_keys)


def network(node: LabNode, mtu: int) -> str:
    """Return a systemd.network(5) file without IPv6 and DHCP, so that boot does not wait for them."""
    return (
        f"[Match]\nName=host0\n\n[Link]\nMTUBytes={mtu}\n\n[Network]\nAddress={node.address}/24\n"
        f"Gateway={node.lab.gateway}\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nLLMNR=no\n"
    )


def pip_conf(egress: Egress) -> str:
    """Return a pip.conf with which pip in the node reaches what this machine's pip reaches."""
    lines = ["[global]"]
    if egress.ca_bundle:
        lines.append("cert = /etc/ssl/certs/ca-certificates.crt")
    if egress.index_url:
        lines.append(f"index-url = {egress.index_url}")
    if egress.extra_index_urls:
        lines.append("\n    ".join(["extra-index-url =", *egress.extra_index_urls]))
    if egress.https_proxy or egress.http_proxy:
        lines.append(f"proxy = {egress.https_proxy or egress.http_proxy}")
    return "".join(f"{line}\n" for line in lines)


def apt_conf(egress: Egress) -> str:
    """Return apt's own settings, plus the environment's proxies if apt has none."""
    text = egress.apt_settings
    for scheme, proxy in (("http", egress.http_proxy), ("https", egress.https_proxy)):
        name = f"Acquire::{scheme}::Proxy"
        if proxy and f"{name} " not in text:
            text += f'{name} "{proxy}";\n'
    return text
