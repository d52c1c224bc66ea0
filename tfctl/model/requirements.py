"""The packages that a job needs besides its stack: a requirements file, its locks, and where hosts have them.

    requirements.txt                            written by the user
    requirements.tf2.15-cpu-3.11.lock           written by `tfctl provision`, for one edition and Python of a stack
    /opt/tfctl/requirements/<12 digits>         the packages on a host; the name depends on the lock and the environment

Ansible's plugins import this module: standard library and PyYAML only.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tfctl import files
from tfctl.errors import BadFile
from tfctl.model.stacks import Stack
from tfctl.node import names

_HEADER = re.compile(r"# Written by tfctl provision for the inputs ([0-9a-f]{64})\n")
_INCLUDED = re.compile(r"^\s*(?:-r|-c|--requirements?|--constraints?)[ =]*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """What a requirements file became for one environment of a stack. ``packages``: the lock, without its first line.

    ``path``: the lock file on this machine. ``environment``: its name on hosts.
    """

    path: Path
    environment: str
    packages: str

    @property
    def directory(self) -> str:
        """Where hosts have the packages."""
        asked = f"{self.environment}\0{self.packages}"
        return names.requirements_dir(hashlib.sha256(asked.encode()).hexdigest()[:12])


def lock_path(file: Path, stack: Stack, edition: str, python: str) -> Path:
    """Return where the lock of a requirements file is kept."""
    return file.with_name(f"{file.stem}.{stack.name}-{edition}-{python}.lock")


def find(file: Path, stack: Stack, edition: str, python: str) -> Lock | None:
    """Return the lock of a requirements file, or None if there is none for its present content. Raise BadFile."""
    path = lock_path(file, stack, edition, python)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    header = _HEADER.match(text)
    if header is None or header[1] != _inputs(file, stack.lock(edition, python)):
        return None
    return Lock(path, stack.environment(edition, python), text[header.end() :])


def store(lock: Lock, file: Path, stack: Stack, edition: str, python: str) -> None:
    """Write the lock file."""
    header = f"# Written by tfctl provision for the inputs {_inputs(file, stack.lock(edition, python))}\n"
    files.replace(lock.path, header + lock.packages)


def of_environment(stack: Stack, environment: str) -> tuple[str, str] | None:
    """Return the edition and the Python of an environment, by its name on a host, or None for one of another lock."""
    pairs = ((edition, python) for edition in stack.editions for python in stack.pythons)
    return next((pair for pair in pairs if stack.environment(*pair) == environment), None)


def _inputs(file: Path, lock: Path) -> str:
    """Return a digest of the requirements file, the files that it includes, and the lock of the stack."""
    total = hashlib.sha256(lock.read_bytes())
    waiting = [file]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(f"{path}: cannot be read: {error}") from None
        total.update(f"\0{text}".encode())
        waiting += [path.parent / name for name in _INCLUDED.findall(text) if "://" not in name]
    return total.hexdigest()
