"""Find a repository among the files of apt's package sources (sources.list(5)).

Ansible's plugins import this module, possibly with another Python than tfctl's: standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: What disables the entries of a stanza, as apt reads it.
_NO = ("no", "false", "without", "off", "disable", "0")
#: A line of a .list file, up to the URI. Options may contain spaces.
_LINE = re.compile(r"\s*deb\s+(?:\[[^]]*\]\s*)?([^\s#]+)")
#: A field of a stanza with the lines that continue it.
_FIELD = re.compile(r"^([\w-]+):(.*(?:\n[ \t].*)*)", re.MULTILINE)


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
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n[ \t]*\n", lines):
        fields = {name.lower(): value.strip() for name, value in _FIELD.findall(stanza)}
        if fields.get("enabled", "yes").lower() not in _NO and "deb" in fields.get("types", "").split():
            yield from fields.get("uris", "").split()
