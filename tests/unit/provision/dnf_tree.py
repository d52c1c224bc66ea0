"""A directory tree with an EL 9 of a few packages, on which real dnf and rpm do what they are told."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.unit.provision.nvidia_rpms import KERNEL

#: The settings in which EL 9's dnf.conf differs from dnf's defaults. The plugins would be those of this machine.
SETTINGS = "[main]\nbest=True\nclean_requirements_on_remove=True\nskip_if_unavailable=False\nplugins=0\n"
#: From it, dnf takes the platform whose modules it reads.
RELEASE = 'ID="rocky"\nVERSION_ID="9.3"\nPLATFORM_ID="platform:el9"\n'


class DnfTree:
    """``repositories``: directories with packages. The kernel of nvidia_rpms is installed.

    ``programs``: a directory with `dnf` and `rpm` for PATH. They are the real ones, and act on the tree.
    """

    def __init__(self, folder: Path, repositories: Sequence[Path]) -> None:
        root, self.programs = folder / "root", folder / "bin"
        for path in (root / "etc/yum.repos.d", root / "etc/dnf", self.programs):
            path.mkdir(parents=True)
        (root / "etc/dnf/dnf.conf").write_text(SETTINGS)
        (root / "etc/os-release").write_text(RELEASE)
        for path in repositories:
            lines = f"[{path.name}]\nname={path.name}\nbaseurl=file://{path}\ngpgcheck=0\n"
            (root / f"etc/yum.repos.d/{path.name}.repo").write_text(lines)
        # Debian's rpm has its database in the home directory.
        (folder / ".rpmmacros").write_text("%_dbpath /var/lib/rpm\n")
        for name, option in {"dnf": f"--releasever=9 --installroot={root}", "rpm": f"--root={root}"}.items():
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nHOME={folder} exec {shutil.which(name)} {option} "$@"\n')
            program.chmod(0o755)
        self.run("dnf", "-y", "install", f"kernel-core-{KERNEL}")

    def run(self, program: str, *words: str) -> str:
        """Run dnf or rpm, and return its output. It must succeed."""
        command = [str(self.programs / program), *words]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def installed(self) -> dict[str, str]:
        """Return the versions of the installed packages."""
        lines = self.run("rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n").splitlines()
        return dict(line.split() for line in lines)
