#!/usr/bin/python
"""Make a stack's environment match its lock file, and point the stack's link to it.

/opt/tfctl/stacks/tf2.15                    a link to one of its environments
/opt/tfctl/stacks/tf2.15-<digest>           an environment; complete since the time of the tfctl-stack.json in it
/opt/tfctl/stacks/.tf2.15-<digest>.part     one that is being built
"""

from __future__ import annotations

DOCUMENTATION = """
module: environment
short_description: Install a Python environment from a lock file
author: [the tfctl authors (!UNKNOWN)]
description:
  - Compares size and time of every file that the packages of O(lock) installed. If one differs, builds the whole
    environment beside its path and moves it there when it is complete.
  - Installs from O(store) without a network. uv compares each wheel with its hash in O(lock). The modules in
    O(imports) are imported as the user nobody, and must have the given versions.
  - Deletes what interrupted runs have left, and first waits for a run that is still at work.
  - Points O(link) to the environment. The environment that it pointed to before is kept, older ones are deleted.
  - In check mode, reports what differs (RV(differs)), and whether O(wheels) are needed (RV(build)).
options:
  path: {type: path, required: true, description: The environment. Its name is that of O(link) and 12 hex digits.}
  link: {type: path, required: true, description: The link with the stack's name.}
  python: {type: path, required: true, description: The interpreter to create it with.}
  lock: {type: str, required: true, description: The text of the lock file.}
  uv_lock: {type: str, required: true, description: The text of the lock file of uv.}
  imports: {type: dict, default: {}, description: Modules and the versions that they must have.}
  wheels: {type: list, elements: dict, default: [], description: 'Name and sha256 of each wheel, with those of uv.'}
  store: {type: path, default: /var/cache/tfctl/wheels, description: The directory with the wheels on this host.}
"""

EXAMPLES = """
- name: Install the environment of a stack
  tfctl.cluster.environment:
    path: /opt/tfctl/stacks/mine-0123456789ab
    link: /opt/tfctl/stacks/mine
    python: /usr/bin/python3.11
    lock: "{{ lookup('file', 'mine.txt') }}"
    uv_lock: "{{ lookup('file', 'uv.txt') }}"
    imports: {numpy: 1.26.4}
    wheels: "{{ wheels_downloaded.files }}"
"""

RETURN = """
differs: {type: bool, returned: success, description: 'Whether something was or is to be built, linked or deleted.'}
build: {type: bool, returned: success, description: Whether O(wheels) are needed for that.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils import links
from ansible_collections.tfctl.cluster.plugins.module_utils.install import (
    ModuleFailed,
    compared,
    finish,
    scratch,
    unprivileged,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.links import MARKER, site_of
from ansible_collections.tfctl.cluster.plugins.module_utils.records import differences
from ansible_collections.tfctl.cluster.plugins.module_utils.uv import ARGUMENTS, Installation

PROBE = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__version__ for name in sys.argv[1:]}))
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "link": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "imports": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    environment = Environment(**module.params)
    finish(module, lambda: install(environment, act=not module.check_mode))


def install(environment: Environment, act: bool) -> dict[str, object]:
    found, linked = environment.differences(), environment.linked()
    build, left = bool(found), environment.left_over()
    if act and (build or left):
        environment.build()
        linked = environment.linked()
    if act and (build or not linked):
        environment.switch()
    if not linked:
        found.append(f"{environment.link} points elsewhere, or its programs do not find tfctl_runtime or ptxas")
    found += [f"{each} belongs to a run that was interrupted or is still at work" for each in left]
    return {**compared(found), "build": build}


class Environment(Installation):
    """``python``: the interpreter to create it with. ``imports``: modules and their versions."""

    def __init__(self, link: str, python: str, imports: Mapping[str, str], **lock: Any) -> None:
        super().__init__(**lock)
        self.link, self.python, self.imports = Path(link), python, imports

    def differences(self) -> list[str]:
        """Return a sentence for each of the first differences from the lock."""
        marker, python = self.path / MARKER, self.path / "bin/python"
        if marker.is_file() and os.path.realpath(python) != os.path.realpath(self.python):
            return [f"{python} is not {self.python}"]
        return differences(marker, site_of(self.path), self.lock)

    def linked(self) -> bool:
        """Return whether the stack's link points to this environment, and its programs find what they need."""
        return links.in_order(self.link, self.path)

    def left_over(self) -> list[Path]:
        """Return the temporary directories of the stack. No run is at work in them once its lock is free."""
        return sorted(self.link.parent.glob(f".{self.link.name}-{'[0-9a-f]' * 12}.part"))

    def build(self) -> None:
        """Build the environment unless it is in order; ``path`` exists only once it is complete and verified.

        Delete what interrupted runs have left. Raises ModuleFailed.
        """
        lock = self.link.with_name(f".{self.link.name}.lock")
        with scratch(lock, f"installs {self.link.name}", self.part, *self.left_over()):
            if self.differences():
                if links.current(self.link) is not None:
                    links.refuse_under_a_job(self.link)
                self._build()

    def switch(self) -> None:
        """Point the stack's link to the environment. Raises ModuleFailed; see links."""
        links.switch(self.link, self.path)

    def _build(self) -> None:
        new = self.part / "new"
        self.unpack()
        self.run("venv", "--relocatable", "--python", self.python, str(new))
        self.install(f"{new}/bin/python", site_of(new))
        self._import(new)
        self.publish(new, new / MARKER, site_of(new))

    def _import(self, new: Path) -> None:
        words = [f"{new}/bin/python", "-I", "-c", PROBE, *self.imports]
        found = unprivileged(words, f"the new environment cannot import {', '.join(self.imports)}")
        for name, version in self.imports.items():
            if found[name] != version:
                raise ModuleFailed(f"the new environment has {name} {found[name]} instead of {version}")


if __name__ == "__main__":
    main()
