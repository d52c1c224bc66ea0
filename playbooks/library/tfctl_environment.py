#!/usr/bin/python
"""Make a stack's environment match its lock file, and point the stack's link to it."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_install import finish
from ansible.module_utils.tfctl_venv import Environment

DOCUMENTATION = """
module: tfctl_environment
short_description: Install a Python environment from a lock file
description:
  - Compares size and time of every file that the packages of O(lock) installed. If one differs, builds the whole
    environment beside its path and moves it there when it is complete.
  - Installs from O(archive) without a network. uv compares each wheel with its hash in O(lock). The modules in
    O(imports) are imported as the user nobody, and must have the given versions.
  - Points O(link) to the environment. The environment that it pointed to before is kept, older ones are deleted.
  - In check mode, reports what differs (RV(differs)), and whether O(archive) is needed (RV(build)).
options:
  path: {type: path, required: true, description: The environment. Its name is that of O(link) and 12 hex digits.}
  link: {type: path, required: true, description: The link with the stack's name.}
  python: {type: path, required: true, description: The interpreter to create it with.}
  lock: {type: str, required: true, description: The text of the lock file.}
  uv_lock: {type: str, required: true, description: The text of the lock file of uv.}
  imports: {type: dict, default: {}, description: Modules and the versions that they must have.}
  archive: {type: path, description: 'A tar of the wheels, uv''s among them, on this host. It is deleted.'}
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "link": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "uv_lock": {"type": "str", "required": True},
            "imports": {"type": "dict", "default": {}},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    environment = Environment(**module.params)
    sent: Path | None = None if module.check_mode else environment.archive
    finish(module, lambda: install(environment, act=not module.check_mode), sent)


def install(environment: Environment, act: bool) -> dict[str, object]:
    differences, linked = environment.differences(), environment.linked()
    if act and differences:
        environment.build()
    if act and (differences or not linked):
        environment.switch()
    if not linked:
        differences.append(f"{environment.link} points elsewhere, or scripts do not find tfctl_runtime")
    build = len(differences) > (not linked)
    diff = {"before_header": "differs", "after_header": "matches", "before": "\n".join([*differences, ""]), "after": ""}
    differs = bool(differences)
    return {"changed": differs, "differs": differs, "build": build, "diff": diff if differs else []}


if __name__ == "__main__":
    main()
