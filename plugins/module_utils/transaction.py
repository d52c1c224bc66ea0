"""Simulate what apt or dnf would do to packages, and derive what has to be done. It changes only package lists.

Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.module_utils.package_lock import wait_until_free
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import read_json, run
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import Package, query_packages, uses_apt

RECORD = Path("/var/lib/tfctl/held.json")
PREVIOUS = Path("/var/lib/tfctl/held-before.json")
LOCKS = Path("/etc/dnf/plugins/versionlock.list")
NVIDIA = re.compile(r"nvidia|^cuda|cudnn|nccl|^libcuda1|^libcu|^libnv|^nsight")
#: The packages of a driver, as PACKAGE in tfctl/provision/decide/readings.py.
DRIVER = re.compile(
    r"^(nvidia-(driver(?!-local-repo)|kernel|open|dkms|headless|utils|smi|compute|fabric-?manager|persistenced|modprobe"
    r"|firmware|legacy|tesla|linux-grid|vgpu)|libnvidia-(?!container)|libcuda1|linux-(modules|objects)-nvidia|cuda-drivers"
    r"|k?a?mod-nvidia|xorg-x11-drv-nvidia|xserver-xorg-video-nvidia|firmware-nvidia)"
)
#: Packages with the driver's version, one of which each driver has, as LIBRARY there.
LIBRARY = re.compile(
    r"^(libcuda1$|libnvidia-(compute|ml)|nvidia-driver-(cuda-)?libs|xorg-x11-drv-nvidia-cuda|nvidia-driver-cuda)"
)
KERNEL = re.compile(r"linux-image|kernel-core|kernel-modules-core")
APT = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=600")
#: Without --allowerasing, dnf would replace no kernel module by one that conflicts with it.
DNF = ("dnf", "--disableplugin=versionlock", "--setopt=install_weak_deps=False", "--allowerasing")
#: Without the packages that seem unused afterwards, which may be in use.
APT_PURGE = (*APT, "-o", "APT::Get::AutomaticRemove=false", "--allow-change-held-packages")
DNF_REMOVE = ("dnf", "--noautoremove", "--setopt=clean_requirements_on_remove=False")
LIMIT_S = 1800
#: Modules that are built for one kernel each. A hold would keep the driver from following updates of the kernel.
OF_A_KERNEL = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
HEADERS = re.compile(r"\b(linux-headers-\d|kernel-devel-(matched-)?\d)\S*")


class InstalledPackage(NamedTuple):
    """An installed package. ``held``: it is on hold, or locked to this version."""

    version: str
    held: bool


class Simulation(NamedTuple):
    """What a transaction would do. ``versions``: of the packages that it would install or change."""

    versions: dict[str, str]
    removed: list[str]


class Transaction(NamedTuple):
    """What has to be done to packages. Empty lists: nothing.

    ``install`` and ``reinstall``: packages with exact versions, as the package manager names them. ``remove``: packages
    of another branch of the driver, which the installation replaces. ``release``: tfctl's holds that the transaction
    would violate, or that are to end. ``hold``: what to put on hold after it. ``record``: {component: {package:
    version}}, the content of RECORD after it; the version is "" for a package that is not put on hold. ``pending``: the
    content of RECORD while the packages change, where new ones have no version yet. ``previous``: the content of
    PREVIOUS after it, the versions before the last change of each component. ``new``: all packages that it adds.
    """

    new: list[str]
    install: list[str]
    reinstall: list[str]
    remove: list[str]
    release: list[str]
    hold: list[str]
    record: dict[str, dict[str, str]]
    pending: dict[str, dict[str, str]]
    previous: dict[str, dict[str, str]]


class Manager(Protocol):
    """A package manager."""

    #: Whether it is apt.
    apt: bool
    #: The command that removes a hold.
    unhold: str
    #: The directory of the host's files. Tests have another one.
    root: Path = Path("/")
    #: Packages that Ansible's module of the package manager installs by itself.
    helpers: Sequence[str] = ()

    def update(self) -> None:
        """Wait until no other process uses the package manager, and update the package lists. Raises ModuleFailed."""

    def installed(self, names: Collection[str]) -> dict[str, InstalledPackage]:
        """Return those of the packages that are installed."""
        found = {}
        for package in query_packages(names, _output, self.apt) if names else ():
            there = InstalledPackage(package.version, self.is_held(package))
            # A request for kernel headers has name and version in one word.
            found.update(dict.fromkeys(package.names() & {*names}, there))
        return found

    def is_held(self, package: Package) -> bool:
        """Return whether an installed package is on hold, or locked to its installed version."""

    def simulate(self, packages: Sequence[str]) -> Simulation:
        """Simulate the installation of NAME or NAME=VERSION, in spite of holds. Raises ModuleFailed."""

    def damaged(self, names: Collection[str]) -> list[str]:
        """Return the installed packages with a missing file."""
        found = query_packages(names, _output, self.apt) if names else ()
        return list(dict.fromkeys(package.name for package in found if package.missing))

    def exact(self, name: str, version: str) -> str:
        """Return what stands for this version of a package on a command line."""


def missing(manager: Manager, asked: Sequence[str], act: bool) -> tuple[list[str], list[str]]:
    """Return those of the packages that are not installed, and all packages that their installation adds.

    Without ``act``, do not look for the latter, for which package lists have to be updated. Raises ModuleFailed.
    """
    there = manager.installed([*map(bare, asked)])
    absent = [package for package in asked if not is_installed(there, package)]
    if not absent or not act:
        return absent, []
    manager.update()
    return absent, added(manager, manager.simulate([*absent, *manager.helpers]))


def added(manager: Manager, simulation: Simulation) -> list[str]:
    """Return the packages of a simulation that are not installed in any version."""
    return sorted({*simulation.versions} - {*manager.installed(simulation.versions)})


def transaction(
    manager: Manager, component: str, first: Sequence[str], asked: Sequence[str], update: bool, upgrade: bool = False
) -> Transaction:
    """Return what has to be done so that the packages are installed, complete, on hold and recorded.

    ``first`` has been installed already, unless in check mode. ``asked`` empty: the packages that were recorded for the
    component before, of those without a version only what is installed. ``update``: whether to update the package lists
    before a simulation. ``upgrade``: whether packages of NVIDIA that are installed get the version that the package
    manager prefers. Raises ModuleFailed.
    """
    record = recorded()
    before = record.get(component, {})
    now = manager.installed({*before, *map(bare, asked)})
    held = any(before.values())
    # A run that was interrupted has left packages without a version, among others. What is gone was then replaced.
    interrupted = held and any(not before.get(name, "-") for name in now)
    # Otherwise, a package without a version may have a version in its name, and updates replace it with another one.
    asked = list(asked) or sorted(name for name in before if name in now or (before[name] and not interrupted))
    damaged = manager.damaged(now)
    due = [each for each in asked if not is_installed(now, each) or (upgrade and NVIDIA.search(each))]
    asked_for, complete = due if upgrade else asked, not due
    if update and (damaged or not complete):
        manager.update()
    own = {name for names in record.values() for name in names}

    def replaceable(name: str) -> bool:
        return component == "nvidia_driver" and (name in before or bool(DRIVER.match(name)))

    nothing = Simulation({}, [])
    versions, removed = found = nothing if complete else simulated(manager, [*first, *asked_for], own, replaceable)
    final = {**{name: package.version for name, package in now.items() if name not in removed}, **versions}
    ours = {name: version for name, version in sorted(final.items()) if NVIDIA.search(name)}
    # What was added to a driver that tfctl has not installed, such as a fabric manager, has to follow its updates.
    beside = component == "nvidia_driver" and not any(map(LIBRARY.match, ours))
    free = beside or any(map(OF_A_KERNEL.match, ours))
    there = manager.installed([*ours, *removed])
    # As they were recorded: an interrupted run may have changed them already.
    last = {name: version for name, version in before.items() if version and (name in now or interrupted)}
    last = last if held else {name: now[name].version for name in before if name in now}
    replaced = last if any(final.get(name) != version for name, version in last.items()) else {}
    changing = {*versions, *removed, *(own if free else ())}
    wanted = [manager.exact(name, final[name]) if name in final else name for name in map(bare, asked)]
    return Transaction(
        new=added(manager, found),
        install=wanted if versions else [],
        reinstall=[
            manager.exact(name, now[name].version) for name in damaged if name in final and name not in versions
        ],
        remove=removed,
        release=[name for name in there if there[name].held and name in changing],
        # apt forgets the hold of a package that it installs again.
        hold=[] if free else [name for name in ours if name in versions or name in damaged or not there[name].held],
        record={**record, component: dict.fromkeys(ours, "") if free else ours},
        pending={**record, component: {**dict.fromkeys(ours, ""), **before}},
        previous={**recorded(PREVIOUS), **({component: replaced} if replaced else {})},
    )


def simulated(
    manager: Manager, packages: Sequence[str], own: Collection[str], replaceable: Callable[[str], bool]
) -> Simulation:
    """Return what a transaction would do. Raises ModuleFailed if that is not acceptable.

    ``own``: packages that tfctl has put on hold, and may therefore change. ``replaceable``: whether a package may be
    removed.
    """
    versions, removed = manager.simulate(packages)
    wanted = " ".join(packages)
    others = [name for name in removed if not replaceable(name)]
    if others:
        raise ModuleFailed(
            f"The installation of {wanted} would remove {' '.join(others)}", "remove the packages yourself first"
        )
    kernels = [f"{name} {version}" for name, version in versions.items() if KERNEL.match(name)]
    if kernels:
        raise ModuleFailed(
            f"The installation of {wanted} would install another kernel: {', '.join(kernels)}",
            "upgrade the kernel and reboot, then provision again",
        )
    there = manager.installed([*versions, *removed])
    held = [name for name in there if there[name].held and name not in own]
    if held:
        raise ModuleFailed(
            f"The installation of {wanted} would change packages that are on hold: {' '.join(held)}",
            f"{manager.unhold} {' '.join(held)}, then provision again",
        )
    return Simulation(versions, removed)


class Apt(Manager):
    """Debian and Ubuntu."""

    apt = True
    unhold = "apt-mark unhold"
    helpers = ("python3-apt",)
    #: Whether the hold of a package remains when the package is removed.
    keeps_holds = False

    def __init__(self) -> None:
        self._unreachable: list[str] = []

    def update(self) -> None:
        """Update the package lists. apt ignores sources that do not answer; they are named if a package is missing."""
        wait_until_free(self.root)
        output = call([*APT, "update"], "apt cannot read its package sources")
        self._unreachable = list(dict.fromkeys(re.findall(r"^W: (Failed to fetch .*)$", output, re.MULTILINE)))[:2]

    def is_held(self, package: Package) -> bool:
        return package.held

    def simulate(self, packages: Sequence[str]) -> Simulation:
        options = ["-s", "--ignore-hold", "--no-install-recommends", "--allow-downgrades"]
        failure = f"apt cannot install {' '.join(packages)}"
        try:
            output = call([*APT, *options, "install", *packages], failure, is_apt_error)
        except ModuleFailed as error:
            first, *lines = str(error).splitlines()
            raise ModuleFailed("\n".join([first, *lines, *self._unreachable]), remedy_for(lines)) from error
        versions = dict(re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+)", output, re.MULTILINE))
        return Simulation(versions, re.findall(r"^Remv (\S+)", output, re.MULTILINE))

    def exact(self, name: str, version: str) -> str:
        return f"{name}={version}"

    def removed_with(self, names: Sequence[str]) -> set[str]:
        """Return the names of all packages that would be removed together with these, including packages on hold.

        Without --ignore-hold, apt fails if a package on hold needs one of these. Raises ModuleFailed.
        """
        failure = f"apt cannot remove {' '.join(names)}"
        output = call([*APT_PURGE, "-s", "--ignore-hold", "purge", *names], failure, is_apt_error)
        return {*re.findall(r"^(?:Remv|Purg) ([^ :]+)", output, re.MULTILINE)}

    def removal_of(self, names: Sequence[str]) -> list[str]:
        """Return the command that removes these packages in one transaction."""
        return [*APT_PURGE, "-y", "purge", *names]

    def on_hold(self, packages: Mapping[str, str]) -> list[str]:
        """Return those of the packages, given with their versions, that are on hold."""
        return [name for name, package in self.installed(packages).items() if package.held]

    def without_architecture(self, name: str) -> str:
        """Return the name of an installed package, without its architecture."""
        return name.partition(":")[0]


class Dnf(Manager):
    """The EL family. Versions contain the epoch, as in 3:580.65.06-1.el9."""

    apt = False
    unhold = "dnf versionlock delete"
    keeps_holds = True

    def update(self) -> None:
        """Wait. dnf updates its package lists by itself."""
        wait_until_free(self.root)

    def is_held(self, package: Package) -> bool:
        return f"{package.name}-{package.version}.*" in locks()

    def simulate(self, packages: Sequence[str]) -> Simulation:
        """Parse the table that dnf prints before it asks. With --assumeno it then aborts and exits with 1."""
        output = _run([*DNF, "--assumeno", "install", *(package.replace("=", "-", 1) for package in packages)])[1]
        error = re.search(r"^(No match for|Error|there is no dnf).*", output, re.MULTILINE | re.DOTALL)
        if error and "Operation aborted" not in output:
            lines = error[0].splitlines()[:5]
            raise ModuleFailed("\n".join([f"dnf cannot install {' '.join(packages)}", *lines]), remedy_for(lines))
        rows = [(title.startswith("Removing"), name, version) for title, name, version in table(output)]
        versions = {name: version if ":" in version else f"0:{version}" for gone, name, version in rows if not gone}
        replaced = re.findall(r"^ +replacing +(\S+)\.\w+ ", output, re.MULTILINE)
        return Simulation(versions, [*(name for gone, name, _ in rows if gone), *replaced])

    def exact(self, name: str, version: str) -> str:
        # A request for kernel headers has name and version in one word.
        return name if version.partition(":")[2] in name else f"{name}-{version}"

    def removed_with(self, names: Sequence[str]) -> set[str]:
        """Return the names of all packages that would be removed together with these. Raises ModuleFailed."""
        output = _run([*DNF_REMOVE, "--assumeno", "remove", *names])[1]
        if "Operation aborted" not in output:
            lines = output.strip().splitlines()[-5:]
            raise ModuleFailed("\n".join([f"dnf cannot remove {' '.join(names)}", *lines]))
        return {name for title, name, _ in table(output) if title.startswith("Removing")}

    def removal_of(self, names: Sequence[str]) -> list[str]:
        """Return the command that removes these packages in one transaction."""
        return [*DNF_REMOVE, "-q", "-y", "remove", *names]

    def on_hold(self, packages: Mapping[str, str]) -> list[str]:
        """Return those of the packages, given with their versions, that are locked, even if they are not installed."""
        there = locks()
        return [name for name, version in packages.items() if f"{name}-{version}.*" in there]

    def without_architecture(self, name: str) -> str:
        """Return the name of an installed package, without its architecture."""
        return name.rpartition(".")[0]


def of_this_host() -> Apt | Dnf:
    """Return the package manager of this host."""
    return Apt() if uses_apt() else Dnf()


def table(output: str) -> Iterator[tuple[str, str, str]]:
    """Yield the title, name and version of each row of the table that dnf prints before it asks. dnf -q prints none.

    A long name is followed by a line break.
    """
    for title, rows in re.findall(r"^(\w[\w ]+):\n((?: .*\n)+)", output, re.MULTILINE):
        for name, version in re.findall(r"^ (\S+)\s+(?:noarch|x86_64|aarch64|i686)\s+(\S+)", rows, re.MULTILINE):
            yield title, name, version


def locks() -> list[str]:
    """Return the locks of dnf's plugin versionlock, such as nvidia-open-3:580.65.06-1.el9.*"""
    return LOCKS.read_text(encoding="utf-8").split() if LOCKS.exists() else []


