"""The reader of fat binaries finds which GPUs need a driver that compiles PTX. The fat binaries here are made up."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from scripts import fatbin
from scripts.fatbin import Code


def entry(kind: int, architecture: int, version: tuple[int, int], payload: bytes = b"compressed code") -> bytes:
    """Return an entry as NVIDIA's fatbinary writes it: a header of 64 bytes, and a payload padded to 8 bytes."""
    padded = payload + bytes(-len(payload) % 8)
    fields = (kind, 0x0101, 64, len(padded), len(payload), 0, version[1], version[0], architecture)
    return struct.pack("<HHIQIIHHI", *fields).ljust(64, b"\0") + padded


def machine_code(architecture: int) -> bytes:
    return entry(2, architecture, (1, 7))


def ptx(architecture: int, isa: tuple[int, int]) -> bytes:
    return entry(1, architecture, isa)


def container(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with two containers as TensorFlow's, one of them twice, between other bytes."""
    kernels = container(machine_code(70), machine_code(80), ptx(90, (8, 3)))
    older = container(machine_code(70), ptx(80, (8, 1)))
    path = tmp_path / "libtensorflow_cc.so.2"
    path.write_bytes(b"\x7fELF" + bytes(100) + kernels + bytes(24) + older + kernels + bytes(7))
    return path


def test_fatbin_lists_the_code_of_each_different_container(library: Path) -> None:
    assert fatbin.containers(library) == {
        frozenset({Code(70, None), Code(80, None), Code(90, (8, 3))}),
        frozenset({Code(70, None), Code(80, (8, 1))}),
    }


@pytest.mark.parametrize(
    ("capability", "isa"),
    [
        ("7.0", None),
        ("7.5", None),  # machine code of 7.0 runs on 7.5
        ("8.0", (8, 1)),  # one container has PTX only
        ("8.6", (8, 1)),
        ("9.0", (8, 3)),  # machine code of 8.0 does not run on 9.0
        ("12.0", (8, 3)),
    ],
)
def test_newest_ptx_is_that_of_the_code_which_the_driver_has_to_compile(
    library: Path, capability: str, isa: tuple[int, int] | None
) -> None:
    assert fatbin.newest_ptx(fatbin.containers(library), capability) == isa


def test_newest_ptx_takes_the_highest_architecture_that_the_gpu_supports() -> None:
    code = frozenset({Code(80, (8, 5)), Code(90, (8, 1)), Code(100, (8, 6))})
    assert fatbin.newest_ptx([code], "9.0") == (8, 1)


def test_newest_ptx_ignores_kernels_that_are_only_for_other_gpus() -> None:
    hopper_only = frozenset({Code(90, None)})
    assert fatbin.newest_ptx([hopper_only, frozenset({Code(70, None)})], "7.5") is None
    with pytest.raises(fatbin.NoCode, match=r"7\.5"):
        fatbin.newest_ptx([hopper_only], "7.5")


def test_fatbin_skips_what_only_looks_like_a_container(tmp_path: Path) -> None:
    path, good = tmp_path / "library.so", container(machine_code(80))
    for fake in (fatbin.MAGIC, fatbin.MAGIC + b"\x02\0\x10\0" + bytes(8), good[:8] + b"\xff" * 8):
        path.write_bytes(fake + good + fatbin.MAGIC)
        assert fatbin.containers(path) == {frozenset({Code(80, None)})}


def test_fatbin_stops_at_an_entry_whose_header_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(container(machine_code(80), bytes(64), machine_code(90)))
    assert fatbin.containers(path) == {frozenset({Code(80, None)})}
