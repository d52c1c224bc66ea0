"""A CPython tree is packed on this machine so that it runs on another: its content, its name, and refusals."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.provision import elf
from tfctl.provision.python_tree import PythonTree, pack


def program(run_path: str = "", needs: str = "libc.so.6", glibc: str = "2.17", machine: int = 62) -> bytes:
    """A 64-bit ELF file with a string table, one library and, if named, a run path (gABI, chapters 4 and 5)."""
    texts = [run_path.encode(), needs.encode(), b"GLIBC_2.2.5", f"GLIBC_{glibc}".encode()]
    strings = b"\0" + b"\0".join(texts) + b"\0"
    base, header = 0x400000, 64 + 2 * 56
    dynamic = [(5, base + header), (1, 2 + len(run_path)), *([(29, 1)] if run_path else []), (0, 0)]
    table = b"".join(struct.pack("<qQ", *entry) for entry in dynamic)
    at = header + len(strings)
    size = at + len(table)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = ident + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
    found = struct.pack("<IIQQQQQQ", 2, 6, at, base + at, base + at, len(table), len(table), 8)
    return head + load + found + strings + table


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small copy of what `make install` of CPython leaves."""
    root = tmp_path / "a-prefix-that-is-long-enough"
    files = {
        "bin/python3.7": program(f"{root}/lib", "libpython3.7m.so.1.0"),
        "bin/pip3": b"#!/elsewhere/python\n",
        "include/python3.7m/patchlevel.h": b'#define PY_VERSION      \t"3.7.16"\n',
        "lib/libpython3.7m.so.1.0": program(glibc="2.34"),
        "lib/libpython3.7m.a": b"static",
        "lib/python3.7/os.py": b"import sys\n",
        "lib/python3.7/__pycache__/os.cpython-37.pyc": b"compiled",
        "lib/python3.7/__pycache__/os.cpython-37.opt-1.pyc": b"compiled",
        "lib/python3.7/test/test_os.py": b"",
        "lib/python3.7/site-packages/numpy/__init__.py": b"",
        "lib/python3.7/lib-dynload/_ssl.so": program(f"{root}/lib:/opt/other", "libssl.so.3"),
        "lib/python3.7/lib-dynload/_curses.so": program(needs="libncursesw.so.6", glibc="2.99"),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "bin/python3.7").chmod(0o755)
    (root / "lib/libpython3.7m.so").symlink_to("libpython3.7m.so.1.0")
    return root


def unpacked(found: PythonTree, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["tar", "-xf", found.archive, "-C", folder], check=True, timeout=60)
    return folder


def test_python_tree_is_packed_without_tests_caches_and_static_libraries(tree: Path, tmp_path: Path) -> None:
    os.utime(tree / "lib/python3.7/os.py", (1_600_000_000, 1_600_000_000))
    found = pack(tree, tmp_path / "cache")
    there = unpacked(found, tmp_path / "host")
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*") if not path.is_dir()) == [
        "bin/python3", "bin/python3.7", "include/python3.7m/patchlevel.h",
        "lib/libpython3.7m.so", "lib/libpython3.7m.so.1.0", "lib/python3.7/__pycache__/os.cpython-37.pyc",
        "lib/python3.7/lib-dynload/_curses.so", "lib/python3.7/lib-dynload/_ssl.so", "lib/python3.7/os.py",
    ]  # fmt: skip
    assert found.name == f"cpython-3.7.16-{found.sha256[:12]}"
    assert (found.python, found.machine) == ("3.7", "x86_64")
    assert os.access(there / "bin/python3", os.X_OK)
    assert (there / "lib/python3.7/os.py").stat().st_mtime == 1_600_000_000


def test_python_tree_lists_required_libraries_except_those_of_optional_modules(tree: Path, tmp_path: Path) -> None:
    found = pack(tree, tmp_path / "cache")
    assert (found.glibc, found.needs) == ((2, 34), ("libssl.so.3",))


def test_packed_programs_search_libraries_relative_to_themselves(tree: Path, tmp_path: Path) -> None:
    there = unpacked(pack(tree, tmp_path / "cache"), tmp_path / "host")
    assert [text for _, text in elf.run_paths((there / "bin/python3.7").read_bytes())] == ["$ORIGIN/../lib"]
    # A host does not have the directories outside of the tree, so they are removed from the run path.
    module = (there / "lib/python3.7/lib-dynload/_ssl.so").read_bytes()
    assert [text for _, text in elf.run_paths(module)] == ["$ORIGIN/../.."]


def test_python_tree_is_packed_again_only_when_it_changed_or_the_archive_is_missing(tree: Path, tmp_path: Path) -> None:
    first = pack(tree, tmp_path / "cache")
    written = Path(first.archive).stat().st_mtime_ns
    assert pack(tree, tmp_path / "cache") == first
    assert Path(first.archive).stat().st_mtime_ns == written
    Path(first.archive).unlink()
    assert pack(tree, tmp_path / "cache") == first
    assert Path(first.archive).exists()
    (tree / "lib/python3.7/os.py").write_text("import sys, os\n")
    assert pack(tree, tmp_path / "cache").name != first.name


def test_symlink_out_of_the_python_tree_is_packed_as_a_file(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("shared = True\n")
    (tree / "lib/python3.7/shared.py").symlink_to(tmp_path / "elsewhere.py")
    there = unpacked(pack(tree, tmp_path / "cache"), tmp_path / "host")
    assert (there / "lib/python3.7/shared.py").is_file() and not (there / "lib/python3.7/shared.py").is_symlink()


def test_pack_refuses_a_path_that_is_not_a_python_tree(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="needs an absolute path"):
        pack(Path("some/where"), tmp_path / "cache")
    with pytest.raises(BadFile, match="is not a CPython tree"):
        pack(tmp_path, tmp_path / "cache")
    header = tree / "include/python3.7m/patchlevel.h"
    header.write_text(header.read_text().replace("3.7", "3.10"))
    for name in ("bin/python3.10", "lib/python3.10/os.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    with pytest.raises(BadFile, match=r"has Python 3\.10, but only 3\.6 and 3\.7 are sent"):
        pack(tree, tmp_path / "cache")
    (tree / "bin/python3.10").unlink()
    with pytest.raises(BadFile, match="is not a CPython tree"):
        pack(tree, tmp_path / "cache")


def test_run_path_is_not_replaced_by_a_longer_one() -> None:
    data = program("/py/lib")
    ((offset, text),) = elf.run_paths(data)
    with pytest.raises(ValueError, match=r"\$ORIGIN/\.\./lib is longer than /py/lib"):
        elf.with_run_path(data, offset, text, "$ORIGIN/../lib")
    assert elf.run_paths(elf.with_run_path(data, offset, text, "$ORIGIN")) == [(offset, "$ORIGIN")]


def test_elf_reader_finds_glibc_libraries_and_machine() -> None:
    assert elf.glibc(program(glibc="2.35")) == (2, 35)
    assert elf.glibc(b"GLIBC_2.99") == (0, 0)
    assert elf.needed(program(needs="libz.so.1")) == ["libz.so.1"]
    assert elf.machine(program(machine=183)) == "aarch64"
    assert elf.machine(program(machine=243)) == "unknown"
    assert not elf.is_elf(b"#!/bin/sh\n")
