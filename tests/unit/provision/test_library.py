"""The module library loads a library as a job would, and compares the version that it reports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules.library import compare, encoded, is_later


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake of the Python that loads the library: a shell script, which a test writes."""
    program = tmp_path / "python"
    program.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def asked(library: str, soname: str, version: str, exact: bool = True) -> dict[str, object]:
    return {"library": library, "soname": soname, "version": version, "exact": exact}


@pytest.mark.parametrize(
    ("library", "version", "number"),
    [
        ("cuda", "12.2.2", 12020), ("cuda", "10.0.130", 10000), ("cudnn", "8.9.4.25", 8904), ("cudnn", "9.3.0", 90300),
        ("nccl", "2.8.4", 2804), ("nccl", "2.16.5", 21605), ("cuda", "12", 12000),
    ],
)  # fmt: skip
def test_version_is_encoded_as_the_library_does(library: str, version: str, number: int) -> None:
    assert encoded(library, version) == number


@pytest.mark.parametrize(
    ("found", "wanted", "later"),
    [(8907, 8904, True), (8904, 8904, True), (8902, 8904, False), (90300, 8904, False), (21605, 12020, False)],
)
def test_later_version_has_the_same_major_version(found: int, wanted: int, later: bool) -> None:
    assert is_later(found, wanted) is later


def test_reported_version_is_returned_if_it_suits(python: Path) -> None:
    python.write_text("#!/bin/sh\necho 8907\n")
    assert compare(asked("cudnn", "libcudnn.so.8", "8.9.7.29")) == {"found": 8907}
    assert compare(asked("cudnn", "libcudnn.so.8", "8.9.4.25", exact=False)) == {"found": 8907}
    for version, exact in (("8.9.4.25", True), ("8.10.1", False), ("7.6.5", False)):
        with pytest.raises(ModuleFailed, match=r"^libcudnn\.so\.8 is version 8907; \d+ is required$"):
            compare(asked("cudnn", "libcudnn.so.8", version, exact))


def test_library_is_loaded_without_the_search_path_of_the_caller(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/home/user/lib")
    python.write_text("#!/bin/sh\necho ${LD_LIBRARY_PATH:-21605}\n")
    assert compare(asked("nccl", "libnccl.so.2", "2.16.5")) == {"found": 21605}


def test_library_that_crashes_is_named_with_the_signal(python: Path) -> None:
    python.write_text("#!/bin/sh\nkill -SEGV $$\n")
    with pytest.raises(ModuleFailed, match=r"^libnccl\.so\.2 cannot be loaded: the process ended with -11$"):
        compare(asked("nccl", "libnccl.so.2", "2.16.5"))


@pytest.mark.parametrize(
    ("soname", "reason"),
    [("libtfctl-none.so.1", "cannot open shared object file"), ("libc.so.6", "undefined symbol: cudnnGetVersion")],
)
def test_library_that_cannot_be_loaded_is_named_with_the_reason(soname: str, reason: str) -> None:
    with pytest.raises(ModuleFailed, match=f"^{soname} cannot be loaded: .*{reason}"):
        compare(asked("cudnn", soname, "8.9.4.25"))
