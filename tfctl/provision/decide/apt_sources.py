"""Find a repository among apt's package sources (sources.list(5)), and what they lack of the Debian archives.

Ansible's plugins import this module, possibly with another Python than tfctl's: standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict

from tfctl.provision.decide.fault import Findings
from tfctl.provision.faults import ModuleFault

#: What disables the entries of a stanza, as apt reads it.
_NO = ("no", "false", "without", "off", "disable", "0")
#: A line of a .list file, up to the URI. Options may contain spaces.
_LINE = re.compile(r"\s*deb\s+(?:\[[^]]*\]\s*)?([^\s#]+)")
#: A field of a stanza with the lines that continue it.
_FIELD = re.compile(r"^([\w-]+):(.*(?:\n[ \t].*)*)", re.MULTILINE)
#: The option of a line of a .list file that names the key.
_SIGNED_BY = re.compile(r"\[[^]]*signed-by=([^\s\]]+)")


class Target(NamedTuple):
    """A component of an archive that apt reads. ``entry``: the number of its line in a .list ``file``, or of its stanza
    in a .sources file, from 1."""

    uri: str
    release: str
    component: str
    origin: str
    file: str
    entry: int


class MissingComponents(TypedDict):
    """``content``: entries for the components that apt lacks, as the content of a .list file."""

    content: str
    faults: list[ModuleFault]


def missing_components(
    listed: str, files: Mapping[str, str], components: Sequence[str], own_file: str
) -> MissingComponents:
    """Return an entry for each Debian archive and suite that apt reads without all of these components.

    The entries have the URIs and keys of the existing ones. ``listed``: what `apt-get indextargets` prints, with the
    fields of Target; the origin is empty before the first update. ``files``: the text of the files that it names, since
    apt before 2.9 does not print the keys. ``own_file``: the file for the entries, whose present content is ignored.
    """
    theirs = [target for target in _targets(listed) if target.file != own_file]
    archives = [target for target in theirs if target.component == "main" and target.origin in ("Debian", "")]
    findings, lines = Findings(), ["# Written by tfctl provision."]
    if not archives:
        remedy = f"add one with the components {' '.join(components)} to /etc/apt/sources.list.d"
        findings.refuse("apt has no Debian archive among its package sources", remedy, "failed")
    for archive in archives:
        there = [each.component for each in theirs if each[:2] == archive[:2]]
        lacking = " ".join(name for name in components if name not in there)
        key = _key_of(archive, files[archive.file]) if lacking else ""
        if key and not key.startswith("/"):
            problem = f"The entry in {archive.file} contains its key, so another file cannot refer to it"
            findings.refuse(problem, f"add {lacking} to its components", "failed")
        elif lacking:
            signed = f"[signed-by={','.join(key.split())}] " if key else ""
            lines.append(f"deb {signed}{archive.uri} {archive.release} {lacking}")
    return {"content": "".join(f"{line}\n" for line in dict.fromkeys(lines)), "faults": findings.faults}


def _targets(listed: str) -> Iterator[Target]:
    for row in (line.split("\t") for line in listed.splitlines()):
        if len(row) == 5:
            uri, release, component, origin, place = row
            file, _, entry = place.rpartition(":")
            yield Target(uri, release, component, origin, file, int(entry))


def _key_of(target: Target, text: str) -> str:
    """Return the paths of the keys that the entry in this file names, the key itself if it is in the entry, or ""."""
    if target.file.endswith(".sources"):
        return _stanzas(text)[target.entry - 1].get("signed-by", "")
    match = _SIGNED_BY.search(text.splitlines()[target.entry - 1])
    return match[1] if match else ""


def holder(files: Mapping[str, str], uri: str) -> str:
    """Return the first of these files with an enabled entry for the repository at the URI, or "".

    ``files``: the text of files by path, of which apt reads those whose names end in .list or .sources.
    """
    wanted = uri.rstrip("/")
    read = (name for name in sorted(files) if name.endswith((".list", ".sources")))
    return next((name for name in read if wanted in _enabled(name, files[name])), "")


def _enabled(name: str, text: str) -> list[str]:
    """Return the URIs of the enabled entries of a file, without a slash at the end."""
    uris = _of_stanzas(text) if name.endswith(".sources") else _of_lines(text)
    return [uri.rstrip("/") for uri in uris]


def _of_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            yield match[1]


def _of_stanzas(text: str) -> Iterator[str]:
    for fields in _stanzas(text):
        if fields.get("enabled", "yes").lower() not in _NO and "deb" in fields.get("types", "").split():
            yield from fields.get("uris", "").split()


def _stanzas(text: str) -> list[dict[str, str]]:
    """Return the fields of each stanza of a .sources file, by their names in lower case."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = (_FIELD.findall(stanza) for stanza in re.split(r"\n[ \t]*\n", lines))
    return [{name.lower(): value.strip() for name, value in fields} for fields in found if fields]
