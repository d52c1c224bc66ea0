"""Find the packages of a job's requirements file on its hosts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tfctl.errors import PreflightFailed
from tfctl.model import requirements, stacks
from tfctl.model.job import Layout
from tfctl.model.stacks import Stack
from tfctl.node import wire
from tfctl.wording import Lines

#: The directory of the packages by host and stack.
Directories = dict[tuple[str, str], str]


def directories(layout: Layout, file: Path, hellos: Mapping[str, wire.Hello]) -> Directories:
    """Return the directory of the file's packages for each host and stack that the job uses.

    Raise PreflightFailed, with the command that installs them, if a host lacks them. If a stack is missing, the host
    itself refuses the start.
    """
    known = stacks.load(tuple(dict.fromkeys(path for host in layout.hosts for path in host.stack_dirs)))
    found: Directories = {}
    problems: dict[str, dict[str, None]] = {}
    for host, stack in dict.fromkeys((slot.host.name, slot.stack) for slot in layout.slots):
        path, problem = _on_host(file, known[stack], hellos[host])
        if path:
            found[host, stack] = path
        if problem:
            problems.setdefault(problem, {})[host] = None
    if problems:
        raise PreflightFailed(
            Lines(*(f"{', '.join(hosts)}: {problem}" for problem, hosts in problems.items())),
            f"install them: {_command(layout, file)}",
        )
    return found


def _on_host(file: Path, stack: Stack, hello: wire.Hello) -> tuple[str, str]:
    """Return the directory on a host, and why the job cannot use it; "" for what does not apply."""
    if hello.stacks is None:
        return "", "the node part there is older than this tfctl"
    if stack.name not in hello.stacks:
        return "", ""
    pair = requirements.of_environment(stack, hello.stacks[stack.name])
    if pair is None:
        return "", f"stack {stack.name} there differs from that of this tfctl, for which {file.name} was resolved"
    lock = requirements.find(file, stack, *pair)
    if lock is None:
        edition, python = pair
        return "", f"{file.name} has no lock file for its present content and {stack.name} ({edition}, Python {python})"
    if Path(lock.directory).name not in hello.requirements:
        return "", f"the packages of {file.name} are not installed for stack {stack.name}"
    return lock.directory, ""


def _command(layout: Layout, file: Path) -> str:
    own = {slot.stack for slot in layout.slots if slot.stack != slot.host.stack}
    words = ["tfctl", "provision", layout.inventory, "--requirements", str(file)]
    return shlex.join([*words, *(["--stack", next(iter(own))] if len(own) == 1 else [])])
