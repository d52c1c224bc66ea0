"""Which exact versions make a stack, and where it fits: one YAML file for each, with its locks, checked by a schema."""

from __future__ import annotations

import difflib
import hashlib
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from tfctl.errors import BadFile
from tfctl.model.stacks.nvidia import Gpu, Nvidia
from tfctl.model.stacks.strict import Https, Known, Sha256, Strict, Version

HERE = Path(__file__).resolve().parent
LOCKS = HERE / "locks"
#: The lock of what installs the others.
TOOLS = LOCKS / "uv.txt"
#: The stack that is none: a host's own programs.
NONE = "none"

Python = Annotated[str, Field(pattern=r"^3\.\d+$")]


_Model = TypeVar("_Model", bound=Strict)


class Edition(Strict):
    """A stack as it is for one kind of host. ``disk_mb`` is what installing it takes at its highest.

    ``without``: packages that others ask for, and that must not be there. ``substitutes``: by its key in the stack,
    what does for something here that the stack names otherwise.
    """

    machines: list[str]
    requirements: list[str]
    disk_mb: int
    without: list[str] = Field(default_factory=list)
    substitutes: dict[Literal["gcc", "openmpi", "horovod"], str] = Field(default_factory=dict)


class Tested(Strict):
    """What was really tried, and where."""

    system: str
    python: Python
    edition: str
    what: str


class Gcc(Strict):
    """``min``: for the headers of TensorFlow, and Horovod's own check; ``max``: the last that its CUDA's nvcc takes."""

    min: int
    max: int


class Openmpi(Known):
    """The tarball that it is built from, where the distribution's own will not do."""

    version: Version
    url: Https
    sha256: Sha256


class Horovod(Known):
    """Its source in the package index, which has no wheels of it. ``build``: what builds it, beside a compiler.

    What it imports stands in the stack's own requirements, so that its wheel is all that comes on top.
    """

    version: Version
    sha256: Sha256
    gloo: bool
    build: list[str]


class Stack(Strict):
    """``pythons`` in order of preference. ``imports``: modules that must import, with the versions they must have.

    ``horovod`` None: no release builds for it. ``sources``: of its requirements those that have no wheel; a lock
    names them in a first line `--no-binary=NAME,NAME`, and of each its source's hash.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.]{0,19}$")]
    title: str
    tensorflow: Version
    pythons: list[Python]
    requirements: list[str]
    sources: list[str] = Field(default_factory=list)
    as_of: date
    imports: dict[str, Version]
    gcc: Gcc | None = None
    openmpi: Openmpi | None = None
    horovod: Horovod | None = None
    gpu: Gpu | None = None
    editions: dict[str, Edition]
    tested: list[Tested]

    def lock(self, edition: str, python: str) -> Path:
        """Every wheel of the environment, with its hashes: pip's requirements format, for this Python alone."""
        return LOCKS / f"{self.name}-{edition}-{python}.txt"

    def build_lock(self, python: str) -> Path:
        """What builds Horovod, as ``lock`` has it."""
        return LOCKS / f"{self.name}-build-{python}.txt"

    def environment(self, edition: str, python: str) -> str:
        """Its name on a host: another lock is another environment, beside the one that is in use."""
        asked = f"{edition}\0{python}\0".encode() + self.lock(edition, python).read_bytes()
        return f"{self.name}-{hashlib.sha256(asked).hexdigest()[:12]}"


class System(Strict):
    """``pythons``: each version that its packages bring, with their names. ``gcc``: major numbers, its own first."""

    title: str
    pythons: dict[Python, list[str]]
    gcc: list[int]
    openmpi: Version


@cache
def load() -> dict[str, Stack]:
    """All stacks by name, the files sorted. Raises BadFile for one that the schema refuses: a defect of tfctl."""
    found = (_checked(Stack, yaml.safe_load(path.read_text()), path) for path in sorted(HERE.glob("tf*.yaml")))
    return {stack.name: stack for stack in found}


def get(name: str) -> Stack:
    """Raises BadFile, naming the nearest stack, for a name that none has."""
    stacks = load()
    if name not in stacks:
        raise BadFile(f"--stack {name}: there is no such stack", others(name))
    return stacks[name]


def others(name: str) -> str:
    """What may have been meant by a name that no stack has."""
    known = [*load(), NONE]
    near = difflib.get_close_matches(name, known, 1)
    return (f"do you mean {near[0]}? " if near else "") + f"there are: {', '.join(known)}"


@cache
def systems() -> dict[str, System]:
    """The supported operating systems, by the name that tfctl_facts gives them."""
    path = HERE / "systems.yaml"
    return {name: _checked(System, data, path) for name, data in yaml.safe_load(path.read_text()).items()}


@cache
def nvidia() -> Nvidia:
    """Where NVIDIA's software comes from."""
    path = HERE / "nvidia.yaml"
    return _checked(Nvidia, yaml.safe_load(path.read_text()), path)


def _checked(model: type[_Model], data: object, path: Path) -> _Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise BadFile(f"{path.name}: {place}: {first['msg']}") from None
