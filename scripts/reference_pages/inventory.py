"""The page about the variables of the inventory, from tfctl.model.host.VARIABLES and the roles' argument_specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scripts.argument_specs import ENABLE, setting
from scripts.reference_pages.markdown import code, paragraphs, table
from tfctl.model.host import TRANSPORTS, VARIABLES

ROLES = Path(__file__).resolve().parents[2] / "roles"


class Variable(NamedTuple):
    """``kind``: the type, as in Ansible. ``default``: as Markdown. ``roles``: those that use it, or ()."""

    kind: str
    default: str
    meaning: str
    roles: tuple[str, ...] = ()


#: The variables that no option of a role has.
_OTHERS = {
    "tfctl_address": Variable(
        "str",
        "`ansible_host`",
        "The address at which the other hosts reach this host: one name, IPv4 or IPv6 address, without a port, and "
        "another one for each host ([addresses](../provision.md#addresses-between-the-hosts)). That of a host with "
        "`ansible_connection=local` is by default the address from which it reaches the others "
        "([one workstation](../howto/workstation.md)).",
    ),
    "tfctl_ssh": Variable(
        "str",
        code(TRANSPORTS[0]),
        f"The ssh client of tfctl's own commands: {' or '.join(map(code, TRANSPORTS))} "
        "([connections](../connections.md)).",
    ),
    "tfctl_time_sync": Variable(
        "bool", "`false`", "Whether to synchronize the clock with a time server.", ("time_sync",)
    ),
}


def page() -> str:
    found = {**_of_roles(), **_OTHERS}
    rows = [[code(name), found[name].kind, found[name].default, _meaning(found[name])] for name in VARIABLES]
    return paragraphs(
        "# Inventory variables",
        "Ansible reads the inventory, so every format works that it reads: files, directories, programs and inventory "
        "plugins whose collections are installed, several of them (repeat `-i`), and lists of hosts. tfctl connects by "
        "ssh with keys, so it refuses hosts with another `ansible_connection` or with a password of ssh "
        "([connections](../connections.md#the-inventory)). It reads these variables of each host. "
        "Set them for a host, for a group or for all hosts, in any of the places that Ansible has for variables; "
        "[inventory/example.ini](../../inventory/example.ini) shows the most common ones. `tfctl check` reports a "
        "misspelt name. `tfctl provision` passes the variables to the roles that the table names; the page of a role "
        "has details.",
        table(["variable", "type", "default", "meaning"], rows),
        "To connect, tfctl also reads Ansible's variables for ssh and sudo, such as `ansible_host`, `ansible_port`, "
        "`ansible_user`, `ansible_ssh_private_key_file`, `ansible_ssh_common_args` and `ansible_become_password`. "
        "These and the variables above may be templates or encrypted with ansible-vault. A template can use other "
        "variables of the inventory and lookups, but no facts, because tfctl evaluates it before it connects.",
        "`ansible_connection` is `ssh`, the default, or `local` for the machine on which you run tfctl.",
    )


def _of_roles() -> dict[str, Variable]:
    """Return the variables that options of roles name. If several roles have one, the longest description counts."""
    found: dict[str, Variable] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        role = path.parent.parent.name
        options = yaml.safe_load(path.read_text("utf-8"))["argument_specs"]["main"]["options"]
        for option in options.values():
            if (named := setting(option)) is None:
                continue
            name, meaning = named
            known = found.get(name)
            roles = (*(known.roles if known else ()), role)
            if known and len(known.meaning) >= len(meaning):
                found[name] = known._replace(roles=roles)
            else:
                found[name] = Variable(_kind(option), _default(name, option), meaning, roles)
    return found


def _kind(option: dict[str, Any]) -> str:
    kind = "str" if option["type"] == "raw" else option["type"]
    return f"list of {option.get('elements', 'str')}" if kind == "list" else str(kind)


def _default(name: str, option: dict[str, Any]) -> str:
    default = option.get("default")
    if name in ENABLE or default in (None, "", [], {}):
        return "not set"
    return code(default if isinstance(default, str) else json.dumps(default))


def _meaning(variable: Variable) -> str:
    roles = ", ".join(f"[{role}](../../roles/{role}/README.md)" for role in dict.fromkeys(variable.roles))
    return f"{variable.meaning} Roles: {roles}" if roles else variable.meaning
