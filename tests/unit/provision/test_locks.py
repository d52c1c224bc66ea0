"""uv resolves requirements of stacks and of jobs, with a package index that contains a few wheels of the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import serving, wheel

from tests.unit.provision.test_stacks import own_stack
from tfctl.cli.main import run
from tfctl.errors import BadFile, TfctlError
from tfctl.model import stacks
from tfctl.provision import locks

HASH = f"--hash=sha256:{'0' * 64}"
#: The lock of a stack.
STACK = f"numpy==1.26.4 \\\n    {HASH}\ntensorflow-cpu==2.15.1 \\\n    {HASH}\n"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of wheels, which the settings of uv name as the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, version, needs in (
        ("numpy", "1.26.4", ""), ("numpy", "2.0.0", ""), ("frames", "1.0", "numpy"), ("frames", "2.0", "numpy>=2"),
        ("model", "1.0", "tensorflow"), ("six", "1.17.0", ""), ("tensorflow_cpu", "2.15.1", ""),
    ):  # fmt: skip
        wheel(folder, name, version, needs)
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with serving(folder) as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        yield folder


def resolved(folder: Path, text: str, before: str = "") -> dict[str, str]:
    """Resolve a requirements file beside the stack's lock, and return {package: version}."""
    (folder / "stack.txt").write_text(STACK)
    (folder / "requirements.txt").write_text(text)
    lock = locks.resolved_beside(folder / "requirements.txt", folder / "stack.txt", "3.11", "x86_64", before)
    return {name: version for name, (version, _) in locks.entries(lock).items()}


@pytest.mark.extended
def test_versions_fit_those_of_the_stack_and_only_new_packages_are_locked(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("six\n")
    assert resolved(tmp_path, "frames\n-r more.txt\n") == {"frames": "1.0", "six": "1.17.0"}
    assert resolved(tmp_path, "numpy\n") == {}


@pytest.mark.extended
def test_versions_of_an_earlier_lock_are_kept(tmp_path: Path, index: Path) -> None:
    wheel(index, "six", "1.18.0")
    assert resolved(tmp_path, "six") == {"six": "1.18.0"}
    assert resolved(tmp_path, "six", f"six==1.17.0 \\\n    {HASH}\n") == {"six": "1.17.0"}


@pytest.mark.extended
def test_conflict_with_the_stack_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"numpy>=2") as raised:
        resolved(tmp_path, "frames==2.0")
    assert "numpy==1.26.4" in raised.value.message and "\n" not in raised.value.message


def test_tensorflow_is_that_of_the_stack(tmp_path: Path) -> None:
    assert resolved(tmp_path, "model\ntensorflow>=2.14\n") == {"model": "1.0"}
    with pytest.raises(BadFile, match=r"tensorflow==2\.16: the stack has TensorFlow 2\.15\.1"):
        resolved(tmp_path, "tensorflow==2.16")


@pytest.mark.extended
@pytest.mark.parametrize("line", ["-e .", "six @ file://{index}/six-1.17.0-py3-none-any.whl"])
def test_paths_and_urls_are_refused(tmp_path: Path, index: Path, line: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\n')
    with pytest.raises(TfctlError):
        resolved(tmp_path, line.format(index=index))


@pytest.mark.extended
def test_missing_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="absent was not found"):
        resolved(tmp_path, "absent")


def test_locks_of_a_stack_are_written_beside_its_file_and_their_paths_printed_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = stacks.read(own_stack(tmp_path / "own"))
    lock = tmp_path / "own/locks/mine-cpu-3.11.txt"
    lock.unlink()
    assert run(["stacks", "lock", str(tmp_path / "own/mine.yaml"), "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert (json.loads(captured.out), captured.err) == ({"files": [str(lock)]}, f"{lock}: written\n")
    assert stack.lock("cpu", "3.11") == lock
    assert [*locks.entries(lock.read_text())] == ["six", "tensorflow-cpu"]
