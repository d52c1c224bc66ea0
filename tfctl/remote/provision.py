"""Run the provisioning playbooks, with the node part, the stacks and the user's options as their variables."""

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

#: A template for the address at which other hosts reach a host. Ansible fills it in.
_DIAL = "{{ tfctl_address | default(ansible_host) | default(inventory_hostname) }}"


@dataclass(frozen=True)
class Request:
    """``stack`` None: each host's stack of the inventory. ``reboot``: reboot hosts whose driver needs it, in batches.

    ``python_trees``: CPython trees of this machine, for hosts without a Python that their stack accepts.
    ``rollback``: install nothing, but switch each host's stack back to its previous environment.
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
    """Provision the hosts, or with ``check`` report what would change. The report includes failures of hosts.

    Raises BadFile for an unknown stack, UsageError for an unknown tag, and whatever ansible.run raises.
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
    """Inspect the hosts without changing them, and report everything that would make `run` fail.

    Raises what `run` raises.
    """
    return run(replace(request, tags=("preflight",), check=True), listen)


def explain(inventory: Path, host: str, python_trees: tuple[Path, ...] = ()) -> Mapping[str, Any]:
    """Inspect one host and return what each stack would be on it: see playbooks/module_utils/tfctl_explain.py.

    Raises UsageError for a pattern that matches several hosts, Unreachable or TfctlError for a host that cannot be
    inspected, and whatever ansible.run raises.
    """
    variables = {**given(Request(inventory, python_trees=python_trees)), "tfctl_explain": True}
    (found, *more) = ansible.run(ansible.Play("explain", inventory, host, variables=variables), lambda _: None).hosts
    if more:
        raise UsageError(f"--host {host} matches several hosts", "name one")
    if found.explained is None:
        kind = Unreachable if found.unreachable else TfctlError
        raise kind(f"{found.host}: {found.reason}", found.remedy)
    return found.explained


def given(request: Request) -> dict[str, Any]:
    """Return the variables that only tfctl gives to the playbook provision.yml."""
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
    """Return the stacks in the form that the role preflight takes, with each environment's name and lock file here."""
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
    """Return what the role horovod needs; ``builds``: the lock of the build tools and its digest, by Python version."""
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
