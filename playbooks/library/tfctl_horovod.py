#!/usr/bin/python
"""Install a wheel of Horovod in a directory of its own, and add it to a stack's environment or remove it."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_horovod import Horovod
from ansible.module_utils.tfctl_install import finish

DOCUMENTATION = """
module: tfctl_horovod
short_description: Install Horovod beside a stack's environment
description:
  - Compares size and time of every file of the wheel. If one differs, unpacks O(wheel) beside O(home), compares each
    file with its hash, compiles the modules, imports Horovod as the user nobody, and moves it to O(home).
  - One line in the environment's C(site-packages) adds it to Python's path. What the stack's lock file installed stays
    unchanged. Builds that no environment uses are deleted.
  - In check mode, reports what differs (RV(differs)), and whether O(wheel) is needed (RV(unpack)).
options:
  environment: {type: path, required: true, description: The stack's environment.}
  home: {type: str, required: true, description: The directory of Horovod. Empty to remove it from the environment.}
  version: {type: str, default: '', description: The release.}
  mpi: {type: bool, default: false, description: Whether it must be built with MPI.}
  gloo: {type: bool, default: false, description: Whether it must be built with Gloo.}
  wheel: {type: path, description: The wheel on this host. It is deleted.}
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "home": {"type": "str", "required": True},
            "version": {"type": "str", "default": ""},
            "mpi": {"type": "bool", "default": False},
            "gloo": {"type": "bool", "default": False},
            "wheel": {"type": "path"},
        },
        supports_check_mode=True,
    )
    horovod = Horovod(**module.params)
    sent: Path | None = None if module.check_mode else horovod.wheel
    finish(module, lambda: install(horovod, act=not module.check_mode), sent)


def install(horovod: Horovod, act: bool) -> dict[str, object]:
    differences, linked = horovod.differences(), horovod.linked()
    if act and differences:
        horovod.unpack()
    if act and (differences or not linked):
        horovod.link()
    unpack = bool(differences)
    if not linked:
        differences.append(f"{horovod.pth} does not name {horovod.home or 'nothing'}")
    diff = {"before_header": "differs", "after_header": "matches", "before": "\n".join([*differences, ""]), "after": ""}
    differs = bool(differences)
    return {"changed": differs, "differs": differs, "unpack": unpack, "diff": diff if differs else []}


if __name__ == "__main__":
    main()
