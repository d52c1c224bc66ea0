"""Read ELF files (64 bit, little endian) and rewrite their run paths in place (elf.h, ld.so(8))."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

#: e_machine → the name that `uname -m` prints
_MACHINES = {62: "x86_64", 183: "aarch64"}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


def is_elf(data: bytes) -> bool:
    return data[:6] == b"\x7fELF\x02\x01"


def machine(data: bytes) -> str:
    """Return the machine as `uname -m` names it, or ``unknown`` if no stack supports it."""
    (number,) = struct.unpack_from("<H", data, 18)
    return _MACHINES.get(number, "unknown")


def glibc(data: bytes) -> tuple[int, int]:
    """Return the newest symbol version of the C library that the file requires, or (0, 0)."""
    return max(((int(major), int(minor)) for major, minor in _GLIBC.findall(data)), default=(0, 0))


def needed(data: bytes) -> list[str]:
    """Return the libraries that the file is linked to, such as ``libssl.so.3``."""
    return [text for _, text in _texts(data, _DT_NEEDED)]


def run_paths(data: bytes) -> list[tuple[int, str]]:
    """Return (offset in the file, text) of each DT_RPATH and DT_RUNPATH, where the loader searches libraries first."""
    return list(_texts(data, _DT_RPATH, _DT_RUNPATH))


def with_run_path(data: bytes, offset: int, old: str, new: str) -> bytes:
    """Overwrite the run path ``old`` with ``new``. Raises ValueError if it is longer: the strings cannot be moved."""
    room, text = old.encode(), new.encode()
    if len(text) > len(room):
        raise ValueError(f"{new} is longer than {old}")
    return data[:offset] + text.ljust(len(room), b"\0") + data[offset + len(room) :]


def _texts(data: bytes, *tags: int) -> Iterator[tuple[int, str]]:
    entries = _dynamic(data)
    strings = next((_offset(data, value) for tag, value in entries if tag == _DT_STRTAB), None)
    for tag, value in entries:
        if strings is not None and tag in tags:
            start = strings + value
            yield start, data[start : data.index(b"\0", start)].decode()


def _dynamic(data: bytes) -> list[tuple[int, int]]:
    for kind, offset, _, length in _segments(data):
        if kind == _PT_DYNAMIC:
            return [struct.unpack_from("<qQ", data, offset + each) for each in range(0, length, 16)]
    return []


def _offset(data: bytes, address: int) -> int | None:
    for kind, offset, start, length in _segments(data):
        if kind == _PT_LOAD and start <= address < start + length:
            return offset + address - start
    return None


def _segments(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (type, offset, address, size) of each program header."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, start + number * size)
        yield kind, offset, address, length
