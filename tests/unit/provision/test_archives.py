"""Archives are never unpacked outside their directory, and downloads are compared with their hash."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import tarfile
import threading
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import share
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, replace_tree, unpack
from ansible_collections.tfctl.cluster.plugins.module_utils.share import fetch
from ansible_collections.tfctl.cluster.plugins.modules.download import download


def tarball(path: Path, members: dict[str, str], links: dict[str, str] | None = None) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o666
            archive.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)


@pytest.mark.parametrize(
    ("members", "links"),
    [({"../../evil": "x"}, {}), ({"a/lib/x": "y"}, {"a/lib/out": "../../../../etc"}), ({"/etc/evil": "x"}, {})],
)
def test_archive_is_refused_when_a_member_points_outside(
    tmp_path: Path, members: dict[str, str], links: dict[str, str]
) -> None:
    source = tmp_path / "evil.txz"
    tarball(source, members, links)
    with pytest.raises(ModuleFailed, match="would lie outside"):
        unpack(source, tmp_path / "x")
    assert not (tmp_path / "evil").exists()


def test_archive_with_a_member_for_its_directory_itself_is_unpacked(tmp_path: Path) -> None:
    """`tar -cf FILE -C DIR .` makes such an archive."""
    (tmp_path / "flowers/roses").mkdir(parents=True)
    (tmp_path / "flowers/roses/1.jpg").write_text("rose")
    source = tmp_path / "flowers.tar"
    with tarfile.open(source, "w") as archive:
        archive.add(tmp_path / "flowers", ".")
        assert archive.getnames()[0] == "."
    unpack(source, tmp_path / "x")
    assert (tmp_path / "x/roses/1.jpg").read_text() == "rose"


def test_failed_download_names_the_url_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModuleFailed, match=r"file:///no/such cannot be fetched"):
        fetch("file:///no/such", tmp_path / "x", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_downloaded_through_the_proxy_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible gives the module no proxy: it would be on a command line, and may contain a password."""
    asked: list[tuple[str, str]] = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Proxy-Authorization"]))
            self.send_response(200)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"key")

        def log_message(self, *_: object) -> None:
            pass

    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.setenv(name, "")  # what the module sets is undone after the test
    monkeypatch.setattr(share, "PROXIES", tmp_path / "proxy.env")
    path, url = tmp_path / "key", "http://far.example/key"
    with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://me:secret@127.0.0.1:{server.server_port}"
        (tmp_path / "proxy.env").write_text(f"http_proxy={address}\nhttps_proxy=\nno_proxy=\n")
        sha256 = hashlib.sha256(b"key").hexdigest()
        assert download({"url": url, "path": str(path), "sha256": sha256}, act=True) == {"changed": True}
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"key", 0o644)
        with pytest.raises(ModuleFailed, match=f"not {'0' * 64}, and was not installed"):
            download({"url": url, "path": str(path), "sha256": "0" * 64}, act=True)
        server.shutdown()
    assert asked == [(url, "Basic " + base64.b64encode(b"me:secret").decode())] * 2
    assert not path.exists()
    assert download({"url": "file:///none", "path": str(path), "sha256": "0" * 64}, act=False) == {"changed": True}


@pytest.mark.parametrize("old", ["old", "no such directory/old"])
def test_tree_is_replaced_even_if_the_earlier_one_cannot_be_renamed(tmp_path: Path, old: str) -> None:
    """As on overlayfs, if the earlier one is part of an image."""
    new, path = tmp_path / "new", tmp_path / "path"
    for folder in (new, path):
        folder.mkdir()
        (folder / folder.name).touch()
    replace_tree(new, path, tmp_path / old)
    assert [file.name for file in path.iterdir()] == ["new"]
    assert not new.exists() and (tmp_path / old).exists() == (old == "old")


def test_tree_is_moved_to_where_none_was(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    replace_tree(tmp_path / "new", tmp_path / "path", tmp_path / "old")
    assert [file.name for file in tmp_path.iterdir()] == ["path"]
