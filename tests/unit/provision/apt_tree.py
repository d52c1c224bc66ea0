"""A directory tree with apt's lists and state, in which real apt-get simulates an installation on a bare host."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.unit.provision.test_gpu import decided

#: GPUs of several generations, as PCI ids. V100 needs the proprietary kernel module; the others can use either.
CARDS = {"V100": ["1db6"], "T4": ["1eb8"], "A100": ["20b5"], "H100": ["2331"], "RTX 4090": ["2684"]}


class AptTree:
    """``sources``: lines of a sources.list. Nothing is installed but kernels, see `boot`."""

    def __init__(self, folder: Path, sources: str) -> None:
        for name in (
            "etc/parts",
            "etc/sources.list.d",
            "etc/preferences.d",
            "state/lists/partial",
            "cache/archives/partial",
        ):
            (folder / name).mkdir(parents=True)
        (folder / "etc/sources.list").write_text(sources)
        self._status = folder / "state/status"
        self._status.write_text("")
        settings = {
            "Dir": folder, "Dir::Etc": folder / "etc", "Dir::Etc::parts": folder / "etc/parts",
            "Dir::State": folder / "state", "Dir::State::status": folder / "state/status",
            "Dir::Cache": folder / "cache", "Debug::NoLocking": "true", "APT::Sandbox::User": "",
            "APT::Architecture": "amd64", "APT::Architectures": "amd64",
            "Acquire::Check-Valid-Until": "false", "Acquire::Languages": "none",
        }  # fmt: skip
        self.configuration = folder / "apt.conf"
        self.configuration.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
        self._environment = {**os.environ, "APT_CONFIG": str(self.configuration), "LC_ALL": "C.UTF-8"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=self._environment, capture_output=True, text=True, timeout=300)

    def update(self) -> None:
        done = self.run("apt-get", "-q", "update")
        assert done.returncode == 0 and "W:" not in done.stderr, done.stderr

    def boot(self, kernel: str) -> None:
        """Install a kernel of the lists. Debian 13's headers depend on it."""
        name = f"linux-image-{kernel}"
        shown = self.run("apt-cache", "show", "--no-all-versions", name).stdout
        version = re.search(r"^Version: (.*)$", shown, re.MULTILINE)
        self._status.write_text(_installed(name, version[1] if version else "1"))

    def have(self, *packages: str, held: str = "", version: str = "1") -> None:
        """Set the installed packages, each given as ``NAME`` or ``NAME: DEPENDENCIES``. ``held``: the one on hold."""
        split = (package.partition(": ") for package in packages)
        self._status.write_text("\n".join(_installed(name, version, needs, name == held) for name, _, needs in split))

    def simulate(self, packages: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Simulate an installation with the options of transaction."""
        options = ("-q", "-s", "--ignore-hold", "--no-install-recommends", "--allow-downgrades")
        return self.run("apt-get", *options, "install", *packages)

    def install(self, packages: Sequence[str]) -> list[str]:
        """Return the names of the packages that an installation would install."""
        done = self.simulate(packages)
        assert done.returncode == 0, done.stdout + done.stderr
        return re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)


def _installed(name: str, version: str, needs: str = "", held: bool = False) -> str:
    """Return the paragraph of an installed package in dpkg's status file."""
    fields = {
        "Package": name, "Status": f"{'hold' if held else 'install'} ok installed", "Version": version,
        "Depends": needs, "Architecture": "amd64", "Maintainer": "x", "Description": "x",
    }  # fmt: skip
    return "".join(f"{field}: {value}\n" for field, value in fields.items() if value)


def kernels(tree: AptTree) -> list[str]:
    """Return the releases of the kernels of which the lists have headers, as the metapackage names them."""
    said = tree.run("apt-cache", "depends", "linux-headers-amd64").stdout
    return sorted({*re.findall(r"Depends: linux-headers-(\S+-amd64)$", said, re.MULTILINE)})


def driver_packages(system: str, kernel: str) -> list[tuple[str, ...]]:
    """Return the packages of each different decision for the distribution's driver, for a host with this kernel."""
    found = []
    for devices in CARDS.values():
        decision, faults = decided({"system": system, "gpu": {"devices": devices, "kernel": kernel}})
        assert faults == [], faults
        driver = decision["gpu"]["driver"]
        assert driver["method"] == "distribution"
        found.append(tuple(driver["packages"]))
    return list(dict.fromkeys(found))
