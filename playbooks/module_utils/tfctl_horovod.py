"""Horovod on a host: a directory of its own, and one line in an environment that adds it to the import path.

/opt/tfctl/horovod/<key>                                            the contents of a build's wheel, compiled
<environment>/lib/python3.*/site-packages/tfctl-horovod.pth         names the directory, which Python's site adds
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path

from ansible.module_utils.tfctl_horovod_facts import PTH
from ansible.module_utils.tfctl_machine import Failed, beside, make_parents, read
from ansible.module_utils.tfctl_venv import (
    alone,
    compiled_modules,
    differing,
    record_of,
    run,
    sizes_and_times,
    told_to_nobody,
)

MARKER = "tfctl-horovod.json"
TOLD = 10
PROBE = """
import json, sys
sys.path.insert(0, sys.argv[1])  # before the one that the environment looks at now
import horovod, horovod.tensorflow as hvd
mpi = not hasattr(hvd, "mpi_built") or bool(hvd.mpi_built())  # in its beginnings there was nothing else
gloo = hasattr(hvd, "gloo_built") and bool(hvd.gloo_built())
print(json.dumps({"version": horovod.__version__, "mpi": mpi, "gloo": gloo}))
"""


class Horovod:
    """``home`` empty: the environment has no Horovod. ``mpi``, ``gloo``: what it must be built with."""

    def __init__(self, environment, home, version, mpi, gloo, wheel=None):
        self.environment, self.version = Path(environment), version
        self.home = Path(home) if home else None
        self.built_with = {"version": version, "mpi": mpi, "gloo": gloo}
        self.wheel = Path(wheel) if wheel else None
        self.pth = next(self.environment.glob("lib/python3.*/site-packages"), self.environment) / PTH

    def wrong(self):
        """Return sentences about the first few differences from the wheel, or []."""
        if self.home is None:
            return []
        if not (self.home / MARKER).is_file():
            return [f"{self.home} is not there"]
        there = sizes_and_times(self.home)
        completed = (self.home / MARKER).stat().st_mtime
        record = record_of(self.home, "horovod", self.version)
        if record is None:
            return [f"Horovod {self.version} is not in {self.home}"]
        marker = json.loads((self.home / MARKER).read_text(encoding="utf-8"))
        wrong = list(differing(self.home, record, there, completed))[:TOLD]
        if marker["modules"] != compiled_modules(there):
            wrong.append(f"{self.home}: compiled modules are missing")
        return wrong

    def linked(self):
        """Return whether the environment uses this Horovod, or none if it has to have none."""
        return read(self.pth) == (f"{self.home}\n".encode() if self.home else None)

    def unpack(self):
        """Unpack the wheel; ``home`` exists only once it is complete and verified. Raises Failed."""
        os.umask(0o022)  # the job user must be able to read the files, whatever root's umask is
        part = beside(self.home)
        with alone(self.home.with_name(".lock"), "installs Horovod"):
            shutil.rmtree(part, ignore_errors=True)
            make_parents(part / "new")
            try:
                self._fill(part / "new")
                shutil.rmtree(self.home, ignore_errors=True)
                (part / "new").rename(self.home)
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def link(self):
        """Make the environment use this Horovod, and remove those that no environment uses."""
        if self.home is None:
            self.pth.unlink(missing_ok=True)
        else:
            part = beside(self.pth)
            part.write_text(f"{self.home}\n", encoding="utf-8")
            part.chmod(0o644)
            part.replace(self.pth)
        stacks = self.environment.parent
        used = {path.read_text(encoding="utf-8").strip() for path in stacks.glob(f"*-*/lib/*/*/{PTH}")}
        for old in stacks.with_name("horovod").glob("[!.]*"):
            if str(old) not in used:
                shutil.rmtree(old)

    def _fill(self, new):
        if self.wheel is None:
            raise Failed(f"{self.home}: there is no wheel to install it from")
        unpack(self.wheel, new)
        python = str(self.environment / "bin/python")
        run([python, "-I", "-m", "compileall", "-q", "-q", "-j", "0", str(new)])
        self._probe(python, new)
        text = json.dumps({"modules": compiled_modules(sizes_and_times(new))})
        (new / MARKER).write_text(text + "\n", encoding="utf-8")

    def _probe(self, python, new):
        found = told_to_nobody([python, "-I", "-c", PROBE, str(new)], "Horovod cannot be imported")
        for name, value in self.built_with.items():
            if found[name] != value:
                raise Failed(f"Horovod has {name} {found[name]}, {value} is wanted")


def unpack(wheel, folder):
    """Unpack every file and check its hash against RECORD (PEP 376). Raises Failed."""
    try:
        with zipfile.ZipFile(wheel) as file:
            (record,) = (name for name in file.namelist() if name.endswith(".dist-info/RECORD"))
            rows = list(csv.reader(file.read(record).decode().splitlines()))
            for name, digest, _ in rows:
                content = file.read(name)
                if digest and digest != f"sha256={hashed(content)}":
                    raise Failed(f"{name} in {wheel} is not what its RECORD says", "remove the wheel that tfctl keeps")
                path = folder / name
                if not path.resolve().is_relative_to(folder.resolve()):
                    raise Failed(f"{wheel}: {name} leads out of it")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    except (zipfile.BadZipFile, KeyError, ValueError) as fault:
        raise Failed(f"{wheel} is no whole wheel: {fault}", "remove the wheel that tfctl keeps") from None


def hashed(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
