#!/usr/bin/python
"""Simulate the installation of packages, refuse what it must not do, and return what remains to be done."""

from __future__ import annotations

DOCUMENTATION = """
module: transaction
short_description: Simulate the installation of packages
author: [the tfctl authors (!UNKNOWN)]
description:
  - The modules ansible.builtin.apt and ansible.builtin.dnf install packages. This module runs before them. It updates
    apt's package lists if a package is missing, and fails if the installation would remove a package, install another
    kernel, or change a package that somebody but tfctl has put on hold. For the component nvidia_driver, it may remove
    packages of the driver, because those of two branches conflict.
  - It installs nothing. With check mode it does not update package lists either, and C(changed) says whether there is
    something to do.
  - It also finds installed packages with a missing file, which apt and dnf regard as installed.
options:
  component:
    {type: str, required: true, description: The role that installs the packages; a key of /var/lib/tfctl/held.json.}
  packager: {type: str, required: true, choices: [apt-get, dnf], description: The host's package manager.}
  packages:
    description:
      - NAME or NAME=VERSION, with * in VERSION.
      - Empty stands for the packages that were recorded for the component before.
    type: list
    elements: str
    required: true
  upgrade:
    description: Whether installed packages of NVIDIA get the version that the package manager prefers.
    type: bool
    default: false
  first:
    description: Packages that influence the installation and are installed before it, such as a package with pins.
    type: list
    elements: str
    default: []
  upgrade:
    {type: bool, default: false, description: Whether newer versions replace installed ones that C(packages) allows.}
"""

EXAMPLES = """
- name: Simulate the installation of NCCL
  tfctl.cluster.transaction:
    component: nccl
    packager: apt-get
    packages: [libnccl2=2.18.*]
  register: simulated

- name: Install the packages
  ansible.builtin.apt:
    name: "{{ simulated.install }}"
  when: simulated.install | length > 0
"""

RETURN = """
install: {type: list, elements: str, returned: success, description: 'Packages to install, in exact versions.'}
reinstall: {type: list, elements: str, returned: success, description: Packages with a missing file.}
remove: {type: list, elements: str, returned: success, description: Packages of the driver that it removes.}
release: {type: list, elements: str, returned: success, description: Packages whose hold prevents the installation.}
hold: {type: list, elements: str, returned: success, description: NVIDIA's packages to put on hold afterwards.}
record: {type: dict, returned: success, description: The content of /var/lib/tfctl/held.json afterwards.}
pending: {type: dict, returned: success, description: The content of /var/lib/tfctl/held.json while packages change.}
previous: {type: dict, returned: success, description: The content of /var/lib/tfctl/held-before.json afterwards.}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import finish
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import MANAGERS, recorded, transaction


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "component": {"type": "str", "required": True},
            "packager": {"type": "str", "required": True, "choices": list(MANAGERS)},
            "packages": {"type": "list", "elements": "str", "required": True},
            "first": {"type": "list", "elements": "str", "default": []},
            "upgrade": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: simulate(module.params, module.check_mode))


def simulate(asked: dict[str, Any], dry: bool) -> dict[str, object]:
    manager, names = MANAGERS[asked["packager"]](), asked["packages"]
    found = transaction(manager, asked["component"], asked["first"], names, not dry, asked["upgrade"])
    differs = bool(found.install or found.reinstall or found.release or found.hold or found.record != recorded())
    return {"changed": dry and differs, **found._asdict()}


if __name__ == "__main__":
    main()
