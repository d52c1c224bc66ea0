"""The page about the objects that ``-o json`` prints, from their types."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, TypeVar, Union, get_args, get_origin, get_type_hints

from scripts.reference_pages.docstrings import told
from scripts.reference_pages.markdown import code, paragraphs, sentence, table
from tfctl.cli.objects import OBJECTS, PARENTS, FailedObject
from tfctl.errors import ErrorObject
from tfctl.jobs.nodes import INTERNAL, NodeObject
from tfctl.node import wire

#: JSON's words for simple types.
_SIMPLE: dict[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null", object: "any value",
    date: "string",
}  # fmt: skip
#: The titles of types whose names occur more than once.
_NAMES: dict[type, str] = {wire.Error: "HostError"}
#: What these keys mean in every object that does not say it.
_COMMON = {
    "job": "the name of the job",
    "attempt": "the number of the attempt, from 1",
    "run": "8 hexadecimal digits that identify the attempt",
    "role": "the role of the task",
    "index": "the number of the task within its role, from 0",
    "host": "the name of the host in the inventory",
    "hosts": "the hosts",
    "state": "the state",
    "strategy": "the strategy of the job",
    "tasks": "one object for each task",
    "address": "the address",
    "port": "the port",
    "unit": "the systemd unit of the task",
    "exit": "the exit code",
    "exit_code": "the exit code, or null",
    "signal": "the name of the signal that ended the task, or null",
    "message": "what is wrong, and where",
    "remedy": "what to do, or an empty string",
    "errors": "the errors",
    "error": "what is wrong",
    "failed": "whether the host failed",
    "unreachable": "whether the host did not answer",
    "name": "the name",
    "title": "a short description",
    "stack": "the name of the stack",
    "uuid": "the UUID that the NVIDIA driver gives it",
    "file": "the path of the file",
    "path": "the path",
    "version": "the version",
    "verified": "whether the publisher states the hash",
    "sources": "who states the hash, independently of each other",
    "url": "the URL",
    "sha256": "the SHA-256 of the file, in hexadecimal digits",
    "gloo": "whether it is built with Gloo",
    "machines": "the architectures",
    "requirements": "the packages, in pip's requirements format",
    "network": "the network of the lab",
    "inventories": "the paths of the inventories of the lab",
    "shared": "the directory that the nodes share",
    "nodes": "one object for each node",
    "suite": "the Debian release",
    "console": "the file with the output of its console",
    "tensorflow": "the version of TensorFlow",
    "editions": "the editions, by name",
    "edition": "the edition of the stack",
    "tested": "where the stack was tested",
    "as_of": "the date; packages that were released later are not used",
    "gcc": "the versions of gcc that can build extensions, or null",
    "openmpi": "the release of Open MPI for hosts whose distribution has none that fits, or null",
    "gpu": "what the stack needs on GPUs, or null",
    "cuda": "the version of CUDA",
    "cudnn": "the version of cuDNN",
    "nccl": "the version of NCCL",
    "capability": "the range of compute capabilities",
    "driver": "the NVIDIA driver",
    "max_branch": "the newest driver branch that fits",
    "machine": "the architecture of the host",
    "gpus": "the GPUs",
    "gpu_trouble": "why GPUs that exist cannot be listed, or null",
    "stacks": "what each stack would be, by name",
    "python": "the version of Python, or the interpreter that would be used",
    "why": "why this edition",
    "environment": "the directory of the Python environment",
    "notices": "notices, in sentences",
    "faults": "what prevents it",
    "kernel": "the version of the kernel",
    "systemd": "the version of systemd",
    "cpus": "the number of CPUs",
    "protocol": "the version of the protocol that the node part speaks",
    "free_mib": "the free space in MiB",
    "total_mib": "the size in MiB",
    "celsius": "the temperature in degrees Celsius",
    "watts": "the power draw in watts",
    "from": "where the interpreter is from",
    "packages": "packages of the distribution that are installed with it",
    "method": "the way in which it would be installed",
    "min": "the lowest",
    "max": "the highest",
    "system": "the system",
    "what": "what was tested",
    "stream": "the stream",
    "culprit": "the task that made the job fail, or null",
}


def page() -> str:
    nested = [kind for kind in _nested() if kind not in {each for kinds in OBJECTS.values() for each in kinds}]
    return paragraphs(
        "# JSON output",
        "The commands on this page print JSON on stdout with the option `-o json`. Each prints one object, except "
        "`tfctl logs`, `run`, `exec` and `status --watch`, which print one object on each line. New versions of tfctl "
        "may add keys; they do not remove any. Lists and objects that occur in several places are described "
        "[below](#parts).",
        *(_section(f"## tfctl {name}", *kinds) for name, kinds in OBJECTS.items()),
        "## Errors",
        "A command that fails prints this object, and exits with the same [exit code](exit-codes.md). So does one that "
        "is interrupted before it has printed anything. A command that has results of some hosts prints these, and "
        "reports the errors of the other hosts on stderr. `check`, `preflight`, `provision`, `reset`, `verify` and "
        "commands that wait for a job print their own object even if the exit code is not 0.",
        *_description(FailedObject),
        "## Parts",
        *(_section(f"### {_title(kind)}", kind) for kind in nested),
    )


def _section(heading: str, *kinds: type) -> str:
    return paragraphs(heading, *(part for kind in kinds for part in _description(kind)))


def _description(kind: type) -> Iterator[str]:
    about, _ = told(kind)
    yield sentence(about)
    yield table(["key", "type", "meaning"], list(_rows(kind)))


def _rows(kind: type) -> Iterator[tuple[str, str, str]]:
    meanings = _meanings(kind)
    for name, annotation in _fields(kind).items():
        optional = get_origin(annotation) is NotRequired
        meaning = sentence(meanings.get(name) or _COMMON.get(name, ""))
        yield code(name.rstrip("_")), in_words(annotation) + (", optional" if optional else ""), meaning


def _meanings(kind: type) -> dict[str, str]:
    """Return the meanings of the fields, as the class or its parent says."""
    parent = PARENTS.get(kind)
    return {**(told(parent)[1] if parent else {}), **told(kind)[1]}


def _fields(kind: type) -> Mapping[str, Any]:
    """Return the keys of the object with their annotations."""
    # Modules that every command imports, such as cli/tables.py, import wire only for type checking.
    hints = get_type_hints(kind, localns=vars(wire), include_extras=True)
    if is_dataclass(kind):
        hints = {each.name: hints[each.name] for each in fields(kind)}
    parent = PARENTS.get(kind)
    hidden = INTERNAL if kind is NodeObject else ()
    inherited = _fields(parent) if parent else {}
    return {**hints, **{name: hint for name, hint in inherited.items() if name not in hidden}}


def _all() -> list[type]:
    return [kind for kinds in OBJECTS.values() for kind in kinds]


def _nested() -> list[type]:
    """Return the types of objects inside the others, in the order in which they are first mentioned."""
    found: dict[type, None] = {}
    waiting = [*_all(), FailedObject]
    while waiting:
        kind = waiting.pop(0)
        parts = [part for annotation in _fields(kind).values() for part in _objects_in(annotation)]
        new = [part for part in dict.fromkeys(parts) if part not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return list(found)


def _objects_in(annotation: Any) -> Iterator[type]:
    annotation = _plain(annotation)
    if _is_object(annotation):
        yield annotation
    elif get_origin(annotation) is not Literal:
        for argument in get_args(annotation):
            yield from _objects_in(argument)


def _plain(annotation: Any) -> Any:
    """Return the annotation without metadata and parameters. All objects with a parameter contain faults."""
    if isinstance(annotation, TypeVar):
        return ErrorObject
    if get_origin(annotation) in (Annotated, NotRequired):
        return _plain(get_args(annotation)[0])
    origin = get_origin(annotation)
    return origin if isinstance(origin, type) and _is_object(origin) else annotation


def _is_object(kind: Any) -> bool:
    return isinstance(kind, type) and (
        is_dataclass(kind) or hasattr(kind, "_fields") or hasattr(kind, "__required_keys__")
    )


def in_words(annotation: Any) -> str:
    """Return the type of a value, in words and links."""
    annotation = _plain(annotation)
    if _is_object(annotation):
        return f"[{_title(annotation).lower()}](#{_anchor(annotation)})"
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(code(each) for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(each) for each in arguments)
    if origin is tuple and arguments[-1] is not ...:
        return f"list of {len(arguments)}: {', '.join(map(in_words, arguments))}"
    if origin in (list, tuple):
        return f"list of {in_words(arguments[0])}"
    return f"object, each value: {in_words(arguments[1])}"


def _anchor(kind: type) -> str:
    """Return the anchor of the section that describes the object."""
    command = next((name for name, kinds in OBJECTS.items() if kind in kinds), "")
    return f"tfctl-{command}".replace(" ", "-") if command else _title(kind).lower().replace(" ", "-")


def _title(kind: type) -> str:
    name = _NAMES.get(kind) or kind.__name__.removesuffix("Object").removesuffix("Json")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
