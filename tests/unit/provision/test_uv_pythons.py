"""The CPythons that uv can download: real uv, with archives and lists of this machine."""

from __future__ import annotations

import gzip
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from python_mirror import archive, entry, listing

from tfctl.errors import BadFile, TfctlError
from tfctl.provision import uv_pythons
from tfctl.provision.wheels import digest

#: uv writes paths and compilers into this file, which has to be there.
VALUES = "_sysconfigdata__linux_x86_64-linux-gnu.py"
HEADER = b"# system configuration generated and used by the sysconfig module\n"


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (uv_pythons.FILE, uv_pythons.ARCHIVES, "UV_PYTHON_DOWNLOADS", "UV_PYTHON_CPYTHON_BUILD"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    files = {
        "bin/python3.11": b"#!/bin/sh\necho 3.11\n",
        f"lib/python3.11/{VALUES}": HEADER + b"build_time_vars = {}\n",
    }
    return archive(tmp_path / "x.tar.gz", files)


def offered(folder: Path, *entries: dict[str, Any]) -> tuple[uv_pythons.PythonBuild, ...]:
    return uv_pythons.offered(str(listing(folder / "list.json", *entries)))


def test_uv_has_releases_of_every_python_that_a_stack_accepts_except_the_oldest() -> None:
    found = uv_pythons.offered("")
    minors = {build.python for build in found if build.machine == "x86_64"}
    assert {f"3.{minor}" for minor in range(8, 14)} <= minors and not {"3.6", "3.7"} & minors
    build = uv_pythons.choose(found, "3.11", "aarch64")
    assert build is not None
    assert re.fullmatch(r"cpython-(3\.11\.\d+)-linux-aarch64-gnu", build.key)
    assert re.fullmatch(rf"cpython-{build.release}-20\d{{6}}", build.name) and not build.flaw


def test_settings_of_uv_cannot_replace_its_list(packed: Path, tmp_path: Path) -> None:
    file = listing(tmp_path / "list.json", entry(packed, "3.11.7", sha256=None))
    (tmp_path / "config/uv").mkdir(parents=True)
    (tmp_path / "config/uv/uv.toml").write_text(f'python-downloads-json-url = "{file}"\n')
    assert len(uv_pythons.offered("")) > 5


@pytest.mark.parametrize("by", ["the inventory", "uv's variable", "a URL"])
def test_the_newest_release_of_a_list_is_taken(
    by: str, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        entry(packed, "3.11.20", prerelease="rc1"), entry(packed, "3.11.21", variant="freethreaded"),
        entry(packed, "3.11.22", libc="musl"), entry(packed, "3.11.23", os="darwin"), entry(packed, "3.10.1"),
        entry(packed, "3.11.24", name="pypy"), entry(packed, "3.11.25", arch={"family": "x86_64", "variant": "v3"}),
    ]  # fmt: skip
    file = listing(tmp_path / "list.json", entry(packed, "3.11.10"), entry(packed, "3.11.9"), *others)
    if by == "uv's variable":
        monkeypatch.setenv(uv_pythons.FILE, str(file))
    found = uv_pythons.offered({"the inventory": str(file), "uv's variable": "", "a URL": file.as_uri()}[by])
    assert [build.release for build in found] == ["3.10.1", "3.11.10"]
    assert found[1].name == f"cpython-3.11.10-{digest(packed)[:12]}"


@pytest.mark.parametrize("sha256", [None, "", "0" * 63, 5, "missing"])
def test_an_entry_without_a_hash_has_a_flaw(sha256: object, packed: Path, tmp_path: Path) -> None:
    wrong = entry(packed, "3.11.7", sha256=sha256)
    if sha256 == "missing":
        del wrong["sha256"]
    (build,) = offered(tmp_path, wrong)
    assert build.flaw == f"{tmp_path}/list.json: cpython-3.11.7-linux-x86_64-gnu has no sha256, which uv would not miss"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "cannot be read: Expecting"),
        ("[]", "cannot be read: it is not a JSON object"),
        ('{"a": []}', "has an entry a that cannot be used"),
        ('{"a": {"name": "cpython", "os": "linux", "libc": "gnu", "arch": "x86_64"}}', "has an entry a that cannot"),
    ],
)
def test_a_list_that_cannot_be_used_is_named(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadFile, match=message) as raised:
        uv_pythons.offered(str(file))
    assert str(file) in raised.value.message and "tfctl_python_mirror" in raised.value.remedy


