#!/usr/bin/python
"""Install a wheel of Horovod in a directory of its own, and add it to a stack's environment or remove it."""

from __future__ import annotations

DOCUMENTATION = """
module: horovod
short_description: Install Horovod beside a stack's environment
author: [the tfctl authors (!UNKNOWN)]
description:
  - Compares size and time of every file of the wheel. If one differs, unpacks O(wheel) beside O(home), compiles
    the modules, compares the hash of every file with the wheel's RECORD, imports Horovod as the user nobody, and moves
    it to O(home).
  - One line in the environment's C(site-packages) adds it to Python's path. What the stack's lock file installed stays
    unchanged. Builds of tfctl that no environment uses are deleted.
  - In check mode, reports what differs (RV(differs)), and whether O(wheel) is needed (RV(unpack)).
options:
  environment: {type: path, required: true, description: The stack's environment.}
  home: {type: str, required: true, description: The directory of Horovod. Empty to remove it from the environment.}
  version: {type: str, default: '', description: The release.}
  mpi: {type: bool, default: false, description: Whether it must be built with MPI.}
  gloo: {type: bool, default: false, description: Whether it must be built with Gloo.}
  wheel: {type: path, description: The wheel on this host. It is deleted.}
"""

EXAMPLES = """
- name: Install Horovod beside the environment of a stack
  tfctl.cluster.horovod:
    environment: /opt/tfctl/stacks/mine-0123456789ab
    home: /opt/tfctl/horovod/0123456789abcdef
    version: 0.28.1
    gloo: true
    wheel: /root/horovod-0.28.1-cp311-cp311-linux_x86_64.whl
  register: installed
  until: installed.faults[0].patience_s is not defined
  retries: 300
  delay: 0

- name: Remove Horovod from the environment
  tfctl.cluster.horovod:
    environment: /opt/tfctl/stacks/mine-0123456789ab
    home: ""
"""

RETURN = """
differs: {type: bool, returned: success, description: Whether Horovod was or is to be installed or removed.}
unpack: {type: bool, returned: success, description: Whether O(wheel) is needed for that.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

import shutil
import zipfile
import zlib
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import (
    ModuleFailed,
    compared,
    finish,
    make_parents,
    read,
    run,
    scratch,
    temporary_path,
    unprivileged,
    write,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.links import HOROVOD, site_of
from ansible_collections.tfctl.cluster.plugins.module_utils.records import complete, differences

MARKER = "tfctl-horovod.json"
#: What zipfile raises when it reads a damaged archive.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])  # before the one that the environment uses now
import horovod, horovod.tensorflow as hvd
mpi = not hasattr(hvd, "mpi_built") or bool(hvd.mpi_built())  # the first releases had nothing else
gloo = hasattr(hvd, "gloo_built") and bool(hvd.gloo_built())
print(json.dumps({"version": horovod.__version__, "mpi": mpi, "gloo": gloo}))
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
    horovod = HorovodInstallation(**module.params)
    sent: Path | None = None if module.check_mode else horovod.wheel
    finish(module, lambda: install(horovod, act=not module.check_mode), sent)


def install(horovod: HorovodInstallation, act: bool) -> dict[str, object]:
    found, linked = horovod.differences(), horovod.linked()
    unpack = bool(found)
    if act and unpack:
        horovod.unpack()
    if act and (unpack or not linked):
        horovod.link()
    if not linked:
        found.append(f"{horovod.pth} does not name {horovod.home or 'nothing'}")
    return {**compared(found), "unpack": unpack}


class HorovodInstallation:
    """``home``: the directory, or "" if the environment is to have no Horovod. ``mpi``, ``gloo``: what it must have."""

    def __init__(self, environment: str, home: str, version: str, mpi: bool, gloo: bool, wheel: str | None) -> None:
        self.environment, self.lock = Path(environment), f"Horovod=={version}"
        self.home = Path(home) if home else None
        self.built_with = {"version": version, "mpi": mpi, "gloo": gloo}
        self.wheel = Path(wheel) if wheel else None
        self.pth = site_of(self.environment) / HOROVOD

    def differences(self) -> list[str]:
        """Return a sentence for each of the first differences from the wheel."""
        return differences(self.home / MARKER, self.home, self.lock) if self.home else []

    def linked(self) -> bool:
        """Return whether the environment uses this Horovod, or none if it is to have none."""
        return read(self.pth) == (f"{self.home}\n" if self.home else None)

    def unpack(self) -> None:
        """Unpack the wheel; ``home`` exists only once it is complete and verified. Raises ModuleFailed."""
        if self.home is None or self.wheel is None:
            raise ModuleFailed(f"{self.home}: there is no wheel to install it from")
        part = temporary_path(self.home)
        with scratch(self.home.with_name(".lock"), "installs Horovod", part):
            make_parents(part / "new")
            self._fill(self.wheel, part / "new")
            shutil.rmtree(self.home, ignore_errors=True)
            (part / "new").rename(self.home)

    def link(self) -> None:
        """Make the environment use this Horovod, and delete those of tfctl that no environment uses."""
        if self.home is None:
            self.pth.unlink(missing_ok=True)
        else:
            write(self.pth, f"{self.home}\n")
        stacks = self.environment.parent
        used = {(read(path) or "").strip() for path in stacks.glob(f"*/lib/*/*/{HOROVOD}")}
        for marker in stacks.with_name("horovod").glob(f"{'[0-9a-f]' * 16}/{MARKER}"):
            if str(marker.parent) not in used:
                shutil.rmtree(marker.parent)

    def _fill(self, wheel: Path, new: Path) -> None:
        remedy = "delete this wheel from tfctl's cache on the control machine (~/.cache/tfctl/built)"
        try:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(new)  # it writes nothing outside of the directory
        except DAMAGED as fault:
            raise ModuleFailed(f"{wheel} is damaged: {fault}", remedy) from None
        python = f"{self.environment}/bin/python"
        run([python, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", str(new)])
        for difference in complete(new / MARKER, new, self.lock, hashes=True):
            raise ModuleFailed(f"the wheel of Horovod differs from its RECORD: {difference}", remedy)
        found = unprivileged([python, "-I", "-c", PROBE, str(new)], "Horovod cannot be imported")
        for name, value in self.built_with.items():
            if found[name] != value:
                raise ModuleFailed(f"the wheel of Horovod has {name} {found[name]} instead of {value}")


if __name__ == "__main__":
    main()
