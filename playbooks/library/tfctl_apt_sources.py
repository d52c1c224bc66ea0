#!/usr/bin/python
"""Find the components that apt lacks of the Debian archives among its package sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_install import ModuleFailed, finish
from ansible.module_utils.tfctl_transaction import APT, call

DOCUMENTATION = """
module: tfctl_apt_sources
short_description: Find missing components of the Debian archive
description:
  - Returns an entry for each Debian archive that apt reads, with those of O(components) that it lacks, and with the
    same URL and key. The module ansible.builtin.apt_repository needs to be told both.
  - Changes nothing but the package lists, which it updates on an image that has none.
options:
  components: {type: list, elements: str, required: true, description: "Components, such as C(non-free)."}
  file: {type: path, required: true, description: The file for the entries. Its present content is ignored.}
"""

RETURN = """
content: {type: str, returned: success, description: What the file has to contain.}
"""

FORMAT = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)\t$(SOURCESENTRY)"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "str", "required": True},
            "file": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    components, file = asked["components"], asked["file"]
    finish(module, lambda: {"content": lines_for(components, file, update=not module.check_mode)})


class AptComponent(NamedTuple):
    """A component of an archive among apt's package sources. ``origin`` is empty before the first update."""

    uri: str
    release: str
    component: str
    origin: str
    file: str
    signed_by: str


def lines_for(components: Sequence[str], own_file: str, update: bool) -> str:
    """Return the lines that ``own_file`` needs so that apt reads these components. Raises ModuleFailed, OSError.

    ``update``: whether apt may update its package lists, which a fresh image requires.
    """
    found = targets()
    if not found and update:
        call([*APT, "update"], "apt cannot read its package sources")
        found = targets()
    return entries(found, components, own_file)


def targets() -> list[AptComponent]:
    """Return apt's package sources. Raises ModuleFailed, OSError."""
    words = ["apt-get", "indextargets", "--format", FORMAT, "Identifier: Packages"]
    rows = [line.split("\t") for line in call(words, "apt cannot list its package sources").splitlines()]
    found = []
    for uri, release, component, origin, place in (row for row in rows if len(row) == 5):
        file, _, line = place.rpartition(":")
        found.append(AptComponent(uri, release, component, origin, file, signed_by(file, int(line))))
    return found


def signed_by(name: str, number: int) -> str:
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


def entries(found: Sequence[AptComponent], components: Sequence[str], own_file: str) -> str:
    """Return a line for each archive and suite. Raises ModuleFailed if apt has no Debian archive."""
    theirs = [row for row in found if row.file != own_file]
    mains = [row for row in theirs if row.component == "main" and row.origin in ("Debian", "")]
    if not mains:
        remedy = f"add one with the components {' '.join(components)} to /etc/apt/sources.list.d"
        raise ModuleFailed("apt has no Debian archive among its package sources", remedy)
    lines = ["# Written by tfctl provision."]
    for row in mains:
        there = [each.component for each in theirs if (each.uri, each.release) == (row.uri, row.release)]
        lacking = " ".join(name for name in components if name not in there)
        if lacking and row.signed_by and not row.signed_by.startswith("/"):
            raise ModuleFailed(
                f"The entry in {row.file} contains its key, so another file cannot refer to it",
                f"add {lacking} to its components",
            )
        signed = f"[signed-by={row.signed_by}] " if row.signed_by else ""
        if lacking:
            lines.append(f"deb {signed}{row.uri} {row.release} {lacking}")
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


if __name__ == "__main__":
    main()
