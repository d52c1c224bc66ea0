#!/usr/bin/python
"""Gather the state of a host's NVIDIA driver, and what a reboot would interrupt."""

from __future__ import annotations

DOCUMENTATION = """
module: gpu_state
short_description: Say whether a host's driver works, and whether it needs a reboot
author: [the tfctl authors (!UNKNOWN)]
description:
  - The module gathers the state; the action plugin of the same name judges it, and takes the options.
options:
  insist: {type: bool, default: false, description: Whether a host whose driver does not work is a failed one.}
  expected: {type: int, default: 0, description: How many GPUs the host has. 0 stands for those on the PCI bus.}
  control:
    description: The machine that Ansible runs on. RV(objection) says if the host is this machine.
    type: dict
    required: true
    suboptions:
      machine_id: {type: str, description: The content of its /etc/machine-id. Empty if it has none.}
      boot_id: {type: str, description: The content of its /proc/sys/kernel/random/boot_id. Empty if it has none.}
      local: {type: bool, description: Whether Ansible reaches the host by a local connection.}
"""

EXAMPLES = """
- name: Check that the driver works
  tfctl.cluster.gpu_state:
    control: {machine_id: "", boot_id: "", local: false}
    insist: true
"""

RETURN = """
ready: {type: bool, returned: success, description: Whether the driver is loaded and has its device nodes.}
persistent: {type: bool, returned: success, description: Whether persistence mode is on.}
reason: {type: str, returned: success, description: Why the host needs a reboot. Empty if it does not.}
objection: {type: str, returned: success, description: Why the host must not be rebooted. Empty if it may be.}
in_use: {type: str, returned: success, description: 'Which jobs run, or which processes use a GPU.'}
boot_id: {type: str, returned: success, description: The boot ID of the host.}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.gpu_facts import look
from ansible_collections.tfctl.cluster.plugins.module_utils.install import finish
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import first_line, live_units


def main() -> None:
    finish(AnsibleModule(argument_spec={}, supports_check_mode=True), lambda: {"state": state()})


def state() -> dict[str, object]:
    """Raises ModuleFailed."""
    return {
        "gpu": look(),
        "units": live_units(),
        "machine_id": first_line(Path("/etc/machine-id")),
        "boot_id": first_line(Path("/proc/sys/kernel/random/boot_id")),
    }


if __name__ == "__main__":
    main()
