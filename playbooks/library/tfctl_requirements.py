#!/usr/bin/python
"""Install the packages of a job's requirements file beside a stack's environment.

/opt/tfctl/requirements/<digest>     complete since the time of the tfctl-requirements.json in it
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_install import Failed, alone, compared, finish
from ansible.module_utils.tfctl_links import REQUIREMENTS_MARKER
from ansible.module_utils.tfctl_records import compiled_modules, stamps
from ansible.module_utils.tfctl_uv import Wheels, changes, pinned

DOCUMENTATION = """
module: tfctl_requirements
short_description: Install the packages of a lock file into a directory
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

#: The number of differences that are reported.
REPORTED = 10


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "environment": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "uv_lock": {"type": "str", "required": True},
            "wheels": {"type": "list", "elements": "dict", "default": []},
            "store": {"type": "path", "default": "/var/cache/tfctl/wheels"},
        },
        supports_check_mode=True,
    )
    packages = Packages(**module.params)
    finish(module, lambda: install(packages, act=not module.check_mode))


def install(packages: Packages, act: bool) -> dict[str, object]:
    differences = packages.differences()
    if act and differences:
        packages.build()
    return compared(differences)


class Packages:
    """``lock``, ``uv_lock``: texts of lock files. ``wheels``: name and sha256 of each file in
    ``store`` that is needed."""

    def __init__(
        self, path: str, environment: str, lock: str, uv_lock: str, wheels: Sequence[Mapping[str, Any]], store: str
    ) -> None:
        self.path, self.environment = Path(path), Path(environment)
        self.lock, self.uv_lock = lock, uv_lock
        self.wheels, self.store = wheels, Path(store)
        self.part = self.path.with_name(f".{self.path.name}.part")
        # As deep as the path itself, because programs name the environment's Python by a relative path.
        self.new = self.path.with_name(f".{self.path.name}.new")

    def differences(self) -> list[str]:
        """Return a sentence for each of the first differences from the lock."""
        if not (self.path / REQUIREMENTS_MARKER).is_file():
            return [f"{self.path} does not exist"]
        return list(itertools.islice(self._differences_in(self.path), REPORTED))

    def build(self) -> None:
        """Install the packages; ``path`` exists only once it is complete. Raises Failed."""
        os.umask(0o022)  # the job user must be able to read the files, whatever root's umask is
        with alone(self.path.with_name(".lock"), f"installs {self.path.name}"):
            try:
                if self.differences():
                    self._build()
            finally:
                for path in (self.part, self.new):
                    shutil.rmtree(path, ignore_errors=True)

    def _differences_in(self, path: Path) -> Iterator[str]:
        marker = path / REQUIREMENTS_MARKER
        there = stamps(path)
        yield from changes(path, self.lock, there, marker.stat().st_mtime)
        if json.loads(marker.read_text(encoding="utf-8"))["modules"] != compiled_modules(there):
            yield f"{path}: compiled modules are missing"

    def _build(self) -> None:
        python = self.environment / "bin/python"
        if not python.exists():
            raise Failed(f"{self.environment} does not exist", "install the stack first, without --tags")
        if not self.wheels:
            raise Failed(f"{self.path}: there are no wheels to install")
        for path in (self.part, self.new):
            shutil.rmtree(path, ignore_errors=True)
        wheels, new = Wheels(self.wheels, self.store, self.part, self.uv_lock), self.new
        new.mkdir()
        wheels.install(self.lock, str(python), "--target", str(new))
        wheels.compile(str(python), new)
        wheels.drop()
        note = {
            "environment": self.environment.name,
            "packages": pinned(self.lock),
            "modules": compiled_modules(stamps(new)),
        }
        # Write the marker last, so that any later change is newer.
        (new / REQUIREMENTS_MARKER).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        # Compare it as the next run will. Otherwise every run would install it again.
        for difference in self._differences_in(new):
            raise Failed(f"two packages have the same file, or a wheel differs from its RECORD: {difference}")
        if self.path.exists():
            self.path.rename(self.part / "old")
        new.rename(self.path)


if __name__ == "__main__":
    main()
