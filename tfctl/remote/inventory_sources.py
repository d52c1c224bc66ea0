"""What `-i` may name: files, directories and lists of hosts. Several become one path, whose parts are separated by
commas, as in ANSIBLE_INVENTORY. In it, the paths are absolute, and so differ from the names of hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfctl.remote.ansible_cfg import expanded


def joined(given: Sequence[Path]) -> Path:
    """Return the path for what was given, each as Ansible's `-i` takes it: with a comma, it is a list of hosts, unless
    there is such a file. Unlike Ansible, it is a list of inventories if all its parts exist."""
    return Path(",".join(_absolute(each) for each in given))


def of_paths(given: Iterable[Path]) -> Path:
    """Return the path for several inventories, none of which is a list of hosts."""
    return Path(",".join(_normal(each) for each in given))


def split(inventory: Path) -> list[str]:
    """Return the sources, as Ansible's `-i` takes them: absolute paths, and lists of hosts, which contain a comma."""
    if inventory.exists():
        return [_normal(inventory)]
    found: list[str] = []
    hosts: list[str] = []
    for part in filter(None, map(str.strip, str(inventory).split(","))):
        if part.startswith(("/", "~")) or "," not in str(inventory):
            found += [*_listed(hosts), _normal(Path(part))]
            hosts = []
        else:
            hosts.append(part)
    return [*found, *_listed(hosts)]


def paths(inventory: Path) -> list[Path]:
    """Return those sources that are files or directories."""
    return [Path(each) for each in split(inventory) if not is_host_list(each)]


def is_host_list(source: str) -> bool:
    """Return whether a source, as `split` returns it, is a list of hosts."""
    return not source.startswith("/")


def exists(inventory: Path) -> bool:
    """Return whether all of its files and directories exist."""
    return all(path.exists() for path in paths(inventory))


def base(inventory: Path) -> Path | None:
    """Return the directory of all its files, or None if they are in several or there is none."""
    found = {path if path.is_dir() else path.parent for path in paths(inventory)}
    return found.pop() if len(found) == 1 else None


def _absolute(given: Path) -> str:
    parts = [part for part in map(str.strip, str(given).split(",")) if part]
    if "," not in str(given) or expanded(given).exists():
        return _normal(given)
    if parts and all(expanded(Path(part)).exists() for part in parts):
        return ",".join(_normal(Path(part)) for part in parts)
    return f"{','.join(parts)},"


def _normal(path: Path) -> str:
    return os.path.normpath(expanded(path).absolute())


def _listed(hosts: list[str]) -> list[str]:
    return [f"{','.join(hosts)},"] if hosts else []
