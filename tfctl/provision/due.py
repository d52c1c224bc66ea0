"""Decide whether a host needs its roles: not if the receipt of each one holds.

Ansible plugins import this module, possibly with another Python than tfctl's: standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import tfctl
from tfctl.node.receipts import CheckedReceipt
from tfctl.provision import node_part

#: The parts of provisioning that are entry points of one role. Each other part is a role.
LIBRARIES = ("cuda", "cudnn", "nccl")
#: The parts that need a package source: their tags also run the role that adds it.
_FROM_NVIDIA = {"nvidia_repo", *LIBRARIES, "nvidia_driver"}
#: Options that say what has to be done in this run. They differ after it, so digests leave them out.
MOMENTARY = {
    "nvidia_driver_packages", "nvidia_driver_first_packages", "nvidia_driver_module_stream", "nvidia_driver_branch",
    "nvidia_driver_restore", "nvidia_driver_build_module", "nvidia_driver_upgrade",
}  # fmt: skip


class Wanted(NamedTuple):
    """A part that a host is to have: the values of its role's options, and what it manages (Manages in receipts.py)."""

    inputs: Mapping[str, object]
    manages: Mapping[str, object]


class ChosenRole(TypedDict):
    """``entry``: the tasks of the role that run. ``reason``: why. ``digest``: of its code and inputs."""

    role: str
    entry: str
    reason: str
    digest: str
    manages: Mapping[str, object]


class Chosen(TypedDict):
    """``roles``: what runs, by part, in the order of ``wanted``. ``drifts``: what has changed on the host since the
    roles ran, in sentences."""

    roles: dict[str, ChosenRole]
    drifts: list[str]


def choose(
    code: str,
    wanted: Mapping[str, Wanted],
    receipts: Mapping[str, CheckedReceipt],
    *,
    check: bool = False,
    full: bool = False,
    tags: Collection[str] = ("all",),
    skipped: Collection[str] = (),
    live: Collection[str] = (),
) -> Chosen:
    """Return what runs on a host: all that it is to have, or nothing but ``live`` if all receipts hold.

    ``code``: from `code_digest`. ``live``: parts that check what no receipt describes, and run each time. ``check`` and
    ``full``: run all. ``tags`` and ``skipped``: those of the run. Parts that they name run in any case.
    """
    digests = {part: digest_of(code, inputs) for part, (inputs, _) in wanted.items()}
    named = "all" not in tags
    reason = "--full" if full else "--check" if check else "--tags" if named else ""
    reason = reason or _reason({part: digest for part, digest in digests.items() if part not in live}, receipts)
    roles: dict[str, ChosenRole] = {}
    for part, (_, manages) in wanted.items():
        own = _FROM_NVIDIA if part == "nvidia_repo" else {part}
        chosen = (not named or own & {*tags}) and part not in skipped
        if chosen and (reason or part in live):
            why = reason or "it checks what no receipt describes"
            role, entry = role_of(part)
            roles[part] = {"role": role, "entry": entry, "reason": why, "digest": digests[part], "manages": manages}
    return {"roles": roles, "drifts": [line for part in wanted if part in receipts for line in receipts[part].drifts]}


def role_of(part: str) -> tuple[str, str]:
    """Return the role of a part of provisioning, and the name of its tasks."""
    return ("nvidia_library", part) if part in LIBRARIES else (part, "main")


def code_digest(collection: Path) -> str:
    """Return a digest of all that roles do: their files, the plugins, the decisions and the node part.

    ``collection``: the directory with roles/ and plugins/.
    """
    package = Path(tfctl.__file__).parent
    lines = [*_lines(collection, ("roles", "plugins")), *_lines(package, ("provision/decide",)), node_part.version()]
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()


def digest_of(code: str, inputs: Mapping[str, object]) -> str:
    """Return the digest of the code and of a role's inputs on a host."""
    lasting = {name: value for name, value in inputs.items() if name not in MOMENTARY}
    return hashlib.sha256(f"{code}\0{json.dumps(lasting, sort_keys=True, default=str)}".encode()).hexdigest()


def _lines(base: Path, folders: Iterable[str]) -> list[str]:
    """Return the name and the digest of each file, except the pages of roles."""
    files = sorted(path for folder in folders for path in (base / folder).rglob("*") if path.is_file())
    return [
        f"{path.relative_to(base)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
        if path.suffix not in (".md", ".pyc")
    ]


def _reason(digests: Mapping[str, str], receipts: Mapping[str, CheckedReceipt]) -> str:
    """Return why the roles run, or "" if all receipts hold."""
    for part, digest in digests.items():
        receipt = receipts.get(part)
        if receipt is None:
            return f"{part} has not run here"
        if not receipt.digest:
            return f"the last run of {part} did not complete"
        if receipt.digest != digest:
            return f"the inputs of {part} have changed"
        if receipt.drifts:
            return "; ".join(receipt.drifts)
    return ""
