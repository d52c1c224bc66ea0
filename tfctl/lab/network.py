"""A lab's network on this machine: a bridge and its firewall rules. systemd-nspawn makes the nodes' ends.

The rules have the lab's name as comment and the bridge its digits in its name, so they can be found without a record.
The rules are in iptables, not in an nftables table of our own: with Docker, FORWARD ends with DROP, and an accept in
another table does not override that.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path

from tfctl.errors import TfctlError
from tfctl.lab.host import run
from tfctl.lab.spec import Lab, bridge, rule_comment

_LINKS = Path("/sys/class/net")
_NEIGHBOURS = Path("/proc/sys/net/ipv4/neigh")
_TABLES = ("nat", "filter")
_BRIDGE = re.compile(r"tfctl-[0-9a-f]{6}")


def ensure(lab: Lab) -> None:
    """Create the network, or complete it if parts exist."""
    if not exists(lab.bridge):
        # Give it a fixed address: otherwise it takes the lowest of its ports' and changes as nodes come and go.
        run(["ip", "link", "add", "name", lab.bridge, "address", _mac(lab.name), "type", "bridge"])
    run(["ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.bridge])
    run(["ip", "link", "set", lab.bridge, "up"])
    # Look for a booting node ten times a second instead of once.
    (_NEIGHBOURS / lab.bridge / "retrans_time_ms").write_text("100\n")
    present = {table: _rules(table, lab.name) for table in _TABLES}
    for table, how, rule in _wanted(lab):
        # iptables prints the parts of a rule in its own order
        if not any(set(rule) <= set(words) for words in present[table]):
            run(["iptables", "--wait", "--table", table, how, *rule])


def remove(lab_name: str) -> None:
    """Remove the rules, then every cable on the bridge, then the bridge, as far as they exist."""
    for table in _TABLES:
        for words in _rules(table, lab_name):
            run(["iptables", "--wait", "--table", table, "-D", *words[1:]])
    for entry in (_LINKS / bridge(lab_name) / "brif").glob("*"):
        remove_link(entry.name)
    remove_link(bridge(lab_name))


def remove_link(link: str) -> None:
    """Delete a network interface. The kernel may be removing it too, so fail only if it still exists afterwards."""
    if exists(link) and run(["ip", "link", "delete", link], check=False).returncode != 0 and exists(link):
        raise TfctlError(f"{link}: cannot be removed", f"ip link delete {link}")


def exists(link: str) -> bool:
    return (_LINKS / link).exists()


def has_traces(lab_name: str) -> bool:
    return exists(bridge(lab_name)) or any(_rules(table, lab_name) for table in _TABLES)


def any_bridge() -> bool:
    """Return whether this machine has a bridge of any lab, with or without a record."""
    return any(_BRIDGE.fullmatch(entry.name) for entry in _LINKS.iterdir())


def taken_octets() -> set[int]:
    """Return the third octets of the 10.77 networks that this machine's addresses or routes already use."""
    addresses = json.loads(run(["ip", "-json", "-4", "address"]).stdout)
    routes = json.loads(run(["ip", "-json", "-4", "route"]).stdout)
    used = [entry["local"] for link in addresses for entry in link.get("addr_info", [])]
    used += [route["dst"] for route in routes]
    return {int(match[1]) for text in used if (match := re.match(r"10\.77\.(\d+)\.", text))}


def _wanted(lab: Lab) -> list[tuple[str, str, list[str]]]:
    """Return (table, -A or -I, rule with its chain) of each rule."""
    mark = ["-m", "comment", "--comment", rule_comment(lab.name)]
    out = ["POSTROUTING", "-s", lab.network, "!", "-d", lab.network, *mark, "-j", "MASQUERADE"]
    inward = ["FORWARD", "-o", lab.bridge, *mark, "-j", "ACCEPT"]
    outward = ["FORWARD", "-i", lab.bridge, *mark, "-j", "ACCEPT"]
    return [("nat", "-A", out), ("filter", "-I", inward), ("filter", "-I", outward)]


def _rules(table: str, lab_name: str) -> list[list[str]]:
    """Return this lab's rules, each as the words that ``iptables -S`` prints: ``-A CHAIN ...``."""
    lines = run(["iptables", "--wait", "--table", table, "-S"]).stdout.splitlines()
    rules = [shlex.split(line) for line in lines if line.startswith("-A ")]
    return [words for words in rules if rule_comment(lab_name) in words]


def _mac(lab_name: str) -> str:
    """Return the lab's locally administered MAC address."""
    digits = hashlib.sha256(lab_name.encode()).hexdigest()[:10]
    return ":".join(["02", *(digits[at : at + 2] for at in range(0, 10, 2))])
