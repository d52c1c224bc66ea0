"""uv resolves requirements of stacks and of jobs, with a package index that contains a few wheels of the test."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.unit.provision.test_stacks import own_stack
from tfctl.cli.main import run
from tfctl.errors import BadFile, TfctlError
from tfctl.model import stacks
from tfctl.provision import locks

HASH = f"--hash=sha256:{'0' * 64}"
#: The lock of a stack.
STACK = f"numpy==1.26.4 \\\n    {HASH}\ntensorflow-cpu==2.15.1 \\\n    {HASH}\n"


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}-{version}.dist-info/METADATA", metadata)
        file.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{name}-{version}.dist-info/RECORD", "")


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index (PEP 691) of the wheels in its directory. All of them were uploaded in 2020."""

    def do_GET(self) -> None:
        found = re.fullmatch(r"/simple/([a-z-]+)/", self.path)
        if found is None:
            super().do_GET()
            return
        paths = [*Path(self.directory).glob(f"{found[1].replace('-', '_')}-*.whl")]
        files = [
            {
                "filename": path.name,
                "url": f"/{path.name}",
                "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                "upload-time": "2020-01-01T00:00:00Z",
            }
            for path in paths
        ]
        text = json.dumps({"meta": {"api-version": "1.1"}, "name": found[1], "files": files}).encode()
        self.send_response(200 if paths else 404)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


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
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
        yield folder
        server.shutdown()


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
