"""uv resolves requirements against a folder of wheels that replaces the package index."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.unit.provision.test_stacks import own_stack
from tfctl.errors import BadFile, TfctlError
from tfctl.model import stacks
from tfctl.provision import locks

HASH = f"--hash=sha256:{'0' * 64}"
#: The lock of a stack.
STACK = f"numpy==1.26.4 \\\n    {HASH}\ntensorflow-cpu==2.15.1 \\\n    {HASH}\n"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for name, version, needs in (
        ("numpy", "1.26.4", ""), ("numpy", "2.0.0", ""), ("frames", "1.0", "numpy"), ("frames", "2.0", "numpy>=2"),
        ("model", "1.0", "tensorflow"), ("six", "1.17.0", ""), ("tensorflow_cpu", "2.15.1", ""),
    ):  # fmt: skip
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += f"Requires-Dist: {needs}\n" if needs else ""
        with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
            file.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
            file.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            file.writestr(f"{name}-{version}.dist-info/RECORD", "")
    return folder


def resolved(folder: Path, text: str, before: str = "") -> dict[str, str]:
    """Resolve a requirements file beside the stack's lock, and return {package: version}."""
    (folder / "stack.txt").write_text(STACK)
    (folder / "requirements.txt").write_text(text)
    lock = locks.resolved_beside(folder / "requirements.txt", folder / "stack.txt", "3.11", "x86_64", before)
    return {name: version for name, (version, _) in locks.entries(lock).items()}


def test_versions_fit_those_of_the_stack_and_only_new_packages_are_locked(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("six\n")
    assert resolved(tmp_path, "frames\n-r more.txt\n") == {"frames": "1.0", "six": "1.17.0"}
    assert resolved(tmp_path, "numpy\n") == {}


def test_versions_of_an_earlier_lock_are_kept(tmp_path: Path, index: Path) -> None:
    before = (index / "six-1.17.0-py3-none-any.whl").read_bytes()
    (index / "six-1.18.0-py3-none-any.whl").write_bytes(before.replace(b"1.17.0", b"1.18.0"))
    assert resolved(tmp_path, "six") == {"six": "1.18.0"}
    assert resolved(tmp_path, "six", f"six==1.17.0 \\\n    {HASH}\n") == {"six": "1.17.0"}


def test_conflict_with_the_stack_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"numpy>=2") as raised:
        resolved(tmp_path, "frames==2.0")
    assert "numpy==1.26.4" in raised.value.message and "\n" not in raised.value.message


def test_tensorflow_is_that_of_the_stack(tmp_path: Path) -> None:
    assert resolved(tmp_path, "model\ntensorflow>=2.14\n") == {"model": "1.0"}
    with pytest.raises(BadFile, match=r"tensorflow==2\.16: the stack has TensorFlow 2\.15\.1"):
        resolved(tmp_path, "tensorflow==2.16")


@pytest.mark.parametrize("line", ["-e .", "six @ file://{index}/six-1.17.0-py3-none-any.whl"])
def test_paths_and_urls_are_refused(tmp_path: Path, index: Path, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\n')
    with pytest.raises(TfctlError):
        resolved(tmp_path, line.format(index=index))


def test_missing_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="absent was not found"):
        resolved(tmp_path, "absent")


def test_locks_of_a_stack_are_written_beside_its_file(tmp_path: Path) -> None:
    stack = stacks.read(own_stack(tmp_path / "own"))
    stack.lock("cpu", "3.11").unlink()
    assert [*locks.write_locks(stack)] == [tmp_path / "own/locks/mine-cpu-3.11.txt"]
    assert [*locks.entries(stack.lock("cpu", "3.11").read_text())] == ["six", "tensorflow-cpu"]
