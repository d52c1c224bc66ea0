"""The filter tfctl_port_range: parse a range of ports on the control machine, as tfctl parses inventories."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError

from tfctl.model.ports import port_range

DOCUMENTATION = """
name: tfctl_port_range
short_description: Parse a range of ports
description:
  - Returns a list of the first and the last port of a range such as C(2222-2299). A single port is both.
options:
  _input: {description: The range or port., type: raw, required: true}
"""


class FilterModule:
    def filters(self):
        return {"tfctl_port_range": checked_range}


def checked_range(value):
    """Return [first, last]. Raises AnsibleFilterError for anything else."""
    try:
        return list(port_range(value))
    except ValueError as error:
        raise AnsibleFilterError(f"tfctl_ports: {error}") from None
