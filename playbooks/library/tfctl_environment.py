#!/usr/bin/python
"""Make a stack's environment match its lock file, and point the stack's link to it.

/opt/tfctl/stacks/tf2.15                    a link to one of its environments
/opt/tfctl/stacks/tf2.15-<digest>           an environment; complete since the time of the tfctl-stack.json in it
/opt/tfctl/stacks/.tf2.15-<digest>.part     one that is being built
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils import tfctl_links
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_install import Failed, alone, compared, finish, unprivileged
from ansible.module_utils.tfctl_links import MARKER, site_of
from ansible.module_utils.tfctl_records import compiled_modules, stamps
from ansible.module_utils.tfctl_uv import Wheels, changes, pinned

DOCUMENTATION = """
module: tfctl_environment
short_description: Install a Python environment from a lock file
description:
  - Compares size and time of every file that the packages of O(lock) installed. If one differs, builds the whole
    environment beside its path and moves it there when it is complete.
  - Installs from O(store) without a network. uv compares each wheel with its hash in O(lock). The modules in
    O(imports) are imported as the user nobody, and must have the given versions.
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

#: The number of differences that are reported.
REPORTED = 10
PROBE = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__version__ for name in sys.argv[1:]}))
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
            "wheels": {"type": "list", "elements": "dict", "default": []},
            "store": {"type": "path", "default": "/var/cache/tfctl/wheels"},
        },
        supports_check_mode=True,
    )
    environment = Environment(**module.params)
    finish(module, lambda: install(environment, act=not module.check_mode))


def install(environment: Environment, act: bool) -> dict[str, object]:
    differences, linked = environment.differences(), environment.linked()
    if act and differences:
        environment.build()
    if act and (differences or not linked):
        environment.switch()
    if not linked:
        differences.append(f"{environment.link} points elsewhere, or scripts do not find tfctl_runtime")
    return {**compared(differences), "build": len(differences) > (not linked)}


class Environment:
    """``lock``, ``uv_lock``: texts of lock files. ``imports``: modules and their versions. ``wheels``: name and
    sha256 of each file in ``store`` that is needed."""

    def __init__(
        self,
        path: str,
        link: str,
        python: str,
        lock: str,
        uv_lock: str,
        imports: Mapping[str, str],
        wheels: Sequence[Mapping[str, Any]],
        store: str,
    ) -> None:
        self.path, self.link, self.python = Path(path), Path(link), python
        self.lock, self.uv_lock, self.imports = lock, uv_lock, imports
        self.wheels, self.store = wheels, Path(store)
        self.part = self.path.with_name(f".{self.path.name}.part")

    def differences(self) -> list[str]:
        """Return a sentence for each of the first differences from the lock."""
        return list(itertools.islice(self._differences(), REPORTED))

    def linked(self) -> bool:
        """Return whether the stack's link points to this environment, and scripts find tfctl_runtime."""
        return tfctl_links.in_order(self.link, self.path)

    def build(self) -> None:
        """Build the environment; ``path`` exists only once it is complete and verified. Raises Failed."""
        os.umask(0o022)  # the job user must be able to read the files, whatever root's umask is
        with alone(self.link.with_name(f".{self.link.name}.lock"), f"installs {self.link.name}"):
            try:
                if self.differences():
                    if tfctl_links.current(self.link) is not None:
                        tfctl_links.refuse_under_a_job(self.link)
                    self._build()
            finally:
                shutil.rmtree(self.part, ignore_errors=True)

    def switch(self) -> None:
        """Point the stack's link to the environment. Raises Failed; see tfctl_links."""
        tfctl_links.switch(self.link, self.path)

    def _differences(self) -> Iterator[str]:
        if not (self.path / MARKER).is_file():
            yield f"{self.path} does not exist"
        elif os.path.realpath(self.path / "bin/python") != os.path.realpath(self.python):
            yield f"{self.path}/bin/python is not {self.python}"
        else:
            yield from self._differences_in(self.path)

    def _differences_in(self, path: Path) -> Iterator[str]:
        marker = path / MARKER
        completed, site = marker.stat().st_mtime, site_of(path)
        there = stamps(site)
        yield from changes(site, self.lock, there, completed)
        if json.loads(marker.read_text(encoding="utf-8"))["modules"] != compiled_modules(there):
            yield f"{path}: compiled modules are missing"

    def _build(self) -> None:
        if not self.wheels:
            raise Failed(f"{self.path}: there are no wheels to build it from")
        shutil.rmtree(self.part, ignore_errors=True)
        new = self.part / "new"
        wheels = Wheels(self.wheels, self.store, self.part, self.uv_lock)
        wheels.run("venv", "--relocatable", "--python", self.python, str(new))
        wheels.install(self.lock, f"{new}/bin/python")
        wheels.compile(f"{new}/bin/python", site_of(new))
        wheels.drop()
        self._import(new)
        self._mark(new)
        # Compare it as the next run will. Otherwise every run would build it again.
        for difference in self._differences_in(new):
            raise Failed(
                f"two packages of the lock have the same file, or a wheel differs from its RECORD: {difference}"
            )
        if self.path.exists():
            self.path.rename(self.part / "old")
        new.rename(self.path)

    def _import(self, new: Path) -> None:
        words = [f"{new}/bin/python", "-I", "-c", PROBE, *self.imports]
        found = unprivileged(words, f"the new environment cannot import {', '.join(self.imports)}")
        for name, version in self.imports.items():
            if found[name] != version:
                raise Failed(f"the new environment has {name} {found[name]} instead of {version}")

    def _mark(self, new: Path) -> None:
        """Write the marker last, so that any later change is newer."""
        note = {"packages": pinned(self.lock), "modules": compiled_modules(stamps(site_of(new)))}
        (new / MARKER).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
