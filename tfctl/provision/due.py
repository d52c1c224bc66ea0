"""Decide which roles run on a host: those whose receipt does not hold. Also the digest of what a role depends on.

Ansible plugins import this module, possibly with another Python than tfctl's: standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tfctl.node.receipts import CheckedReceipt

#: A name of a module, plugin or module_util of tfctl, and another role, as they occur in tasks and in Python.
_PLUGIN = re.compile(r"\btfctl_\w+")
_ROLE = re.compile(r"\b(?:include|import)_role:\s+name: (\w+)")


def due(
    digests: Mapping[str, str],
    receipts: Mapping[str, CheckedReceipt],
    *,
    check: bool = False,
    full: bool = False,
    named: Collection[str] = (),
    unskipped: Collection[str] = (),
) -> dict[str, str]:
    """Return the roles that run, each with the reason.

    ``digests``: of the present inputs of each role that the host is to have, in the order of the playbook. ``check``
    and ``full``: run them all. ``named``: the tags of the run; a role that they name runs in any case. ``unskipped``:
    roles that always run.
    """
    asked = "--full" if full else "--check" if check else ""
    found = {}
    for role, digest in digests.items():
        reason = asked or ("--tags" if role in named else "") or _reason(digest, receipts.get(role))
        reason = reason or ("it checks what no receipt describes" if role in unskipped else "")
        if reason:
            found[role] = reason
    return found


def role_digest(data: Path, role: str, inputs: Mapping[str, object]) -> str:
    """Return the digest of a role's files, of the modules and plugins that they use, and of its inputs.

    ``data``: the directory that contains roles/ and playbooks/.
    """
    digest = hashlib.sha256()
    for path in _files(data, role):
        digest.update(f"{path.relative_to(data)}\0{_read(path).sha256}\0".encode())
    digest.update(json.dumps(inputs, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _reason(digest: str, receipt: CheckedReceipt | None) -> str:
    if receipt is None:
        return "it has not run here"
    if not receipt.digest:
        return "its last run did not complete"
    if receipt.digest != digest:
        return "its inputs have changed"
    return "; ".join(receipt.drifts)


class _Source(NamedTuple):
    """A file: its digest, and the names of plugins and of roles in it."""

    sha256: str
    plugins: frozenset[str]
    roles: frozenset[str]


def _files(data: Path, role: str) -> list[Path]:
    """Return the files of a role, of the roles that it includes, and of the plugins that any of these files names."""
    plugins = _plugins(data)
    found: set[Path] = set()
    left = [*_of_role(data, role)]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            source = _read(path)
            left += [plugins[name] for name in source.plugins if name in plugins]
            left += [other for name in source.roles for other in _of_role(data, name)]
    return sorted(found)


@cache
def _plugins(data: Path) -> dict[str, Path]:
    return {path.stem: path for path in (data / "playbooks").glob("*/tfctl_*.py")}


@cache
def _read(path: Path) -> _Source:
    content = path.read_bytes()
    text = content.decode("utf-8", "replace")
    return _Source(
        hashlib.sha256(content).hexdigest(), frozenset(_PLUGIN.findall(text)), frozenset(_ROLE.findall(text))
    )


@cache
def _of_role(data: Path, role: str) -> list[Path]:
    """Return the files of a role, without its page."""
    folder = data / "roles" / role
    return [path for path in folder.rglob("*") if path.is_file() and path != folder / "README.md"]
