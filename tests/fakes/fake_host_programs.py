"""Fakes of dpkg-query, apt-get, apt-mark, systemctl, userdel and groupdel, as one program under several names.

Follows dpkg-query(1), apt-get(8), apt-mark(8) and systemctl(1). The state is the JSON file that FAKE_HOST names:

    {"packages": {NAME: {"version", "status", "files": [PATH], "needs": [NAME]}},
     "units": {UNIT: {"active", "enabled", "busy", "job"}}, "calls": [LINE]}

`apt-get purge` also removes the packages that need one of those named, as the real one does. A unit that is busy, as a
mount with an open file, can be disabled but not stopped. `list-units` lists units that are not inactive or have a job.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from pathlib import Path
from typing import Any

Packages = dict[str, Any]


def install(folder: Path) -> None:
    """Write the programs into a directory, for PATH."""
    folder.mkdir()
    for name in ("dpkg-query", "apt-get", "apt-mark", "systemctl", "userdel", "groupdel"):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
        (folder / name).chmod(0o755)


def dpkg_query(packages: Packages, shape: str, names: list[str]) -> int:
    for name in names or packages:
        if name in packages:
            fields = {"Package": name, "binary:Package": name, "Version": packages[name]["version"]}
            fields["db:Status-Abbrev"] = packages[name].get("status", "ii ")
            fields["db-fsys:Files"] = "".join(f" {path}\n" for path in packages[name].get("files", []))
            text = shape
            for field, value in fields.items():
                text = text.replace(f"${{{field}}}", value)
            sys.stdout.write(text)
    return int(any(name not in packages for name in names))


def apt_get(packages: Packages, words: list[str]) -> int:
    going = {*words[words.index("purge") + 1 :]}
    if going - {*packages}:
        print(f"E: Unable to locate package {min(going - {*packages})}")
        return 100
    more = {""}
    while more:
        more = {name for name, package in packages.items() if {*package.get("needs", [])} & going} - going
        going |= more
    for name in sorted(going):
        if "-s" in words:
            print(f"Purg {name} [{packages[name]['version']}]")
        else:
            for path in packages.pop(name).get("files", []):
                Path(path).unlink(missing_ok=True)
    return 0


def apt_mark(packages: Packages, words: list[str]) -> int:
    for name in words[1:]:
        if name not in packages:
            print(f"E: Unable to locate package {name}")
            return 100
        packages[name]["status"] = {"hold": "hi ", "unhold": "ii "}[words[0]]
    return 0


def systemctl(units: dict[str, Any], words: list[str]) -> int:
    if words[0] == "show":
        for name in words[words.index("--") + 1 :]:
            unit = units.get(name)
            load, active, enabled = (
                ("loaded", unit["active"], unit["enabled"]) if unit else ("not-found", "inactive", "")
            )
            print(f"LoadState={load}\nActiveState={active}\nUnitFileState={enabled}\n")
    elif words[0] == "disable":
        unit = units[words[-1]]
        unit["enabled"] = "disabled"
        if unit.get("busy"):
            print(f"Job for {words[-1]} failed.")
            return 1
        unit["active"] = "inactive"
    elif words[0] == "list-units":
        patterns = [word for word in words[1:] if not word.startswith("--")]
        for name, unit in units.items():
            job = unit.get("job", "")
            if any(fnmatch.fnmatchcase(name, each) for each in patterns) and (job or unit["active"] != "inactive"):
                print(f"{name} loaded {unit['active']} substate {job} A unit")
    return 0


def main(program: str, words: list[str]) -> int:
    path = Path(os.environ["FAKE_HOST"])
    host = json.loads(path.read_text())
    host["calls"].append(" ".join([program, *words]))
    code = 0
    if program == "dpkg-query":
        code = dpkg_query(host["packages"], words[words.index("-f") + 1], words[words.index("-f") + 2 :])
    elif program == "apt-get":
        code = apt_get(host["packages"], words)
    elif program == "apt-mark":
        code = apt_mark(host["packages"], words)
    elif program == "systemctl":
        code = systemctl(host["units"], words)
    path.write_text(json.dumps(host))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
