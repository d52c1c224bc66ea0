#!/usr/bin/python
"""Install the packages of a job's requirements file beside a stack's environment.

/opt/tfctl/requirements/<digest>     complete since the time of the tfctl-requirements.json in it
"""

from __future__ import annotations

DOCUMENTATION = """
module: requirements
short_description: Install the packages of a lock file into a directory
author: [the tfctl authors (!UNKNOWN)]
description:
  - Compares size and time of every file that the packages of O(lock) installed. If one differs, installs all of them
    beside the path and moves the directory there when it is complete.
  - Installs from O(store) without a network. uv compares each wheel with its hash in O(lock).
  - In check mode, reports what differs (RV(differs)).
options:
  path: {type: path, required: true, description: The directory.}
  environment: {type: path, required: true, description: The environment of the stack that uses the packages.}
  lock: {type: str, required: true, description: The text of the lock file.}
  uv_lock: {type: str, required: true, description: The text of the lock file of uv.}
  wheels: {type: list, elements: dict, default: [], description: 'Name and sha256 of each wheel, with those of uv.'}
  store: {type: path, default: /var/cache/tfctl/wheels, description: The directory with the wheels on this host.}
"""

EXAMPLES = """
- name: Install the packages of a lock file
  tfctl.cluster.requirements:
    path: /opt/tfctl/requirements/0123456789ab
    environment: /opt/tfctl/stacks/mine-0123456789ab
    lock: "{{ lookup('ansible.builtin.file', 'requirements.lock') }}"
    uv_lock: "{{ lookup('ansible.builtin.file', 'uv.txt') }}"
    wheels: "{{ wheels_downloaded.files }}"
  register: installed
  until: installed.faults[0].patience_s is not defined
  retries: 300
  delay: 0
"""

RETURN = """
differs: {type: bool, returned: success, description: Whether the packages were or are to be installed.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, compared, finish, scratch
from ansible_collections.tfctl.cluster.plugins.module_utils.links import REQUIREMENTS_MARKER
from ansible_collections.tfctl.cluster.plugins.module_utils.records import differences
from ansible_collections.tfctl.cluster.plugins.module_utils.uv import ARGUMENTS, Installation


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "environment": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    packages = RequirementsInstallation(**module.params)
    finish(module, lambda: install(packages, act=not module.check_mode))


def install(packages: RequirementsInstallation, act: bool) -> dict[str, object]:
    found = packages.differences()
    if act and found:
        packages.build()
    return compared(found)


class RequirementsInstallation(Installation):
    """``environment``: that of the stack."""

    def __init__(self, environment: str, **lock: Any) -> None:
        super().__init__(**lock)
        self.environment = Path(environment)
        # As deep as the path itself, because programs name the environment's Python by a relative path.
        self.new = self.path.with_name(f".{self.path.name}.new")

    def differences(self) -> list[str]:
        """Return a sentence for each of the first differences from the lock."""
        return differences(self.path / REQUIREMENTS_MARKER, self.path, self.lock)

    def build(self) -> None:
        """Install the packages; ``path`` exists only once it is complete. Raises ModuleFailed."""
        with scratch(self.path.with_name(".lock"), f"installs {self.path.name}", self.part, self.new):
            if self.differences():
                self._build()

    def _build(self) -> None:
        python = self.environment / "bin/python"
        if not python.exists():
            raise ModuleFailed(f"{self.environment} does not exist", "install the stack first, without --tags")
        self.unpack()
        self.new.mkdir()
        self.install(str(python), self.new, "--target", str(self.new))
        self.publish(self.new, self.new / REQUIREMENTS_MARKER, self.new, environment=self.environment.name)


if __name__ == "__main__":
    main()
