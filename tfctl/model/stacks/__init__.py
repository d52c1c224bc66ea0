"""The stacks: exact versions, and the hosts they fit. Each has a YAML file, checked by a schema, and its locks."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml

from tfctl import schema
from tfctl.errors import BadFile
from tfctl.model.stacks.nvidia import Gpu, Nvidia
from tfctl.model.stacks.values import Https, Known, Python, Sha256, Version

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
#: The lock of the installer itself.
TOOLS = LOCKS / "uv.txt"
#: No stack: the host's own programs.
NONE = "none"

#: libyaml is ten times as fast as Python; a PyYAML that was built without it has only the latter.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")


@dataclass(frozen=True)
class Edition:
    """A stack's variant for one kind of host. ``disk_mb`` is the peak disk space that installing it takes.

    ``without``: packages that must not be installed, although others depend on them. ``substitutes``: what replaces a
    component of the stack here, by its key in the stack.
    """

    machines: tuple[str, ...]
    requirements: tuple[str, ...]
    disk_mb: int
    without: tuple[str, ...] = ()
    substitutes: Mapping[Literal["gcc", "openmpi", "horovod"], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tested:
    """What was actually tested, and where."""

    system: str
    python: Python
    edition: str
    what: str


@dataclass(frozen=True)
class Gcc:
    """``min``: required by TensorFlow's headers and Horovod's own check.

    ``max``: the last that CUDA's nvcc accepts; None for a Horovod that compiles nothing with nvcc.
    """

    min: int
    max: int | None = None


@dataclass(frozen=True)
class Openmpi(Known):
    """The source tarball, for hosts whose distribution's own Open MPI will not do."""

    version: Version
    url: Https
    sha256: Sha256


@dataclass(frozen=True)
class Horovod(Known):
    """Horovod's source in the package index, which has no wheels. ``build``: what builds it, besides a compiler.

    The packages it imports are in the stack's own requirements, so that only its wheel is added.
    """

    version: Version
    sha256: Sha256
    gloo: bool
    build: tuple[str, ...]


@dataclass(frozen=True)
class Stack:
    """``pythons`` in order of preference. ``imports``: modules that must import, with the versions they must have.

    ``horovod`` is None if no release builds for the stack. ``sources`` are the requirements without a wheel; a lock
    lists them in its first line, `--no-binary=NAME,NAME`, and has the hash of each one's source.
    """

    name: Annotated[str, re.compile(r"^[a-z][a-z0-9.]{0,19}$")]
    title: str
    tensorflow: Version
    pythons: tuple[Python, ...]
    requirements: tuple[str, ...]
    as_of: date
    imports: Mapping[str, Version]
    editions: Mapping[str, Edition]
    tested: tuple[Tested, ...]
    sources: tuple[str, ...] = ()
    gcc: Gcc | None = None
    openmpi: Openmpi | None = None
    horovod: Horovod | None = None
    gpu: Gpu | None = None

    def release(self, module: str) -> tuple[int, ...]:
        """Return the numbers of a module's version in ``imports``, or of TensorFlow's; (0,) if it is not there."""
        version = self.tensorflow if module == "tensorflow" else self.imports.get(module, "0")
        return tuple(int(part) for part in version.split("."))

    def lock(self, edition: str, python: str) -> Path:
        """Return the path of the lock: every wheel and its hashes, in pip's requirements format, for this Python."""
        return LOCKS / f"{self.name}-{edition}-{python}.txt"

    def build_lock(self, python: str) -> Path:
        """Return the path of the lock of Horovod's build requirements, in the same format as ``lock``."""
        return LOCKS / f"{self.name}-build-{python}.txt"

    def environment(self, edition: str, python: str) -> str:
        """Return the environment's name on a host. A changed lock gives a new name, beside the one in use."""
        asked = f"{edition}\0{python}\0".encode() + self.lock(edition, python).read_bytes()
        return f"{self.name}-{hashlib.sha256(asked).hexdigest()[:12]}"


@dataclass(frozen=True)
class System:
    """``pythons``: package names by the Python version they provide. ``gcc``: major versions, the default one first."""

    title: str
    pythons: Mapping[Python, tuple[str, ...]]
    gcc: tuple[int, ...]
    openmpi: Version


@cache
def load() -> Mapping[str, Stack]:
    """Return all stacks by name, oldest first. Raise BadFile for one that the schema rejects: a defect in tfctl."""
    found = [_read(Stack, path) for path in HERE.glob("tf*.yaml")]
    return {stack.name: stack for stack in sorted(found, key=lambda stack: stack.release("tensorflow"))}


def get(name: str) -> Stack:
    """Return the named stack. Raise BadFile, suggesting the nearest name, if there is none."""
    stacks = load()
    if name not in stacks:
        raise BadFile(f"--stack {name}: there is no such stack", others(name))
    return stacks[name]


def others(name: str) -> str:
    """Suggest stacks for an unknown name."""
    known = [*load(), NONE]
    near = difflib.get_close_matches(name, known, 1)
    return (f"did you mean {near[0]}? " if near else "") + f"known are {', '.join(known)}"


@cache
def systems() -> Mapping[str, System]:
    """Return the supported operating systems, by their names in tfctl_facts."""
    return _read(dict[str, System], HERE / "systems.yaml")


@cache
def nvidia() -> Nvidia:
    """Return the sources of NVIDIA's software."""
    return _read(Nvidia, HERE / "nvidia.yaml")


def _read(kind: type[T], path: Path) -> T:
    try:
        return schema.parse(kind, yaml.load(path.read_text(encoding="utf-8"), _LOADER))
    except (schema.SchemaError, yaml.YAMLError) as error:
        raise BadFile(f"{path.name}: {error}") from None
