"""Decide which roles run on a host: those whose receipt does not hold. Also the digest of what a role depends on.

Ansible plugins import this module, possibly with another Python than tfctl's: standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from tfctl.node.receipts import CheckedReceipt

#: The files with each name of a module, plugin or module_util of tfctl. A module and its module_util may share one.
_Plugins = Mapping[str, list[Path]]
#: A name of a module, plugin or module_util of the collection, and another role, as they occur in tasks and in Python.
_PLUGIN = re.compile(r"\btfctl\.cluster\.(?:plugins\.module_utils\.)?(\w+)")
_UTILS = re.compile(r"^from ansible_collections\.tfctl\.cluster\.plugins\.module_utils import (.+)$", re.MULTILINE)
_ROLE = re.compile(r"\b(?:include|import)_role:\s+name: tfctl\.cluster\.(\w+)")
#: Roles that add files to what another role installs. When that role runs, it may install everything anew.
_ADDS_TO = {"openmpi": "tensorflow", "horovod": "tensorflow"}
#: The package tfctl, and the modules of it that a plugin imports.
_PACKAGE = Path(__file__).resolve().parents[1]
_IMPORT = re.compile(r"^from tfctl\.([\w.]+) import (.+)$", re.MULTILINE)


class Chosen(TypedDict):
    """``roles``: those that run, each with its reason, the digest of its inputs and what it manages. ``drifts``: what
    has changed on the host since the roles ran, in sentences."""

    roles: dict[str, dict[str, object]]
    drifts: list[str]


def choose(
    code: Mapping[str, str],
    wanted: Mapping[str, tuple[Mapping[str, object], Mapping[str, object]]],
    receipts: Mapping[str, CheckedReceipt],
    *,
    check: bool,
    full: bool,
    named: Collection[str],
    unskipped: Collection[str],
) -> Chosen:
    """Return which roles run on a host. ``code``: digests of their code. ``wanted``: the inputs of each role that the
    host is to have, and what it manages. See `due` for the rest."""
    digests = {role: digest_of(code[role], inputs) for role, (inputs, _) in wanted.items()}
    reasons = due(digests, receipts, check=check, full=full, named=named, unskipped=unskipped)
    roles: dict[str, dict[str, object]] = {
        role: {"reason": why, "digest": digests[role], "manages": wanted[role][1]} for role, why in reasons.items()
    }
    return {"roles": roles, "drifts": [line for role in wanted if role in receipts for line in receipts[role].drifts]}


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
    found: dict[str, str] = {}
    for role, digest in digests.items():
        reason = asked or ("--tags" if role in named else "") or _reason(digest, receipts.get(role))
        reason = reason or ("it checks what no receipt describes" if role in unskipped else "")
        reason = reason or (f"it adds files to what {_ADDS_TO[role]} installs" if _ADDS_TO.get(role) in found else "")
        if reason:
            found[role] = reason
    return found


def code_digests(collection: Path) -> dict[str, str]:
    """Return a digest of each role's files and of the modules and plugins that they use.

    ``collection``: the directory with roles/ and plugins/.
    """
    plugins: dict[str, list[Path]] = {}
    for path in collection.glob("plugins/*/*.py"):
        plugins.setdefault(path.stem, []).append(path)
    read = cache(_read)
    found = {}
    for role in (path.name for path in (collection / "roles").iterdir()):
        files = _files(collection, role, plugins, read)
        lines = [f"{_name(path, collection)}\0{read(path).sha256}" for path in files]
        found[role] = hashlib.sha256("\0".join(lines).encode()).hexdigest()
    return found


def digest_of(code: str, inputs: Mapping[str, object]) -> str:
    """Return the digest of a role's code and of its inputs on a host."""
    return hashlib.sha256(f"{code}\0{json.dumps(inputs, sort_keys=True, default=str)}".encode()).hexdigest()


def _reason(digest: str, receipt: CheckedReceipt | None) -> str:
    if receipt is None:
        return "it has not run here"
    if not receipt.digest:
        return "its last run did not complete"
    if receipt.digest != digest:
        return "its inputs have changed"
    return "; ".join(receipt.drifts)


class _Source(NamedTuple):
    """A file: its digest, the names of plugins and of roles in it, and the modules of tfctl that it imports."""

    sha256: str
    plugins: frozenset[str]
    roles: frozenset[str]
    imports: tuple[Path, ...]


def _files(collection: Path, role: str, plugins: _Plugins, read: Callable[[Path], _Source]) -> list[Path]:
    """Return the files of a role, of the roles that it includes, and of the plugins that any of these files names.

    Also the modules of tfctl that plugins import themselves: what these import would make each change run all roles.
    """
    found: set[Path] = set()
    left = _of_role(collection, role)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            source = read(path)
            left += [file for name in source.plugins for file in plugins.get(name, ())]
            left += [file for name in source.roles for file in _of_role(collection, name)]
            if path.parent.name in ("action", "filter", "lookup", "callback"):
                left += source.imports
    return sorted(found)


def _read(path: Path) -> _Source:
    content = path.read_bytes()
    text = content.decode("utf-8", "replace")
    return _Source(
        hashlib.sha256(content).hexdigest(),
        frozenset([*_PLUGIN.findall(text), *(each for names in _UTILS.findall(text) for each in names.split(", "))]),
        frozenset(_ROLE.findall(text)),
        tuple(_imported(text)),
    )


def _imported(text: str) -> Iterator[Path]:
    for module, names in _IMPORT.findall(text):
        place = _PACKAGE.joinpath(*module.split("."))
        files = (place.with_suffix(".py"), *(place / f"{name.strip()}.py" for name in names.split(",")))
        yield from (file for file in files if file.is_file())


def _name(path: Path, collection: Path) -> Path:
    # An installed package contains the collection.
    return path.relative_to(collection if path.is_relative_to(collection) else _PACKAGE)


def _of_role(collection: Path, role: str) -> list[Path]:
    """Return the files of a role, without its page."""
    folder = collection / "roles" / role
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return [path for path in files if path != folder / "README.md"]
