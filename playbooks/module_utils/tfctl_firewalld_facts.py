"""Facts about firewalld on a host: its zones and what they accept. A host without firewalld runs no program."""

from __future__ import annotations

import re
import shutil

from ansible.module_utils.tfctl_programs import run

#: The first line of a zone in the output of `firewall-cmd --list-all-zones`: "public (default, active)".
ZONE = re.compile(r"^(\S+)(?: \(.*\))?$")
KEYS = {"target": "target", "interfaces": "interfaces", "sources": "sources", "ports": "ports"}


def look() -> dict[str, object] | None:
    """Return the facts as plain JSON, which Firewalld in tfctl/provision/decide/facts.py documents, or None."""
    if not shutil.which("firewall-cmd") or run(["firewall-cmd", "--state"])[0] != 0:
        return None
    code, said = run(["firewall-cmd", "--list-all-zones"])
    return {
        "default": run(["firewall-cmd", "--get-default-zone"])[1].strip(),
        "zones": zones(said if code == 0 else ""),
    }


def zones(text: str) -> list[dict[str, object]]:
    """Parse the zones. Of rich rules, it is only noted whether one accepts something."""
    found: list[dict[str, object]] = []
    for line in text.splitlines():
        if match := ZONE.match(line):
            found.append({"name": match[1], "target": "", "interfaces": [], "sources": [], "ports": [], "rules": False})
        key, _, value = line.strip().partition(": ")
        if found and key in KEYS:
            found[-1][key] = value if key == "target" else value.split()
        elif found and line.strip().startswith("rule ") and line.rstrip().endswith(" accept"):
            found[-1]["rules"] = True
    return found
