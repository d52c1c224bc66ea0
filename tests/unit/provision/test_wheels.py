"""tfctl_wheels downloads all packages of a lock once, into one archive, and refuses files with a wrong hash."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tfctl.provision import ansible
from tfctl.provision.results import PlayResult

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that replaces the package index, configured as a user of pip would do it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "/dev/null" if name.endswith("FILE") else "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as file:
        file.writestr("tiny/__init__.py", "x = 1\n")
        file.writestr("tiny/template.py", "{{ for }}\n")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    return folder


def download(folder: Path, lock: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> PlayResult:
    """Run the module on this machine with the arguments that the role passes."""
    real = ansible.data_dir()
    (folder / "playbooks").mkdir(exist_ok=True)
    for name in ("callback_plugins", "library", "module_utils"):
        if not (folder / "playbooks" / name).exists():
            (folder / "playbooks" / name).symlink_to(real / "playbooks" / name)
    (folder / "lock.txt").write_text(lock)
    words = {"locks": [f"{folder}/lock.txt"], "python": VERSION, "machine": "x86_64", "folder": f"{folder}/cache"}
    words |= more
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"name": "Collect", "tfctl_wheels": words}]}
    (folder / "playbooks/wheels.yml").write_text(json.dumps([play]))
    (folder / "hosts").write_text("a ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n")
    with monkeypatch.context() as patch:
        patch.setattr(ansible, "data_dir", lambda: folder)
        return ansible.run(ansible.Play("wheels", folder / "hosts"), lambda _: None)


def cached(folder: Path) -> list[str]:
    return [path.name for path in (folder / "cache").iterdir() if path.suffix != ".lock"]


def names(archive: Path) -> Iterable[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_wheels_are_downloaded_and_compiled_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = index / "tiny-1.0-py3-none-any.whl"
    lock = f"tiny==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    assert download(tmp_path, lock, monkeypatch).exit == 0
    (name,) = cached(tmp_path)
    archive = tmp_path / "cache" / name
    assert list(names(archive)) == ["bytecode.zip", wheel.name]
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path, "bytecode.zip"], check=True, timeout=60)
    with zipfile.ZipFile(tmp_path / "bytecode.zip") as file:
        assert file.namelist() == [f"tiny/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"]
    wheel.unlink()
    assert download(tmp_path, lock, monkeypatch).exit == 0
    assert cached(tmp_path) == [name]


def test_wheel_with_a_wrong_hash_is_refused_and_not_kept(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index.exists()
    report = download(tmp_path, f"tiny==1.0 \\\n    --hash=sha256:{'0' * 64}\n", monkeypatch)
    (host,) = report.hosts
    assert host.failed and "the download of tiny==1.0 from" in host.reason
    assert "does not match the lock file's hash" in host.remedy
    assert not any(name.endswith(".tar") for name in cached(tmp_path))


def test_missing_wheel_is_named_with_a_remedy(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert index.exists()
    report = download(tmp_path, f"tiny==2.0 \\\n    --hash=sha256:{'0' * 64}\n", monkeypatch)
    assert "No matching distribution found for tiny==2.0" in report.hosts[0].reason
    assert "does not reach a package index" in report.hosts[0].remedy


def test_source_distribution_is_downloaded_without_running_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, source = index / "tiny-1.0-py3-none-any.whl", index / "own-2.0.tar.gz"
    with tarfile.open(source, "w:gz") as tar:
        text = b"raise SystemExit('somebody ran it')"
        info = tarfile.TarInfo("own-2.0/setup.py")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    lock = f"tiny==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    report = download(tmp_path, lock, monkeypatch, source=f"own==2.0 --hash=sha256:{'0' * 64}\n")
    assert "does not match the hash in the lock file" in report.hosts[0].reason
    assert download(tmp_path, lock, monkeypatch, source=f"own==2.0 --hash=sha256:{digest}\n").exit == 0
    (name,) = (name for name in cached(tmp_path) if name.endswith(".tar"))
    assert list(names(tmp_path / "cache" / name)) == ["own-2.0.tar.gz", wheel.name]