def remedy_for(lines: Sequence[str]) -> str:
    """Return the remedy if a package manager does not find the headers of the running kernel, else ""."""
    missing = HEADERS.search("\n".join(lines))
    if not missing:
        return ""
    return f"the package sources have no {missing[0]}: install the latest kernel, reboot, then provision again"


def recorded(path: Path | None = None) -> dict[str, dict[str, str]]:
    """Return {component: {package: version}} of the packages that tfctl has put on hold, or another such file."""
    return dict(read_json(path or RECORD))


def bare(package: str) -> str:
    """Return NAME of NAME=VERSION."""
    return package.partition("=")[0]


def is_installed(now: dict[str, InstalledPackage], package: str) -> bool:
    """Return whether NAME or NAME=VERSION is installed. VERSION may leave out the epoch and contain *."""
    name, _, pattern = package.partition("=")
    if name not in now:
        return False
    version = now[name].version
    return any(fnmatch.fnmatchcase(each, pattern or "*") for each in (version, version.partition(":")[2]))


def is_apt_error(line: str) -> bool:
    return line.startswith(("E:", " ")) and "by regex" not in line


def call(words: Sequence[str], failure: str = "", selects: Callable[[str], bool] = bool) -> str:
    """Run a command and return its output. Raises ModuleFailed with the lines that ``selects`` accepts.

    ``failure``: the first line. If it is empty and the command printed nothing, its name and exit code take its place.
    """
    code, output = _run(words)
    if code:
        lines = [line.rstrip() for line in output.splitlines() if line.strip()]
        chosen = [line for line in lines if selects(line)] or lines
        first = [f"{failure or f'{words[0]} failed'} (exit code {code})"] if failure or not lines else []
        raise ModuleFailed("\n".join([*first, *chosen[-5:]]))
    return output


def _run(words: Sequence[str]) -> tuple[int, str]:
    """Run a command and return (exit code, output). Raises ModuleFailed if it does not end."""
    code, output = run(words, LIMIT_S)
    if code == 124:
        raise ModuleFailed(output)
    return code, output


def _output(*words: str) -> str:
    """Run a command and return its output, whatever its exit code. Raises ModuleFailed if it does not end."""
    return _run(words)[1]
