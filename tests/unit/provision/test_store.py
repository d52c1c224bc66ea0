"""Hosts keep wheels by their hashes, and copy them from the control machine in pieces and from each other."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.action import send_wheels
from ansible_collections.tfctl.cluster.plugins.module_utils import share
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, NoSpace
from ansible_collections.tfctl.cluster.plugins.modules.store import STATES, FileStore, StoredFile, result_of

from tfctl.provision.remedies import remedy_for

BIG = bytes(range(256)) * 4000


def file(name: str, content: bytes) -> StoredFile:
    return StoredFile(name, hashlib.sha256(content).hexdigest(), len(content))


ONE, TWO = file("one.whl", BIG), file("two.whl", b"two")
CONTENTS = {ONE.sha256: BIG, TWO.sha256: b"two"}


def filled(folder: Path, *files: StoredFile) -> FileStore:
    """Return a store that has these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in files:
        (folder / each.sha256).write_bytes(CONTENTS[each.sha256])
    return FileStore(folder, [ONE, TWO])


def test_store_changes_nothing_in_check_mode(tmp_path: Path) -> None:
    filled(tmp_path / "store", ONE)
    given = {"folder": str(tmp_path / "store"), "files": [TWO._asdict()], "limit_mb": 0, "url": "", "unit": "none"}
    found = {state: result_of({**given, "state": state}, check=True) for state in STATES}
    assert found.pop("checked")["missing"] == [TWO.sha256]
    assert set(map(str, found.values())) == {"{}"}
    assert [path.name for path in (tmp_path / "store").iterdir()] == [ONE.sha256]


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[tuple[FileStore, str]]:
    """Another host with all wheels, and its URL. The real program serves them, without systemd."""
    store = filled(tmp_path / "peer", ONE, TWO)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-I", "-c", share.SERVER, str(port), str(store.folder)]
    server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield store, f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_missing_wheels_are_copied_from_another_host(peer: tuple[FileStore, str], tmp_path: Path) -> None:
    store = filled(tmp_path / "store", TWO)
    assert store.missing() == [ONE] and store.key() == peer[0].key()
    assert store.fetch(peer[1]) == ""
    assert store.missing() == [] and names(store.folder) == sorted([ONE.sha256, TWO.sha256])
    assert (store.folder / ONE.sha256).stat().st_mode & 0o777 == 0o644


def test_interrupted_download_is_continued(peer: tuple[FileStore, str], tmp_path: Path) -> None:
    """The beginning is wrong, so only a download that continues gives another hash."""
    store = filled(tmp_path / "store", TWO)
    part = store.folder / f".{ONE.sha256}"
    part.write_bytes(b"x" * 1000)
    reason = store.fetch(peer[1])
    assert "has the SHA-256" in reason and not part.exists()
    part.write_bytes(BIG[:1000])
    assert store.fetch(peer[1]) == "" and store.missing() == []


def test_host_that_cannot_be_reached_is_named_and_what_was_copied_stays(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", TWO)
    part = store.folder / f".{ONE.sha256}"
    part.write_bytes(BIG[:1000])
    assert "http://127.0.0.1:9/" in store.fetch("http://127.0.0.1:9")
    assert part.read_bytes() == BIG[:1000] and store.missing() == [ONE]


def test_full_disk_is_an_error_with_its_remedy_and_not_taken_for_an_unreachable_host(
    peer: tuple[FileStore, str], tmp_path: Path
) -> None:
    """Each write to /dev/full fails as on a full disk (full(4))."""
    store = filled(tmp_path / "store", TWO)
    part = store.folder / f".{ONE.sha256}"
    part.symlink_to("/dev/full")
    with pytest.raises(NoSpace) as full:
        store.fetch(peer[1])
    assert str(full.value) == f"no space left on device for {part}"
    known = remedy_for(str(full.value))
    assert known and full.value.fault["remedy"] == known.text, "as when a module of Ansible finds the disk full"


def test_files_that_do_not_fit_on_the_disk_are_not_sent(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", [StoredFile("huge.whl", "0" * 64, 10**18)])
    with pytest.raises(NoSpace, match=f"no space left on device for {store.folder}"):
        store.prepare()


@pytest.mark.parametrize("path", ["", "x", "../peer/x", ".upload", "0" * 64])
def test_server_serves_nothing_but_wheels(peer: tuple[FileStore, str], tmp_path: Path, path: str) -> None:
    with pytest.raises(ModuleFailed, match="cannot be fetched"):
        share.fetch(f"{peer[1]}/{path}", tmp_path / "x", "0" * 64, direct=True)


def sent(store: FileStore, each: StoredFile, piece: int, count: int | None = None) -> None:
    """Write the first pieces of a file as the control machine sends them."""
    content = CONTENTS[each.sha256]
    for number in range(-(-len(content) // piece))[:count]:
        (store.upload / f"{each.sha256}.{number}").write_bytes(content[number * piece : (number + 1) * piece])


def test_pieces_of_the_control_machine_are_put_together(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", [ONE, TWO])
    assert store.prepare() == {}
    assert store.upload.stat().st_mode & 0o777 == 0o700
    sent(store, ONE, 100_000, 3)
    (store.upload / "left.0").write_bytes(b"of another run")
    assert store.prepare() == {f"{ONE.sha256}.{number}": 100_000 for number in range(3)}
    sent(store, ONE, 100_000)
    sent(store, TWO, 100_000)
    store.receive()
    assert store.missing() == [] and names(store.folder) == sorted([ONE.sha256, TWO.sha256])


def test_piece_with_other_content_is_not_kept(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", [TWO])
    store.prepare()
    (store.upload / f"{TWO.sha256}.0").write_bytes(b"owt")
    with pytest.raises(ModuleFailed, match=r"two\.whl does not match its hash after it was sent"):
        store.receive()
    assert store.missing() == [TWO] and names(store.upload) == []


def test_link_in_place_of_a_piece_is_not_followed(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", [TWO])
    store.prepare()
    (tmp_path / "secret").write_bytes(b"two")
    (store.upload / f"{TWO.sha256}.0").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError):
        store.receive()
    assert store.missing() == [TWO]


def test_wheels_that_were_used_least_recently_are_deleted_first(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", ONE, TWO)
    for age in range(3):
        path = store.folder / (f"{age}" * 64)
        path.write_bytes(b"1234")
        os.utime(path, (1000 - age, 1000 - age))
    os.utime(store.folder / ONE.sha256, (1, 1))
    store.trim(9)
    assert names(store.folder) == sorted([ONE.sha256, TWO.sha256, "0" * 64, "1" * 64])
    store.trim(0)
    assert names(store.folder) == sorted([ONE.sha256, TWO.sha256])
    assert (store.folder / ONE.sha256).stat().st_mtime > 1000


def test_file_is_sent_in_pieces_that_cover_it() -> None:
    size = 2 * send_wheels.PIECE + 5
    found = [*send_wheels.pieces(size)]
    assert [first for first, _ in found] == [0, send_wheels.PIECE, 2 * send_wheels.PIECE]
    assert sum(length for _, length in found) == size
    assert [*send_wheels.pieces(0)] == [(0, 0)]
