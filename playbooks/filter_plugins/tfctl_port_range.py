"""The filter tfctl_port_range: parse a range of ports on the control machine, as tfctl parses inventories."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ansible.errors import AnsibleFilterError

if find_spec("tfctl") is None:  # Ansible has an environment of its own
    ROOT = Path(__file__).resolve().parents[2]
    sys.path.append(str(ROOT.parents[1] if ROOT.name == "_ansible" else ROOT))

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
    def filters(self) -> dict[str, Callable[[object], list[int]]]:
        return {"tfctl_port_range": checked_range}


def checked_range(value: object) -> list[int]:
    """Return [first, last]. Raises AnsibleFilterError for anything else."""
    try:
        return list(port_range(value))
    except ValueError as error:
        raise AnsibleFilterError(f"tfctl_ports: {error}") from None
