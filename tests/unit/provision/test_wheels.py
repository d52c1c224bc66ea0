"""The action wheels downloads all packages of a lock once, and refuses files with a wrong hash."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.linked_collection import link_collection
from tfctl.provision import ansible, wheels
from tfctl.provision.results import PlayResult

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def wheel(folder: Path, name: str, version: str) -> Path:
    """Create a wheel with a module and a template."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", "x = 1\n")
        file.writestr(f"{name}/template.py", "{{ for }}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that replaces the package index, configured as a user of pip would do it."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "/dev/null" if name.endswith("FILE") else "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel(folder, "tiny", "1.0")
    return folder


def download(folder: Path, lock: str, **more: str) -> PlayResult:
    """Run the action with the arguments that the role passes."""
    (folder / "lock.txt").write_text(lock)
    words = {"locks": [f"{folder}/lock.txt"], "python": VERSION, "machine": "x86_64", "folder": f"{folder}/cache"}
    words |= more
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"name": "Collect", "tfctl.cluster.wheels": words}]}
    collections = link_collection(folder, {"playbooks/wheels.yml": json.dumps([play])})
    (folder / "hosts").write_text("a ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n")
    return ansible.run(ansible.Play("wheels", folder / "hosts", collections=collections), lambda _: None)


def cached(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").glob(f"{VERSION}-x86_64/*"))


def names(archive: Path) -> Iterable[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def lock_of(*wheels: Path) -> str:
    return "".join(
        "{}=={} \\\n    --hash=sha256:{}\n".format(
            *path.name.split("-")[:2], hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in wheels
    )


@pytest.mark.extended
def test_wheels_are_downloaded_and_compiled_once(index: Path, tmp_path: Path) -> None:
    tiny = index / "tiny-1.0-py3-none-any.whl"
    lock = lock_of(tiny)
    assert download(tmp_path, lock).exit == 0
    names = [tiny.name, f"{tiny.name}.bytecode.zip"]
    assert cached(tmp_path) == names
    folder = tmp_path / f"cache/{VERSION}-x86_64"
    with zipfile.ZipFile(folder / names[1]) as file:
        assert file.namelist() == [f"tiny/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"]
    (listing,) = (tmp_path / "cache").glob("*.json")
    files = json.loads(listing.read_text())
    assert [(file["name"], file["path"]) for file in files] == [(name, str(folder / name)) for name in names]
    for file in files:
        content = Path(file["path"]).read_bytes()
        assert (file["sha256"], file["size"]) == (hashlib.sha256(content).hexdigest(), len(content))
    tiny.unlink()
    assert download(tmp_path, lock).exit == 0
    (folder / tiny.name).unlink()
    assert "No matching distribution" in download(tmp_path, lock).hosts[0].reason


def test_wheels_are_downloaded_from_the_index_that_the_inventory_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of pip name no index. This one is a directory with a page for the package (PEP 503)."""
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    page = tmp_path / "simple/tiny/index.html"
    page.parent.mkdir(parents=True)
    tiny = wheel(page.parent, "tiny", "1.0")
    page.write_text(f'<!DOCTYPE html><a href="{tiny.name}">{tiny.name}</a>')
    assert download(tmp_path, lock_of(tiny), index_url=(tmp_path / "simple").as_uri()).exit == 0
    assert tiny.name in cached(tmp_path)
    role = ansible.data_dir() / "roles/wheels"
    assert "wheels_index_url: \"{{ tfctl_index_url | default('') }}\"" in (role / "defaults/main.yml").read_text()
    assert 'index_url: "{{ wheels_index_url }}"' in (role / "tasks/download.yml").read_text()


def test_index_of_the_inventory_is_not_on_the_command_line_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users of the control machine can see it, and the URL may contain a password."""
    seen, program, url = tmp_path / "seen", tmp_path / "python", "https://me:secret@index.example/simple"
    program.write_text(f'#!/bin/sh\necho "$*" >{seen}\necho "$PIP_INDEX_URL" >>{seen}\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    full, empty, of_hash = tmp_path / "full.txt", tmp_path / "empty.txt", f"--hash=sha256:{'0' * 64}\n"
    full.write_text(f"tiny==1.0 \\\n    {of_hash}")
    empty.touch()
    works: list[Callable[[Path], object]] = [
        lambda folder: wheels.files_of(wheels.Download([full], VERSION, "x86_64", url), folder),
        lambda folder: wheels.archive_of(
            wheels.Download([empty], VERSION, "x86_64", url), f"own==2.0 {of_hash}", folder
        ),
    ]
    for work in works:
        with pytest.raises(wheels.DownloadFailed, match="ended with exit code 1"):
            work(tmp_path / "cache")
        words, index = seen.read_text().splitlines()
        assert ("pip download" in words, "secret" in words, index) == (True, False, url)


@pytest.mark.extended
def test_only_a_changed_wheel_is_downloaded_again(index: Path, tmp_path: Path) -> None:
    tiny = index / "tiny-1.0-py3-none-any.whl"
    assert download(tmp_path, lock_of(tiny, wheel(index, "other", "1.0"))).exit == 0
    new = wheel(index, "other", "1.1")
    lock = lock_of(tiny, new)
    tiny.unlink()
    assert download(tmp_path, lock).exit == 0
    assert new.name in cached(tmp_path)


@pytest.mark.extended
def test_wheel_with_a_wrong_hash_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    assert index.exists()
    report = download(tmp_path, f"tiny==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    (host,) = report.hosts
    assert host.failed and "the download of tiny==1.0 from" in host.reason
    assert "does not match the lock file's hash" in host.remedy
    assert cached(tmp_path) == []


@pytest.mark.extended
def test_missing_wheel_is_named_with_a_remedy(index: Path, tmp_path: Path) -> None:
    assert index.exists()
    report = download(tmp_path, f"tiny==2.0 \\\n    --hash=sha256:{'0' * 64}\n")
    assert "No matching distribution found for tiny==2.0" in report.hosts[0].reason
    assert "cannot reach a package index" in report.hosts[0].remedy


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (
            "NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to establish a new connection: "
            '[Errno 111] Connection refused")',
            "Failed to establish a new connection: [Errno 111] Connection refused",
        ),
        (
            "NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a "
            "new connection: [Errno 111] Connection refused')",
            "Failed to establish a new connection: [Errno 111] Connection refused",
        ),
        (
            "NameResolutionError(\"HTTPSConnection(host='index', port=443): Failed to resolve 'index' ([Errno -2] Name "
            'or service not known)")',
            "Failed to resolve 'index' ([Errno -2] Name or service not known)",
        ),
        (
            "ConnectTimeoutError(<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>, 'Connection to index "
            "timed out. (connect timeout=15)')",
            "Connection to index timed out. (connect timeout=15)",
        ),
        (
            "ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))",
            "Cannot connect to proxy. Tunnel connection failed: 403 Forbidden",
        ),
    ],
)
def test_broken_connection_to_the_index_is_explained_in_every_form_in_which_pip_prints_it(
    exception: str, message: str
) -> None:
    output = (
        "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection "
        f"broken by '{exception}': /simple/absl-py/\nERROR: No matching distribution found for absl-py==2.5.1\n"
    )
    assert wheels.errors_of(output).splitlines() == [
        f"connection broken to the package index: {message}",
        "No matching distribution found for absl-py==2.5.1",
    ]


@pytest.mark.extended
def test_source_distribution_is_downloaded_without_running_it(index: Path, tmp_path: Path) -> None:
    tiny, source = index / "tiny-1.0-py3-none-any.whl", index / "own-2.0.tar.gz"
    with tarfile.open(source, "w:gz") as tar:
        text = b"raise SystemExit('somebody ran it')"
        info = tarfile.TarInfo("own-2.0/setup.py")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    lock = f"tiny==1.0 \\\n    --hash=sha256:{hashlib.sha256(tiny.read_bytes()).hexdigest()}\n"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    report = download(tmp_path, lock, source=f"own==2.0 --hash=sha256:{'0' * 64}\n")
    assert "does not match the hash in the lock file" in report.hosts[0].reason
    assert download(tmp_path, lock, source=f"own==2.0 --hash=sha256:{digest}\n").exit == 0
    (archive,) = (tmp_path / "cache").glob("*.tar")
    assert list(names(archive)) == ["own-2.0.tar.gz", tiny.name]
