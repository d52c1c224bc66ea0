"""Values of an inventory that only Ansible can compute: templates, and those that are encrypted inline."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfctl.errors import BadFile
from tfctl.remote import hostvars, inventory_faults, inventory_sources
from tfctl.wording import listed

if TYPE_CHECKING:
    from subprocess import CompletedProcess

#: The message of the module debug: a JSON list of these variables of these hosts.
_MESSAGE = (
    "[{% for each in values_wanted %}{{ hostvars[each[0]][each[1]] | to_json }}{{ ',' if not loop.last }}{% endfor %}]"
)

Variables = Mapping[str, Mapping[str, Any]]
#: Runs ansible with these arguments on the same inventory.
Run = Callable[[Sequence[str]], "CompletedProcess[str]"]


def evaluated(inventory: Path, variables: Variables, run: Run) -> Variables | None:
    """Return the variables of all hosts with the values of those that tfctl reads, or None if no value has to be
    computed. Only these are computed, and no host is asked.

    Raises BadFile for a template that needs something that the inventory does not have, and without the password of the
    vault.
    """
    wanted = [*_wanted(variables)]
    if not wanted:
        return None
    # Hosts and names come as data, not as text of the template.
    done = run(["localhost", "-m", "ansible.builtin.debug", "-a", json.dumps({"msg": _MESSAGE}), "-e", _extra(wanted)])
    values = _values(done.stdout)
    printed = done.stdout + done.stderr
    if values is None and inventory_faults.is_of_inventory(printed):
        raise inventory_faults.refusal(inventory, inventory_sources.paths(inventory), printed)
    if values is None or len(values) != len(wanted):
        names = listed([*dict.fromkeys(name for _, name in wanted)])
        raise BadFile(
            f"{inventory}: {names}: Ansible cannot compute the value: {_cause(printed)}",
            "define in the inventory what its template uses, such as a variable; nothing is known of the hosts yet",
        )
    known = {host: dict(own) for host, own in variables.items()}
    for (host, name), value in zip(wanted, values, strict=True):
        known[host][name] = value
    return known


def _wanted(variables: Variables) -> Iterator[tuple[str, str]]:
    for host, own in variables.items():
        yield from ((host, name) for name in hostvars.READ if name in own and _is_computed(own[name]))


def _is_computed(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_is_computed, value))
    if isinstance(value, dict):
        return "__ansible_vault" in value
    return isinstance(value, str) and hostvars.TEMPLATE.search(value) is not None


def _extra(wanted: Sequence[tuple[str, str]]) -> str:
    return json.dumps({"values_wanted": wanted})


def _values(printed: str) -> list[Any] | None:
    """Return the list that the module has printed, or None."""
    try:
        found = json.loads(json.loads(printed[printed.index("{") :])["msg"])
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, list) else None


def _cause(printed: str) -> str:
    found = re.search(r'"msg": "(.+)"', printed) or re.search(r"\[ERROR\]: (.+)", printed)
    return found[1].rpartition("Error rendering template: ")[2] if found else "it gave no reason"
