"""Resolve the requirements files of jobs for the stacks of hosts."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TypedDict

from tfctl.errors import BadFile
from tfctl.model import requirements
from tfctl.model.requirements import Lock
from tfctl.model.stacks import Stack
from tfctl.provision import locks
from tfctl.provision.control import cache
from tfctl.provision.decide.decision import ChosenStack


class LockedPackages(TypedDict):
    """What the role requirements installs: the lock file, its text, and the directory on the host."""

    lock: str
    text: str
    path: str


def packages(file: Path, stack: Stack, chosen: ChosenStack, machine: str, write: bool, index: str) -> LockedPackages:
    """Return what a host with this stack gets. Unless ``write``, a new lock is not written. ``index``: the package
    index, or "" for that of the user's settings.

    Raise BadFile if there are no wheels that fit the stack, and TfctlError if uv fails.
    """
    lock = locked(file, stack, chosen.edition, chosen.python.version, machine, write, index)
    return {"lock": str(lock.path), "text": lock.packages, "path": lock.directory}


def locked(file: Path, stack: Stack, edition: str, python: str, machine: str, write: bool, index: str) -> Lock:
    """Return the lock of a requirements file. Resolve the file again only if it or the stack has changed."""
    guard = cache() / "requirements.flock"
    guard.parent.mkdir(parents=True, exist_ok=True)
    with guard.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # this is called for every host of a run
        found = requirements.find(file, stack, edition, python)
        if found:
            return found
        path = requirements.lock_path(file, stack, edition, python)
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        try:
            text = locks.resolved_beside(file, stack.lock(edition, python), python, machine, before, index)
        except BadFile as error:
            raise BadFile(
                f"{file} does not fit the stack {stack.name} (edition {edition}, Python {python}): " + error.message,
                error.remedy or "change the versions in it, or use another stack",
            ) from None
        lock = Lock(path, stack.environment(edition, python), text)
        if write:
            try:
                requirements.store(lock, file, stack, edition, python)
            except OSError as error:
                raise BadFile(f"{path}: cannot be written: {error.strerror}") from None
        return lock
