"""Install packages in one transaction, after a dry run, and hold them. One interface to apt and dnf."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
from pathlib import Path

from ansible.module_utils.tfctl_machine import Failed, Rights, write

HELD = Path("/var/lib/tfctl/held.json")
NVIDIA = re.compile(r"nvidia|^cuda|cudnn|nccl|^libcuda1|^libcu|^libnv|^nsight")
KERNEL = re.compile(r"^(linux-image|kernel-core|kernel-modules-core)-?")
APT = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Options::=--force-confold"]
DNF = ["dnf", "-q", "--setopt=install_weak_deps=False"]
LIMIT_S = 1800


class Packages:
    """``asked``: NAME or NAME=VERSION, with * in VERSION; empty means those that ``component`` noted before.

    NVIDIA packages that a transaction installs are put on hold and noted by component in /var/lib/tfctl/held.json.
    tfctl_gpu_facts reads it to tell tfctl's holds from others and to notice later changes.
    """

    def __init__(self, component, packager, asked, first=(), stream=""):
        self.manager = Apt() if packager == "apt-get" else Dnf()
        self.component, self.first, self.stream = component, list(first), stream
        self.notes = noted()
        self.before = self.notes.get(component, {})
        self.asked = list(asked) or sorted(self.before)

    def done(self):
        """Return whether all packages are installed in their versions and match the notes."""
        asked = [split(each) for each in self.asked]
        now = self.manager.installed({*self.before, *(name for name, _ in asked)})
        fits = all(name in now and fnmatch.fnmatchcase(now[name][0], version) for name, version in asked)
        kept = all(now.get(name) == (version, True) for name, version in self.before.items())
        return self.component in self.notes and fits and kept and not self.manager.torn(now)

    def trial(self):
        """Return [[name, version]] of what would be installed. Raises Failed if that is impossible or unacceptable."""
        brought, removed = self.manager.trial([*self.first, *self.asked])
        said = " ".join(self.asked)
        if removed:
            raise Failed(f"to install {said}, {' '.join(removed)} would have to be removed", "remove it yourself first")
        kernels = [f"{name} {version}" for name, version in brought if KERNEL.match(name)]
        if kernels:
            told = f"{said} would bring another kernel: {', '.join(kernels)}"
            raise Failed(told, "upgrade the kernel and reboot, then provision again")
        return brought

    def bring(self):
        """Run the trial, then the transaction, then set the holds. Raises Failed."""
        shared = {name for other, names in self.notes.items() if other != self.component for name in names}
        self.manager.prepare(self.stream)
        self.manager.let_go([name for name in self.before if name not in shared])
        try:
            brought = self.trial()
            for words in filter(None, (self.first, self.asked)):
                self.manager.install(words)
            torn = self.manager.torn({*map(bare, self.asked), *self.before})
            if torn:
                self.manager.reinstall(torn)
        except Failed:
            self.manager.hold(sorted(self.manager.installed({*self.before})))
            raise
        names = {*map(bare, self.asked), *self.before, *(name for name, _ in brought)}
        now = self.manager.installed({name for name in names if NVIDIA.search(name)})
        self.manager.hold(sorted(now))
        self.notes[self.component] = {name: version for name, (version, _) in now.items()}
        text = json.dumps(self.notes, indent=1, sort_keys=True) + "\n"
        write(HELD, text.encode(), Rights.of("root", "0644"), ())
        return brought


class Apt:
    """Debian and Ubuntu."""

    #: Sources that did not answer. apt continues without them, so report them only if a package is missing.
    silent = ()

    def prepare(self, _):
        said = self.call(["update"], "apt could not read its package sources")
        self.silent = tuple(dict.fromkeys(re.findall(r"^W: (Failed to fetch .*)$", said, re.MULTILINE)))[:2]

    def installed(self, names):
        """Return {name: (version, on hold)} of the installed packages."""
        shape = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
        said = ask(["dpkg-query", "-W", "-f", shape, *sorted(names)])[1] if names else ""
        rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
        return {name: (version, status[0] == "h") for status, name, version in rows if status[1:2] == "i"}

    def trial(self, packages):
        said = self.call(
            ["-s", "--no-install-recommends", "install", *packages], f"apt cannot install {' '.join(packages)}"
        )
        held = re.search(r"held packages will be changed:\n((?:  .*\n)+)", said)
        if held:
            names = " ".join(held[1].split())
            message = f"on hold: {names}; to install {' '.join(packages)} would change that"
            raise Failed(message, f"apt-mark unhold {names}, then run it again")
        brought = re.findall(r"^Inst (\S+) (?:\[[^]]*\] )?\((\S+)", said, re.MULTILINE)
        return [list(each) for each in brought], re.findall(r"^Remv (\S+)", said, re.MULTILINE)

    def install(self, packages):
        """Install packages. Unlike dnf, apt needs an option to downgrade."""
        words = ["-y", "--no-install-recommends", "--allow-downgrades", "install", *packages]
        self.call(words, f"apt could not install {' '.join(packages)}")

    def torn(self, names):
        """Return the packages with a missing file."""
        shape = "${db:Status-Abbrev} ${Package}\n${db-fsys:Files}\n"
        return torn_of(ask(["dpkg-query", "-W", "-f", shape, *sorted(names)])[1], "ii ", "hi ") if names else []

    def reinstall(self, names):
        """Reinstall the installed version. By default apt would take the newest."""
        same = [f"{name}={version}" for name, (version, _) in self.installed(names).items()]
        self.call(["-y", "--reinstall", "install", *same], f"apt could not install {' '.join(names)} again")

    def hold(self, names):
        if names:
            call(["apt-mark", "hold", *names], "apt-mark could not hold the packages")

    def let_go(self, names):
        there = self.installed(names)
        if there:
            call(["apt-mark", "unhold", *there], "apt-mark could not let the packages go")

    def call(self, words, failure):
        try:
            return call([*APT, *words], failure, lambda line: line.startswith(("E:", " ")) and "by regex" not in line)
        except Failed as failed:
            raise Failed("\n".join([str(failed), *self.silent])) from failed


class Dnf:
    """The EL family."""

    def prepare(self, stream):
        self.call(["-y", "install", "python3-dnf-plugin-versionlock"], "dnf could not install its versionlock")
        if stream:
            self.call(["-y", "module", "enable", stream], f"dnf could not enable {stream}")

    def installed(self, names):
        if not names:
            return {}
        lock = Path("/etc/dnf/plugins/versionlock.list")
        locked = lock.read_text(encoding="utf-8") if lock.exists() else ""
        said = ask(["rpm", "-q", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n", *sorted(names)])[1]
        rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
        found = {name: (version, f"{name}-" in locked) for name, version, _ in rows}
        # A request for kernel headers has name and version in one word.
        whole = {f"{name}-{version}.{machine}": name for name, version, machine in rows}
        return {**found, **{asked: found[name] for asked, name in whole.items() if asked in names}}

    def trial(self, packages):
        """Parse the table that dnf prints. With --assumeno dnf aborts and exits with 1."""
        said = ask([*DNF, "--assumeno", "install", *map(spec, packages)])[1]
        errors = [line for line in said.splitlines() if line.startswith("Error") or "No match for" in line]
        if errors and "Operation aborted" not in said:
            raise Failed("\n".join([f"dnf cannot install {' '.join(packages)}", *errors[:5]]))
        head, _, removing = said.partition("Removing")
        row = re.compile(r"^ (\S+) +(?:\w+) +(\S+) ", re.MULTILINE)
        return [list(each) for each in row.findall(head)], [name for name, _ in row.findall(removing)]

    def torn(self, names):
        """Return the packages with a missing file."""
        shape = "package %{NAME}\n[ %{FILENAMES}\n]"
        return torn_of(ask(["rpm", "-q", "--qf", shape, *sorted(names)])[1], "package ") if names else []

    def reinstall(self, names):
        self.call(["-y", "reinstall", *names], f"dnf could not install {' '.join(names)} again")

    def install(self, packages):
        self.call(["-y", "install", *map(spec, packages)], f"dnf could not install {' '.join(packages)}")

    def hold(self, names):
        if names:
            self.call(["versionlock", "add", *names], "dnf could not lock the versions")

    def let_go(self, names):
        there = self.installed(names)
        if there:
            self.call(["versionlock", "delete", *there], "dnf could not unlock the versions")

    def call(self, words, failure):
        return call([*DNF, *words], failure)


def noted():
    """Return {component: {package: version}} of tfctl's holds."""
    try:
        return json.loads(HELD.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def torn_of(said, *marks):
    """Return the packages with a missing file. In ``said`` a mark precedes each package, a blank each of its files.

    Documentation may be missing, and configuration belongs to the host.
    """
    found, name = {}, ""
    for line in said.splitlines():
        if line.startswith(" /"):
            if not line.startswith((" /usr/share/", " /etc/")) and not os.path.lexists(line[1:]):
                found[name] = None
        else:
            name = next((line[len(mark) :].strip() for mark in marks if line.startswith(mark)), "")
    return [name for name in found if name]


def split(package):
    name, _, version = package.partition("=")
    return name, version or "*"


def bare(package):
    return split(package)[0]


def spec(package):
    return package.replace("=", "-", 1)


def call(words, failure, tells=bool):
    """Run a command. Raises Failed with the lines for which ``tells`` is true, else with the last lines."""
    code, said = ask(words)
    if code:
        lines = [line.rstrip() for line in said.splitlines() if line.strip()]
        raise Failed("\n".join([f"{failure} (exit {code})", *([line for line in lines if tells(line)] or lines)[-5:]]))
    return said


def ask(words):
    """Run a command and return (exit status, output)."""
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    nothing, merged = subprocess.DEVNULL, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(words, stdin=nothing, env=variables, text=True, timeout=LIMIT_S, check=False, **merged)
    except FileNotFoundError:
        return 127, f"there is no {words[0]}"
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[0]}: no end within {LIMIT_S} s") from None
    return done.returncode, done.stdout
