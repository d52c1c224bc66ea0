"""The filter serial: the batches in which a play works on its hosts."""

from __future__ import annotations

DOCUMENTATION = """
name: serial
short_description: The batches in which a play works on its hosts
description:
  - Returns C(serial) for a play on these hosts, by the order that compare_hosts has returned on them. A play before it
    has registered that as C(preflight_compared).
positional: hostvars
options:
  _input: {description: The hosts of the play., type: list, elements: str, required: true}
  hostvars: {description: The variables of all hosts., type: dict, required: true}
"""

EXAMPLES = """
- name: Work on the canary first, then in batches
  hosts: all
  serial: "{{ ansible_play_hosts_all | tfctl.cluster.serial(hostvars | default({})) }}"
  tasks:
    - name: Show which hosts are in this batch
      ansible.builtin.debug:
        var: ansible_play_batch
      run_once: true
"""

RETURN = """
_value:
  description: The size of the canary, if there is one, and of each batch after it. Empty without hosts.
  type: list
  elements: int
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.order import Order


class FilterModule:
    def filters(self) -> dict[str, Callable[..., list[int]]]:
        return {"serial": serial}


def serial(hosts: Sequence[str], hostvars: Mapping[str, Any]) -> list[int]:
    """Return the sizes of the batches, or nothing if there are no hosts, as when only the syntax is checked."""
    if not hosts:
        return []
    return Order(**hostvars[hosts[0]]["preflight_compared"]["order"]).serial(len(hosts))
