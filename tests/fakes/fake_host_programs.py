"""Fakes of dpkg-query, apt-get, apt-mark, systemctl, userdel and groupdel, as functions that served_programs.py calls.

They follow dpkg-query(1), apt-get(8), apt-mark(8) and systemctl(1). The state is a JSON file:

    {"packages": {NAME: {"version", "status", "files": [PATH], "needs": [NAME]}}, "offers": {NAME: PACKAGE},
     "units": {UNIT: {"active", "enabled", "busy", "job"}}, "calls": [LINE]}

`apt-get purge` also removes the packages that need one of those named, as the real one does. `apt-get install` installs
what ``offers`` has, with what it needs, unless it is there. A unit that is busy, as a
mount with an open file, can be disabled but not stopped. `list-units` lists units that are not inactive or have a job.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from served_programs import serving

Packages = dict[str, Any]
NAMES = ("dpkg-query", "apt-get", "apt-mark", "systemctl", "userdel", "groupdel")


def serve(folder: Path, state: Path) -> AbstractContextManager[None]:
    """Create a directory with the programs, for PATH, and serve them during the block. ``state``: the JSON file."""
    return serving(folder, NAMES, functools.partial(answer, state))


def answer(state: Path, program: str, words: list[str]) -> tuple[int, str]:
    """Return the exit code and the output of a program, and record the call."""
    host = json.loads(state.read_text())
    host["calls"].append(" ".join([program, *words]))
    code, said = 0, ""
    if program == "dpkg-query":
        code, said = dpkg_query(host["packages"], words[words.index("-f") + 1], words[words.index("-f") + 2 :])
    elif program == "apt-get":
        code, said = apt_get(host["packages"], host.get("offers", {}), words)
    elif program == "apt-mark":
        code, said = apt_mark(host["packages"], words)
    elif program == "systemctl":
        code, said = systemctl(host["units"], words)
    state.write_text(json.dumps(host))
    return code, said


def dpkg_query(packages: Packages, shape: str, names: list[str]) -> tuple[int, str]:
    said = ""
    for name in names or packages:
        if name in packages:
            fields = {"Package": name, "binary:Package": name, "Version": packages[name]["version"]}
            fields["db:Status-Abbrev"] = packages[name].get("status", "ii ")
            fields["db-fsys:Files"] = "".join(f" {path}\n" for path in packages[name].get("files", []))
            text = shape
            for field, value in fields.items():
                text = text.replace(f"${{{field}}}", value)
            said += text
    return int(any(name not in packages for name in names)), said


def apt_get(packages: Packages, offers: Packages, words: list[str]) -> tuple[int, str]:
    if "update" in words:
        return 0, ""
    return install(packages, offers, words) if "install" in words else purge(packages, words)


def install(packages: Packages, offers: Packages, words: list[str]) -> tuple[int, str]:
    left, coming = words[words.index("install") + 1 :], dict[str, Any]()
    while left:
        name = left.pop()
        if name not in {**packages, **offers}:
            return 100, f"E: Unable to locate package {name}\n"
        if name not in {**packages, **coming}:
            coming[name] = offers[name]
            left += offers[name].get("needs", [])
    if "-s" not in words:
        packages.update(coming)
    return 0, "".join(f"Inst {name} ({package['version']} Debian [amd64])\n" for name, package in coming.items())


def purge(packages: Packages, words: list[str]) -> tuple[int, str]:
    going = {*words[words.index("purge") + 1 :]}
    if going - {*packages}:
        return 100, f"E: Unable to locate package {min(going - {*packages})}\n"
    more = {""}
    while more:
        more = {name for name, package in packages.items() if {*package.get("needs", [])} & going} - going
        going |= more
    if "-s" in words:
        return 0, "".join(f"Purg {name} [{packages[name]['version']}]\n" for name in sorted(going))
    for name in going:
        for path in packages.pop(name).get("files", []):
            Path(path).unlink(missing_ok=True)
    return 0, ""


def apt_mark(packages: Packages, words: list[str]) -> tuple[int, str]:
    for name in words[1:]:
        if name not in packages:
            return 100, f"E: Unable to locate package {name}\n"
        packages[name]["status"] = {"hold": "hi ", "unhold": "ii "}[words[0]]
    return 0, ""


def systemctl(units: dict[str, Any], words: list[str]) -> tuple[int, str]:
    said = ""
    if words[0] == "show":
        for name in words[words.index("--") + 1 :]:
            unit = units.get(name)
            load, active, enabled = (
                ("loaded", unit["active"], unit["enabled"]) if unit else ("not-found", "inactive", "")
            )
            said += f"LoadState={load}\nActiveState={active}\nUnitFileState={enabled}\n\n"
    elif words[0] == "disable":
        unit = units[words[-1]]
        unit["enabled"] = "disabled"
        if unit.get("busy"):
            return 1, f"Job for {words[-1]} failed.\n"
        unit["active"] = "inactive"
    elif words[0] == "list-units":
        patterns = [word for word in words[1:] if not word.startswith("--")]
        for name, unit in units.items():
            job = unit.get("job", "")
            if any(fnmatch.fnmatchcase(name, each) for each in patterns) and (job or unit["active"] != "inactive"):
                said += f"{name} loaded {unit['active']} substate {job} A unit\n"
    return 0, said
