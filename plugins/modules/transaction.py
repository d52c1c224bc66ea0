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
  - Before an installation, it records in C(installed) all packages that the installation adds. C(tfctl reset) removes
    no others. What it records must therefore be installed immediately.
  - It installs nothing. With check mode it does not update package lists either, and C(changed) says whether there is
    something to do.
  - It also finds installed packages with a missing file, which apt and dnf regard as installed.
options:
  component:
    description:
      - The role that installs the packages; a key of C(/var/lib/tfctl/held.json).
      - Without it, installed packages stay, whatever their version. Nothing is refused or put on hold, and only
        C(install) and C(packager) are returned.
    type: str
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
  installed:
    {type: path, default: /var/lib/tfctl/installed, description: The file with the packages that tfctl has installed.}
"""

EXAMPLES = """
- name: Simulate the installation of NCCL
  tfctl.cluster.transaction:
    component: nccl
    packages: [libnccl2=2.18.*]
  register: simulated

- name: Install the packages
  ansible.builtin.apt:
    name: "{{ simulated.install }}"
  when: simulated.install | length > 0
"""

RETURN = """
packager: {type: str, returned: success, description: 'The host''s package manager: C(apt-get) or C(dnf).'}
new: {type: list, elements: str, returned: success, description: All packages that the installation adds.}
install: {type: list, elements: str, returned: success, description: 'Packages to install, in exact versions.'}
reinstall: {type: list, elements: str, returned: success, description: Packages with a missing file.}
remove: {type: list, elements: str, returned: success, description: Packages of the driver that it removes.}
release: {type: list, elements: str, returned: success, description: Packages whose hold prevents the installation.}
hold: {type: list, elements: str, returned: success, description: NVIDIA's packages to put on hold afterwards.}
record: {type: dict, returned: success, description: The content of /var/lib/tfctl/held.json afterwards.}
pending: {type: dict, returned: success, description: The content of /var/lib/tfctl/held.json while packages change.}
previous: {type: dict, returned: success, description: The content of /var/lib/tfctl/held-before.json afterwards.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another program uses the package manager, and the message names it. Call the module
      again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils import transaction as plan
from ansible_collections.tfctl.cluster.plugins.module_utils.install import finish
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import INSTALLED, announce


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "component": {"type": "str"},
            "packages": {"type": "list", "elements": "str", "required": True},
            "first": {"type": "list", "elements": "str", "default": []},
            "upgrade": {"type": "bool", "default": False},
            "installed": {"type": "path", "default": str(INSTALLED)},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: simulate(module.params, act=not module.check_mode))


def simulate(asked: dict[str, Any], act: bool) -> dict[str, object]:
    manager = plan.of_this_host()
    if asked["component"]:
        found = plan.transaction(manager, asked["component"], asked["first"], asked["packages"], act, asked["upgrade"])
        todo = found.install or found.reinstall or found.release or found.hold or found.record != plan.recorded()
        result, new = found._asdict(), found.new
    else:
        todo, new = plan.missing(manager, asked["packages"], act)
        result = {"install": todo}
    if act:
        announce(new, Path(asked["installed"]))
    return {"changed": bool(todo) and not act, "packager": "apt-get" if manager.apt else "dnf", **result}


if __name__ == "__main__":
    main()
