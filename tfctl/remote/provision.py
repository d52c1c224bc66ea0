"""What `tfctl provision` gives its playbook: the node part, the stacks, and what the user asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from tfctl.errors import TfctlError, Unreachable, UsageError
from tfctl.model import stacks
from tfctl.remote import ansible, python_tree
from tfctl.remote.ansible_cfg import expanded
from tfctl.remote.node_part import node_part
from tfctl.remote.parts import TAGS
from tfctl.remote.report import Event, Report

#: Of any host, where the others reach it; Ansible makes an address of it.
_DIAL = "{{ tfctl_address | default(ansible_host) | default(inventory_hostname) }}"


@dataclass(frozen=True)
class Request:
    """``stack`` None: what the inventory says of each host. ``reboot``: hosts whose driver asks for it, in batches.

    ``python_trees``: CPython trees of this machine, for hosts that have no Python their stack takes.
    ``rollback``: nothing is brought; each host's stack becomes again what it was before.
    """

    inventory: Path
    stack: str | None = None
    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    reboot: bool = False
    python_trees: tuple[Path, ...] = ()
    rollback: bool = False


def run(request: Request, listen: Callable[[Event], None]) -> Report:
    """Make the hosts match, or with ``check`` say what would change. A host's failure is in the report.

    Raises BadFile for an unknown stack, UsageError for an unknown tag, and what ansible.run raises.
    """
    if request.stack not in (None, stacks.NONE):
        stacks.get(request.stack)
    for tag in request.tags:
        if tag not in TAGS:
            raise UsageError(f"--tags {tag}: there is no such part", f"there are: {', '.join(TAGS)}")
    if request.rollback and (request.tags or request.reboot or request.python_trees):
        raise UsageError("--rollback goes with --stack, --limit, --check and --diff alone")
    variables = {} if request.rollback else given(request)
    if request.stack:
        variables["tfctl_stack"] = request.stack
    playbook = "rollback" if request.rollback else "provision"
    play = ansible.Play(
        playbook, request.inventory, request.limit, request.tags, request.check, request.diff, variables
    )
    return ansible.run(play, listen)


def preflight(request: Request, listen: Callable[[Event], None]) -> Report:
    """Read the hosts, change nothing: all that stands against what `run` would make of them is in the report.

    Raises as `run` does.
    """
    return run(replace(request, tags=("preflight",), check=True), listen)


def explain(inventory: Path, host: str, python_trees: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """What each stack would be on one host, which is looked at once: see playbooks/module_utils/tfctl_explain.py.

    Raises UsageError for a pattern of several hosts, Unreachable or TfctlError for one that cannot be looked at, and
    what ansible.run raises.
    """
    variables = {**given(Request(inventory, python_trees=python_trees)), "tfctl_explain": True}
    (found, *more) = ansible.run(ansible.Play("explain", inventory, host, variables=variables), lambda _: None).hosts
    if more:
        raise UsageError(f"--host {host} means several hosts", "name one")
    if found.explained is None:
        kind = Unreachable if found.unreachable else TfctlError
        raise kind(f"{found.host}: {found.reason}", found.remedy)
    return found.explained


def given(request: Request) -> dict[str, Any]:
    """What the playbook provision.yml takes from tfctl alone."""
    trees = [expanded(tree).absolute() for tree in request.python_trees]
    for tree in trees:
        python_tree.pack(tree, platformdirs.user_cache_path("tfctl") / "pythons")
    variables: dict[str, Any] = {
        "tfctl_node": node_part(),
        "tfctl_stacks": catalogue(),
        "tfctl_systems": systems(),
        "tfctl_nvidia": stacks.nvidia().model_dump(),
        "tfctl_dial": _DIAL,
        "tfctl_tools": str(stacks.TOOLS),
        "tfctl_cache": str(platformdirs.user_cache_path("tfctl") / "wheels"),
        "tfctl_more_trees": list(map(str, trees)),
        "tfctl_built": str(platformdirs.user_cache_path("tfctl") / "built"),
    }
    return {**variables, "tfctl_reboot": True} if request.reboot else variables


def catalogue() -> dict[str, Any]:
    """The stacks as the role preflight takes them, each environment with its name and its lock on this machine."""
    return {
        name: {
            "pythons": stack.pythons,
            "imports": stack.imports,
            "gcc": stack.gcc.model_dump() if stack.gcc else None,
            "openmpi": stack.openmpi.model_dump() if stack.openmpi else None,
            "gpu": stack.gpu.model_dump() if stack.gpu else None,
            "horovod": horovod(stack),
            "editions": {
                label: {
                    "machines": edition.machines,
                    "disk_mb": edition.disk_mb,
                    "environments": {
                        python: {"name": stack.environment(label, python), "lock": str(stack.lock(label, python))}
                        for python in stack.pythons
                    },
                }
                for label, edition in stack.editions.items()
            },
        }
        for name, stack in stacks.load().items()
    }


def horovod(stack: stacks.Stack) -> dict[str, Any] | None:
    """What the role needs of it; ``builds``, by Python: the lock of what builds it, and its digest."""
    if stack.horovod is None:
        return None
    locks = {python: stack.build_lock(python) for python in stack.pythons}
    builds = {
        python: {"lock": str(lock), "digest": hashlib.sha256(lock.read_bytes()).hexdigest()}
        for python, lock in locks.items()
    }
    return {**stack.horovod.model_dump(include={"version", "sha256", "gloo"}), "builds": builds}


def systems() -> dict[str, Any]:
    return {name: system.model_dump() for name, system in stacks.systems().items()}
