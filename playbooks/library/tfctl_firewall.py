#!/usr/bin/python
"""Determine which hosts may reach the ports of jobs, which rules are in force, and which other filters exist."""

from __future__ import annotations

import json
import socket
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import INVENTORY, fail, fault

DOCUMENTATION = """
module: tfctl_firewall
short_description: Look at what the role firewall is to do
description:
  - Changes nothing. Returns C(v4) and C(v6), the addresses of the hosts, C(in_force), whether tfctl's table has just
    these and the ports, and C(packages) that are missing. Warns of what else may turn away what this lets in.
options:
  hosts: {type: list, elements: str, required: true, description: Names or addresses of the cluster's hosts.}
  ports: {type: list, elements: int, required: true, description: The first and the last port of jobs.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "ports": {"type": "list", "elements": "int", "required": True},
        },
        supports_check_mode=True,
    )
    found, unknown = resolve(module.params["hosts"])
    if unknown:
        fail(module, [of_unknown(name) for name in unknown])
    ports = as_listed(*module.params["ports"])
    ruleset = rules()
    for name in other_filters(ruleset or []):
        module.warn(f"{name} turns away too: have it let the cluster's hosts to the ports {ports}")
    in_force = in_table(ruleset or []) == {*found, ports}
    v4 = sorted(each for each in found if ":" not in each)
    packages = ["nftables"] if ruleset is None else []
    module.exit_json(changed=False, v4=v4, v6=sorted(found - {*v4}), in_force=in_force, packages=packages)


def of_unknown(name):
    message = f"the address of {name} is not known here; the firewall would keep it out"
    return fault(message, "give it an address: ansible_host or tfctl_address", INVENTORY)


def as_listed(first, last):
    """Return a range of ports as nft accepts and lists it: a single port is a number."""
    return str(first) if first == last else f"{first}-{last}"


def resolve(names):
    """Return (addresses, names that do not resolve)."""
    found, unknown = set(), []
    for name in names:
        try:
            found |= {each[4][0].partition("%")[0] for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
        except OSError:
            unknown.append(name)
    return found, unknown


def rules():
    """Return the rules that nft lists, or None if there is no nft."""
    try:
        words = ["nft", "--json", "list", "ruleset"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        return json.loads(done.stdout)["nftables"]
    except FileNotFoundError:
        return None
    except (KeyError, ValueError, subprocess.TimeoutExpired):
        return []


def other_filters(ruleset):
    """Return the nftables chains that may reject incoming traffic, as FAMILY TABLE CHAIN."""
    filters, refusing = set(), set()
    for entry in ruleset:
        chain, rule = entry.get("chain", {}), entry.get("rule", {})
        place = place_of(chain, "name") if chain else place_of(rule, "chain")
        if (chain.get("type"), chain.get("hook")) == ("filter", "input") and chain["table"] != "tfctl":
            filters.add(place)
        if chain.get("policy") == "drop" or any({"drop", "reject"} & {*part} for part in rule.get("expr", [])):
            refusing.add(place)
    return sorted(filters & refusing)


def place_of(entry, name):
    return " ".join(entry.get(key, "") for key in ("family", "table", name))


def in_table(ruleset):
    """Return all addresses and port ranges in the sets of the table inet tfctl."""
    found = set()
    for entry in ruleset:
        values = entry.get("set", {})
        if (values.get("family"), values.get("table")) == ("inet", "tfctl"):
            for each in values.get("elem", []):
                found.add("-".join(map(str, each["range"])) if isinstance(each, dict) else str(each))
    return found if any("rule" in entry and entry["rule"]["table"] == "tfctl" for entry in ruleset) else set()


if __name__ == "__main__":
    main()
