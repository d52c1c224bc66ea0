"""The variables that tfctl gives to its playbooks: the stacks, and directories of this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

import platformdirs

from tfctl.model import stacks
from tfctl.provision import python_tree
from tfctl.remote.ansible_cfg import expanded

#: A template for the address at which other hosts reach a host. Ansible fills it in.
_ADDRESS = "{{ tfctl_address | default(ansible_host) | default(inventory_hostname) }}"

#: A part of a stack as its YAML file has it.
Fields = dict[str, object]


class Environment(TypedDict):
    """``name``: of the environment on a host; ``lock``: the path of its lock file here."""

    name: str
    lock: str


class EditionEntry(TypedDict):
    machines: list[str]
    disk_mb: int
    environments: dict[str, Environment]


class StackEntry(TypedDict):
    """A stack as the role preflight takes it. The YAML files of tfctl/model/stacks document the fields."""

    pythons: list[str]
    imports: dict[str, str]
    gcc: Fields | None
    openmpi: Fields | None
    gpu: Fields | None
    horovod: Fields | None
    editions: dict[str, EditionEntry]


class Variables(TypedDict, total=False):
    """The variables of provision.yml and explain.yml; each playbook says what they are for.

    The last three are the user's options of one run.
    """

    tfctl_stacks: dict[str, StackEntry]
    tfctl_systems: dict[str, Fields]
    tfctl_nvidia: Fields
    tfctl_dial: str
    tfctl_tools: str
    tfctl_cache: str
    tfctl_more_trees: list[str]
    tfctl_built: str
    tfctl_explain: bool
    tfctl_reboot: bool
    tfctl_stack: str


def variables(python_trees: Sequence[Path] = ()) -> Variables:
    """Return the variables that do not depend on a user's options, apart from the CPython trees to offer to hosts.

    Raises BadFile for a tree that cannot be packed.
    """
    trees = [expanded(tree).absolute() for tree in python_trees]
    cache = platformdirs.user_cache_path("tfctl")
    for tree in trees:
        python_tree.pack(tree, cache / "pythons")
    return {
        "tfctl_stacks": catalogue(),
        "tfctl_systems": systems(),
        "tfctl_nvidia": stacks.nvidia().model_dump(),
        "tfctl_dial": _ADDRESS,
        "tfctl_tools": str(stacks.TOOLS),
        "tfctl_cache": str(cache / "wheels"),
        "tfctl_more_trees": list(map(str, trees)),
        "tfctl_built": str(cache / "built"),
    }


def catalogue() -> dict[str, StackEntry]:
    """Return the stacks by name, with the name and lock file of each environment."""
    return {name: _stack(stack) for name, stack in stacks.load().items()}


def systems() -> dict[str, Fields]:
    """Return the supported operating systems by name."""
    return {name: system.model_dump() for name, system in stacks.systems().items()}


def _stack(stack: stacks.Stack) -> StackEntry:
    return {
        "pythons": [*stack.pythons],
        "imports": {**stack.imports},
        "gcc": stack.gcc.model_dump() if stack.gcc else None,
        "openmpi": stack.openmpi.model_dump() if stack.openmpi else None,
        "gpu": stack.gpu.model_dump() if stack.gpu else None,
        "horovod": _horovod(stack),
        "editions": {label: _edition(stack, label) for label in stack.editions},
    }


def _edition(stack: stacks.Stack, label: str) -> EditionEntry:
    edition = stack.editions[label]
    environments: dict[str, Environment] = {
        python: {"name": stack.environment(label, python), "lock": str(stack.lock(label, python))}
        for python in stack.pythons
    }
    return {"machines": [*edition.machines], "disk_mb": edition.disk_mb, "environments": environments}


def _horovod(stack: stacks.Stack) -> Fields | None:
    """Return what the role horovod needs; ``builds``: the lock of the build tools and its digest, by Python version."""
    if stack.horovod is None:
        return None
    locks = {python: stack.build_lock(python) for python in stack.pythons}
    builds = {
        python: {"lock": str(lock), "digest": hashlib.sha256(lock.read_bytes()).hexdigest()}
        for python, lock in locks.items()
    }
    return {**stack.horovod.model_dump(include={"version", "sha256", "gloo"}), "builds": builds}