def test_an_archive_is_downloaded_once_for_all_hosts(packed: Path, tmp_path: Path) -> None:
    (build,) = offered(tmp_path, entry(packed, "3.11.7"))
    sha256 = digest(packed)
    with ThreadPoolExecutor(3) as pool:
        found = {*pool.map(lambda _: uv_pythons.archive(build, "", tmp_path / "cache"), range(3))}
    (first,) = found
    assert (first.path.name, first.sha256) == (f"{build.name}.tar.gz", sha256) and digest(first.path) == sha256
    packed.unlink()
    assert uv_pythons.archive(build, "", tmp_path / "cache") == first
    assert sorted(path.name for path in first.path.parent.iterdir()) == [
        first.path.name, f"{first.path.name}.lock", "sha256",
    ]  # fmt: skip


def test_a_damaged_archive_is_downloaded_again(packed: Path, tmp_path: Path) -> None:
    (build,) = offered(tmp_path, entry(packed, "3.11.7"))
    first = uv_pythons.archive(build, "", tmp_path / "cache")
    first.path.write_bytes(b"other")
    assert uv_pythons.archive(build, "", tmp_path / "cache") == first and digest(first.path) == first.sha256


def test_an_archive_for_other_machines_is_downloaded_too(packed: Path, tmp_path: Path) -> None:
    (build,) = offered(tmp_path, entry(packed, "3.11.7", arch={"family": "aarch64", "variant": None}))
    assert uv_pythons.archive(build, "", tmp_path / "cache").sha256 == digest(packed)


def test_an_archive_with_another_hash_is_not_taken(packed: Path, tmp_path: Path) -> None:
    (build,) = offered(tmp_path, entry(packed, "3.11.7", sha256="ab" * 32))
    with pytest.raises(TfctlError, match=r"CPython 3\.11\.7 cannot be installed: .*[Hh]ash mismatch"):
        uv_pythons.archive(build, "", tmp_path / "cache")
    assert [*(tmp_path / "cache").glob("**/*.tar.gz")] == []


def test_a_list_that_changes_after_it_was_read_is_not_used(packed: Path, tmp_path: Path) -> None:
    (build,) = offered(tmp_path, entry(packed, "3.11.7"))
    other = archive(tmp_path / "other.tar.gz", {"bin/python3.11": b"bad"})
    offered(tmp_path, entry(other, "3.11.7", sha256=None))
    assert uv_pythons.archive(build, str(tmp_path / "list.json"), tmp_path / "cache").sha256 == digest(packed)


def test_without_network_the_error_names_the_mirror(tmp_path: Path) -> None:
    build = uv_pythons.choose(uv_pythons.offered(""), "3.11", "x86_64")
    assert build is not None
    with pytest.raises(TfctlError, match=rf"^CPython {build.release} cannot be downloaded from http") as raised:
        uv_pythons.archive(build, "", tmp_path / "cache")
    assert "tfctl_python_mirror" in raised.value.remedy


def test_a_mirror_of_archives_serves_only_those_that_uv_knows(packed: Path, tmp_path: Path) -> None:
    build = uv_pythons.choose(uv_pythons.offered(str(tmp_path)), "3.11", "x86_64")
    assert build is not None
    folder = tmp_path / "mirror" / build.mark
    folder.mkdir(parents=True)
    name = f"cpython-{build.release}+{build.mark}-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"
    with pytest.raises(TfctlError, match=re.escape(name)):
        uv_pythons.archive(build, str(tmp_path / "mirror"), tmp_path / "cache")
    packed.rename(folder / name)
    with pytest.raises(TfctlError, match=r"[Hh]ash mismatch"):
        uv_pythons.archive(build, str(tmp_path / "mirror"), tmp_path / "cache")


def test_an_archive_that_hosts_cannot_unpack_is_refused(packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "x.tar"
    other.write_bytes(gzip.decompress(packed.read_bytes()))
    (build,) = offered(tmp_path, entry(other, "3.11.7"))
    with pytest.raises(TfctlError, match=r"the archive of CPython 3\.11\.7 is not a \.tar\.gz"):
        uv_pythons.archive(build, "", tmp_path / "cache")
