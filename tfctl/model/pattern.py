"""Ansible's host patterns over an inventory (Ansible's guide, Patterns: targeting hosts and groups)."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from tfctl.errors import BadFile
from tfctl.model.host import Host, Inventory
from tfctl.node.regex import compiled

_PART = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<first>-?\d+)?(?P<range>[:-])?(?P<last>-?\d+)?\])?")


def select(inventory: Inventory, pattern: str) -> tuple[Host, ...]:
    """Return the matching hosts in inventory order. Raise BadFile if there are none.

    A part is ``all``, a group, a host, ``web*``, ``~regex``, ``gpu[0]`` or ``gpu[1:]``. Parts are joined by ``:`` or
    ``,``, and may begin with ``&`` (intersection) or ``!`` (exclusion).
    """
    wanted: set[str] = set()
    parts = _parts(pattern)
    # Ansible's order: first additions, then intersections, then exclusions.
    for part in sorted(parts, key=lambda part: "&!".find(part[0]) + 1):
        names = set(_part(inventory, part.lstrip("&!"), pattern))
        if part.startswith("&"):
            wanted &= names
        elif part.startswith("!"):
            wanted -= names
        else:
            wanted |= names
    if parts and all(part[0] in "&!" for part in parts):
        raise BadFile(f"{pattern!r} only excludes hosts", "begin with the hosts to exclude them from: all:" + pattern)
    found = tuple(host for host in inventory.hosts if host.name in wanted)
    if not found:
        groups = ", ".join(inventory.groups) or "none"
        raise BadFile(f"{pattern!r} matches no host of {inventory.source}", f"groups there: {groups}")
    return found


def unmatched(inventory: Inventory, pattern: str) -> list[str]:
    """Return the parts of a pattern that match no host. `select` ignores them, as Ansible does."""
    return [part for part in _parts(pattern) if not _part(inventory, part.lstrip("&!"), pattern)]


def _parts(pattern: str) -> list[str]:
    return [part.strip() for part in re.split(r",|:(?![^\[]*\])", pattern) if part.strip()]


def _part(inventory: Inventory, text: str, pattern: str) -> list[str]:
    if text.startswith("~"):
        try:
            rule = compiled(text[1:])
        except ValueError as error:
            raise BadFile(f"{pattern!r}: {text[1:]!r} is not a regular expression: {error}") from None
        return _named(inventory, lambda name: rule.match(name) is not None)
    match = _PART.fullmatch(text)
    if not match:
        raise BadFile(f"{pattern!r} is not a host pattern", "write a host, a group, `all`, or `gpu[0]`, `gpu[1:]`")
    names = _named(inventory, lambda name: fnmatchcase(name, match["name"]))
    if text.endswith("]"):
        return _cut(names, match)
    return names


def _named(inventory: Inventory, fits: Callable[[str], bool]) -> list[str]:
    hosts = [host.name for host in inventory.hosts]
    if fits("all"):
        return hosts
    found = [name for group, members in inventory.groups.items() if fits(group) for name in members]
    return list(dict.fromkeys([*found, *(name for name in hosts if fits(name))]))


def _cut(names: list[str], match: re.Match[str]) -> list[str]:
    """Apply ``[i]``, or ``[a:b]`` with both ends inclusive, as Ansible counts."""
    first, last = (int(match[end]) if match[end] else None for end in ("first", "last"))
    if not match["range"]:
        return names[first : first + 1 or None] if first is not None else []
    return names[first or 0 : None if last is None or last == -1 else last + 1]
