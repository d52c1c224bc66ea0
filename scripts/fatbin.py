"""Read for which GPUs a library contains code, from the headers of its fat binaries.

NVIDIA's compilers put the code of a source file into a container: a header, then entries, each with its own header and
a payload, all little-endian. An entry contains machine code or PTX. The driver loads machine code of the GPU's own
architecture, or else compiles PTX, if it supports the version of the PTX ISA in the entry's header. The format is not
documented; several open-source projects read it. Payloads are not read, so it does not matter whether they are
compressed.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
VERSION = 1
#: Magic number, version, size of this header, size of all entries.
CONTAINER = struct.Struct("<4sHHQ")
#: Kind, unknown, size of the header, size of the payload, two unknown, minor and major version, architecture.
ENTRY = struct.Struct("<HHIQIIHHI")
PTX, MACHINE_CODE = 1, 2


@dataclass(frozen=True)
class Code:
    """An entry. ``architecture``: 90 for compute capability 9.0; ``isa``: the version of PTX, None for machine code."""

    architecture: int
    isa: tuple[int, int] | None


#: The code of one source file, for all architectures.
Container = frozenset[Code]


class NoCode(Exception):
    """No container has code that runs on GPUs of this compute capability."""


def containers(path: Path) -> set[Container]:
    """Return the different containers of a file. A part of the file that only looks like one is skipped."""
    found: set[Container] = set()
    if not path.stat().st_size:  # mmap refuses an empty file
        return found
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(MAGIC)
        while at >= 0:
            end = _end(data, at)
            if end:
                found.add(frozenset(_entries(data, at + CONTAINER.size, end)))
            at = data.find(MAGIC, end or at + 1)
    return found - {frozenset()}


def newest_ptx(found: Iterable[Container], capability: str) -> tuple[int, int] | None:
    """Return the newest PTX ISA that a driver must compile for GPUs of this compute capability, such as "9.0".

    None: everything that runs on them is machine code. Containers without any code for them are ignored, because their
    kernels are only for others. Raise NoCode if that is so for all.
    """
    major, minor = map(int, capability.split("."))
    own, served = 10 * major + minor, False
    versions: set[tuple[int, int]] = set()
    for container in found:
        if any(code.isa is None and 10 * major <= code.architecture <= own for code in container):
            served = True
            continue
        ptx = [(code.architecture, code.isa) for code in container if code.isa and code.architecture <= own]
        if ptx:
            served = True
            versions.add(max(ptx)[1])
    if not served:
        raise NoCode(capability)
    return max(versions, default=None)


def _end(data: mmap.mmap, at: int) -> int | None:
    """Return where the container ends, or None if there is none."""
    if at + CONTAINER.size > len(data):
        return None
    _, version, header, size = CONTAINER.unpack_from(data, at)
    end = int(at + header + size)
    return end if (version, header) == (VERSION, CONTAINER.size) and end <= len(data) else None


def _entries(data: mmap.mmap, at: int, end: int) -> Iterator[Code]:
    while at + ENTRY.size <= end:
        kind, _, header, payload, _, _, minor, major, architecture = ENTRY.unpack_from(data, at)
        if header < ENTRY.size:
            return
        if kind in (PTX, MACHINE_CODE):
            yield Code(architecture, (major, minor) if kind == PTX else None)
        at += header + payload
