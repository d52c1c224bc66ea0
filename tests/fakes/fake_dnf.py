"""Fakes of dnf with its plugin versionlock, and of rpm, as one program under two names.

Follows dnf(8), the plugin's versionlock.py of dnf-plugins-core 4, and rpm(8). The state is the JSON file that FAKE_DNF
names; FAKE_LOCKS names the list of locks:

    {"installed": {NAME: VERSION}, "offers": {NAME: [VERSION, oldest first]}, "needs": {NAME: [NAME]}, "calls": [LINE],
     "streams": {MODULE: STREAM}}

With -q, no table of changes is printed. In the table, a name that is longer than its column is followed by a line
break, as in the output that test_transaction.py has recorded. A VERSION contains the epoch, as in 3:580.65.06-1.el9,
and a NAME that needs others has the same versions as they. Like the plugin, `install` regards the other versions of a
locked package as missing, `versionlock add` adds nothing if one of the packages is locked already, and `versionlock
delete` ignores a package without a lock. `module enable` refuses to switch to another stream unless
module_stream_switch is set (dnf.conf(5)); `module reset` forgets the stream. `download` writes a file that is named
after the package into the working directory, or prints its URL with --url. `install` takes the path of such a file.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from pathlib import Path
from typing import Any

Host = dict[str, Any]
ARCH = "x86_64"
#: The width of the column of names.
WIDTH = 19


def install(folder: Path) -> None:
    """Write the programs into a directory, for PATH."""
    folder.mkdir()
    for name in ("dnf", "rpm"):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
        (folder / name).chmod(0o755)


def locks() -> list[str]:
    path = Path(os.environ["FAKE_LOCKS"])
    return [line for line in path.read_text().splitlines() if line and line[0] != "#"] if path.exists() else []


def locked(name: str) -> list[str]:
    """Return the locks of a package, such as nvidia-open-3:580.65.06-1.el9.*"""
    return [lock for lock in locks() if lock.rsplit("-", 2)[0] == name]


def versionlock(host: Host, verb: str, names: list[str]) -> int:
    path = Path(os.environ["FAKE_LOCKS"])
    if verb == "delete":
        gone = [lock for name in names for lock in locked(name)]
        print(*(f"Deleting versionlock for: {lock}" for lock in gone), sep="\n")
        path.write_text("".join(f"{lock}\n" for lock in locks() if lock not in gone))
    elif found := [lock for name in names for lock in locked(name)]:
        print(f"Package already locked in equivalent form: {found[0]}")
    else:
        there = [f"{name}-{host['installed'][name]}.*" for name in names if name in host["installed"]]
        with path.open("a") as file:
            file.write("\n# Added lock on Tue Nov 24 12:00:00 2026\n" + "".join(f"{lock}\n" for lock in there))
    return 0


def matching(host: Host, spec: str, with_locks: bool) -> tuple[str, str] | None:
    """Return name and newest version of what NAME or NAME-VERSION means."""
    found = None
    for name, versions in host["offers"].items():
        for version in versions:
            free = not (with_locks and locked(name) and f"{name}-{version}.*" not in locked(name))
            forms = (name, f"{name}-{version}", f"{name}-{version.partition(':')[2]}")
            if free and any(fnmatch.fnmatchcase(form, spec) for form in forms):
                found = name, version
    return found


def download(host: Host, spec: str, urls: bool, with_locks: bool) -> int:
    found = matching(host, spec, with_locks)
    if found is None:
        print(f"No package {spec} available.")
        return 1
    file = f"{found[0]}-{found[1].partition(':')[2]}.{ARCH}.rpm"
    if urls:
        print(f"https://mirror.example/{file}")
    else:
        Path(file).write_text(found[1])
    return 0


def install_packages(host: Host, specs: list[str], act: bool, with_locks: bool, quiet: bool) -> int:
    changes = {}
    for spec in specs:
        found = in_file(Path(spec)) if spec.endswith(".rpm") else matching(host, spec, with_locks)
        if found is None:
            print(f"No match for argument: {spec}\nError: Unable to find a match: {spec}")
            return 1
        name, version = found
        changes.update(dict.fromkeys([name, *host["needs"].get(name, [])], version))
    changes = {name: version for name, version in changes.items() if host["installed"].get(name) != version}
    return transaction(host, "Installing", changes, act, quiet)


def in_file(path: Path) -> tuple[str, str] | None:
    """Return name and version of the package in a file that `download` has written."""
    return (path.name.rsplit("-", 2)[0], path.read_text()) if path.exists() else None


def remove(host: Host, specs: list[str], act: bool, quiet: bool) -> int:
    names = {spec.removesuffix(f".{ARCH}") for spec in specs}
    names |= {name for name in host["installed"] if names & {*host["needs"].get(name, [])}}
    return transaction(host, "Removing", {name: host["installed"][name] for name in sorted(names)}, act, quiet)


def module(host: Host, verb: str, spec: str, may_switch: bool, act: bool) -> int:
    name, _, stream = spec.partition(":")
    streams = host.setdefault("streams", {})
    found = streams.get(name)
    if verb == "reset":
        streams.pop(name, None)
    elif found == stream:
        print("Nothing to do.")
    elif found and not may_switch:
        print(f"The operation would result in switching of module '{name}' stream '{found}' to stream '{stream}'")
        print(
            "Error: It is not possible to switch enabled streams of a module unless explicitly enabled via "
            "configuration option module_stream_switch."
        )
        return 1
    elif not act:
        print("Operation aborted.")
        return 1
    else:
        streams[name] = stream
        print(f"Enabling module streams:\n {name} {stream}\nComplete!")
    return 0


def transaction(host: Host, title: str, changes: dict[str, str], act: bool, quiet: bool) -> int:
    if not changes:
        print("Nothing to do.")
        return 0
    if not quiet:
        print(f" {'Package':<{WIDTH}} Architecture  Version              Repository  Size")
        print(f"{title}:", *(row(name, version) for name, version in changes.items()), sep="\n")
    if not act:
        print("\nOperation aborted.")
        return 1
    for name, version in changes.items():
        if title == "Removing":
            del host["installed"][name]
        else:
            host["installed"][name] = version
    return 0


def row(name: str, version: str) -> str:
    """Return the line of a package in the table, or the two lines of one with a long name."""
    first = f" {name:<{WIDTH}}" if len(name) <= WIDTH else f" {name}\n {'':<{WIDTH}}"
    return f"{first} {ARCH:<13} {version:<20} repository  1 k"


def dnf(host: Host, words: list[str]) -> int:
    options = [word for word in words if word.startswith("-")]
    verb, *rest = [word for word in words if not word.startswith("-")]
    if verb == "versionlock":
        return versionlock(host, rest[0], rest[1:])
    if verb == "download":
        return download(host, rest[-1], "--url" in options, "--disableplugin=versionlock" not in options)
    act = "--assumeno" not in options
    if verb == "module":
        return module(host, rest[0], rest[1], "--setopt=module_stream_switch=1" in options, act)
    if verb == "remove":
        return remove(host, rest, act, "-q" in options)
    return install_packages(host, rest, act, "--disableplugin=versionlock" not in options, "-q" in options)


def rpm(host: Host, words: list[str]) -> int:
    names = words[3:] if words[0] == "-q" else [*host["installed"]]
    for name in names:
        if name not in host["installed"]:
            print(f"package {name} is not installed")
            continue
        epoch, _, rest = host["installed"][name].partition(":")
        version, _, release = rest.partition("-")
        text = words[2].replace("[ %{FILENAMES}\n]", "")
        fields = {"NAME": name, "EPOCHNUM": epoch, "VERSION": version, "RELEASE": release, "ARCH": ARCH}
        for field, value in fields.items():
            text = text.replace(f"%{{{field}}}", value)
        sys.stdout.write(text)
    return sum(name not in host["installed"] for name in names)


def main(program: str, words: list[str]) -> int:
    path = Path(os.environ["FAKE_DNF"])
    host = json.loads(path.read_text())
    host["calls"].append(" ".join([program, *words]))
    code = {"dnf": dnf, "rpm": rpm}[program](host, words)
    path.write_text(json.dumps(host))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
