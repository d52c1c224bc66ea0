"""Add components of the Debian archive that apt already uses, with the same URLs and keys."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_packages import APT, call

FORMAT = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)\t$(SOURCESENTRY)"


def lines_for(components, own_file, update):
    """Return the lines that ``own_file`` needs so that apt reads these components. Raises Failed, OSError.

    ``update``: whether apt may update its package lists, which a fresh image requires.
    """
    found = targets()
    if not found and update:
        call([*APT, "update"], "apt could not read its package sources")
        found = targets()
    return entries(found, components, own_file)


def targets():
    """Return apt's package sources: [{"uri", "release", "component", "origin", "signed_by", "file"}]."""
    names = ("uri", "release", "component", "origin", "file")
    said = call(
        ["apt-get", "indextargets", "--format", FORMAT, "Identifier: Packages"], "apt does not tell its sources"
    )
    found = [dict(zip(names, line.split("\t"))) for line in said.splitlines() if line.count("\t") == len(names) - 1]
    for row in found:
        row["file"], _, line = row["file"].rpartition(":")
        row["signed_by"] = signed_by(row["file"], int(line))
    return found


def signed_by(name, number):
    """Return the key of the entry that begins on that line, since apt before 2.9 does not report it. Raises OSError."""
    lines = Path(name).read_text(encoding="utf-8").splitlines()[number - 1 :]
    if not name.endswith(".sources"):
        match = re.search(r"\[[^]]*signed-by=([^\s\]]+)", lines[0])
        return match[1] if match else ""
    for line in lines:
        if not line.strip():
            break
        if line.lower().startswith("signed-by:"):
            return line.partition(":")[2].strip() or "the entry itself"
    return ""


def entries(found, components, own_file):
    """Return a line for each archive and suite. Raises Failed if apt has no Debian archive."""
    theirs = [row for row in found if row["file"] != own_file]
    mains = [row for row in theirs if row["component"] == "main" and row["origin"] in ("Debian", "")]
    if not mains:
        helps = f"give it one that has {' '.join(components)}, in /etc/apt/sources.list.d"
        raise Failed("apt has no Debian archive among its sources", helps)
    lines = ["# Written by tfctl provision."]
    for row in mains:
        same = (row["uri"], row["release"])
        there = [each["component"] for each in theirs if (each["uri"], each["release"]) == same]
        lacking = " ".join(name for name in components if name not in there)
        if lacking and row["signed_by"] and not row["signed_by"].startswith("/"):
            raise Failed(f"{row['file']} holds its key itself", f"add {lacking} to its components")
        signed = f"[signed-by={row['signed_by']}] " if row["signed_by"] else ""
        if lacking:
            lines.append(f"deb {signed}{row['uri']} {row['release']} {lacking}")
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))
