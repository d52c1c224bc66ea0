"""The stacks: exact versions, and the hosts they fit. Each has a YAML file, checked by a schema, and its locks.

Beside the stacks that tfctl ships, there are those in the directories that the inventory lists (`tfctl_stack_dirs`).
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml

from tfctl import schema
from tfctl.errors import BadFile
from tfctl.model.stacks.nvidia import GpuSupport, Nvidia
from tfctl.model.stacks.values import Https, Python, Sha256, SourcedValue, Version

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
#: The lock of the installer itself.
TOOLS = LOCKS / "uv.txt"
#: The architectures for which stacks can be locked.
MACHINES = ("x86_64", "aarch64")
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
class Openmpi(SourcedValue):
    """The source tarball, for hosts whose distribution's own Open MPI will not do."""

    version: Version
    url: Https
    sha256: Sha256


@dataclass(frozen=True)
class HorovodSource(SourcedValue):
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
    lists them in its first line, `--no-binary=NAME,NAME`, and has the hash of each one's source. ``file``: the path of
    its YAML file, beside which are its locks; "" for a stack that has none, the active Python of a local run.
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
    horovod: HorovodSource | None = None
    gpu: GpuSupport | None = None
    file: str = field(default="", metadata=schema.DERIVED)

    def release(self, module: str) -> tuple[int, ...]:
        """Return the numbers of a module's version in ``imports``, or of TensorFlow's; (0,) if it is not there."""
        version = self.tensorflow if module == "tensorflow" else self.imports.get(module, "0")
        return tuple(int(part) for part in version.split("."))

    def lock(self, edition: str, python: str) -> Path:
        """Return the path of the lock: every wheel and its hashes, in pip's requirements format, for this Python."""
        return self._locks / f"{self.name}-{edition}-{python}.txt"

    def build_lock(self, python: str) -> Path:
        """Return the path of the lock of Horovod's build requirements, in the same format as ``lock``."""
        return self._locks / f"{self.name}-build-{python}.txt"

    def all_locks(self) -> Iterator[Path]:
        """Yield the paths of all locks that the stack must have."""
        for python in self.pythons:
            yield from (self.lock(edition, python) for edition in self.editions)
            if self.horovod:
                yield self.build_lock(python)

    def environment(self, edition: str, python: str) -> str:
        """Return the environment's name on a host. A changed lock gives a new name, beside the one in use."""
        asked = f"{edition}\0{python}\0".encode() + self.lock(edition, python).read_bytes()
        return f"{self.name}-{hashlib.sha256(asked).hexdigest()[:12]}"

    @property
    def shipped(self) -> bool:
        """Whether the stack is part of tfctl."""
        return Path(self.file).parent == HERE

    @property
    def _locks(self) -> Path:
        return Path(self.file).parent / LOCKS.name


@dataclass(frozen=True)
class OperatingSystem:
    """``pythons``: package names by the Python version they provide. ``gcc``: major versions, the default one first."""

    title: str
    pythons: Mapping[Python, tuple[str, ...]]
    gcc: tuple[int, ...]
    openmpi: Version


@cache
def load(directories: tuple[str, ...] = ()) -> Mapping[str, Stack]:
    """Return the stacks by name: first those that tfctl ships, oldest first, then those of the directories.

    Raise BadFile, which names the file and the key, for one that cannot be used.
    """
    shipped = sorted(map(read, HERE.glob("tf*.yaml")), key=lambda stack: stack.release("tensorflow"))
    found = {stack.name: stack for stack in shipped}
    for path in _own_files(directories):
        stack = read(path)
        if stack.name in found:
            raise BadFile(f"{path}: name: {stack.name} is the name of {found[stack.name].file}", "choose another name")
        missing = next((lock for lock in stack.all_locks() if not lock.is_file()), None)
        if missing:
            raise BadFile(f"{path}: there is no lock file {missing}", f"write it: tfctl stacks lock {path}")
        found[stack.name] = stack
    return found


def get(name: str, directories: tuple[str, ...] = ()) -> Stack:
    """Return the named stack. Raise BadFile, suggesting the nearest name, if there is none."""
    stacks = load(directories)
    if name not in stacks:
        raise BadFile(f"there is no stack {name}", others(name, directories))
    return stacks[name]


def others(name: str, directories: tuple[str, ...] = ()) -> str:
    """Suggest stacks for an unknown name."""
    known = [*load(directories), NONE]
    near = difflib.get_close_matches(name, known, 1)
    return (f"did you mean {near[0]}? " if near else "") + f"choose from {', '.join(known)}"


def read(path: Path) -> Stack:
    """Read the file of a stack. Raise BadFile, which names the file and the key."""
    stack = replace(_read(Stack, path), file=str(path))
    problem = _problem(stack)
    if problem:
        raise BadFile(f"{_shown(path)}: {problem}")
    return stack


def _problem(stack: Stack) -> str:
    """Return what is wrong with a stack although it matches the schema, or ""."""
    if not stack.pythons:
        return "pythons: the list is empty"
    if "cpu" not in stack.editions or not {*stack.editions} <= {"cpu", "gpu"}:
        return f"editions: expected cpu and perhaps gpu, not {', '.join(stack.editions) or 'an empty mapping'}"
    if "gpu" in stack.editions and stack.gpu is None:
        return "gpu: missing, and there is an edition gpu"
    for name, own in stack.editions.items():
        if not own.machines or not {*own.machines} <= {*MACHINES}:
            found = ", ".join(own.machines) or "an empty list"
            return f"editions/{name}/machines: expected {' or '.join(MACHINES)}, not {found}"
    if stack.horovod and not (stack.gcc and stack.openmpi and "tensorflow" in stack.imports):
        return "horovod: this also needs gcc, openmpi, and tensorflow in imports"
    return ""


def _own_files(directories: tuple[str, ...]) -> Iterator[Path]:
    for directory in dict.fromkeys(directories):
        if not Path(directory).is_dir():
            raise BadFile(f"tfctl_stack_dirs: {directory} is not a directory", "correct it in the inventory")
        yield from sorted(path for path in Path(directory).iterdir() if path.suffix in (".yaml", ".yml"))


@cache
def systems() -> Mapping[str, OperatingSystem]:
    """Return the supported operating systems, by their names in facts."""
    return _read(dict[str, OperatingSystem], HERE / "systems.yaml")


@cache
def nvidia() -> Nvidia:
    """Return the sources of NVIDIA's software."""
    return _read(Nvidia, HERE / "nvidia.yaml")


def _read(kind: type[T], path: Path) -> T:
    try:
        return schema.parse(kind, yaml.load(path.read_text(encoding="utf-8"), _LOADER))
    except (schema.SchemaError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadFile(f"{_shown(path)}: {error}") from None
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror}") from None


def _shown(path: Path) -> str:
    """Return a file as errors name it: by its path, or if tfctl ships it, by its name."""
    return path.name if path.parent == HERE else str(path)
