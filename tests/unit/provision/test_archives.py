"""Archives are never unpacked outside their directory; keys are identified by their fingerprint."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import tarfile
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ansible.module_utils import tfctl_share
from ansible.module_utils.tfctl_install import ModuleFailed, unpack
from ansible.module_utils.tfctl_share import fetch

from playbooks.library.tfctl_download import download
from tfctl.provision.openpgp import expiry, fingerprint, read


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


def test_a_file_is_downloaded_through_the_proxy_of_the_host_with_or_without_a_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(tfctl_share, "PROXIES", tmp_path / "proxy.env")
    path, url = tmp_path / "key", "http://far.example/key"
    with http.server.HTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://me:secret@127.0.0.1:{server.server_port}"
        (tmp_path / "proxy.env").write_text(f"http_proxy={address}\nhttps_proxy=\nno_proxy=\n")
        for sha256 in (None, hashlib.sha256(b"key").hexdigest()):
            assert download({"url": url, "path": str(path), "sha256": sha256}, act=True) == {"changed": True}
            assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"key", 0o644)
        with pytest.raises(ModuleFailed, match=f"not {'0' * 64}, and was not installed"):
            download({"url": url, "path": str(path), "sha256": "0" * 64}, act=True)
        server.shutdown()
    assert asked == [(url, "Basic " + base64.b64encode(b"me:secret").decode())] * 3
    assert not path.exists()
    assert download({"url": "file:///none", "path": str(path), "sha256": None}, act=False) == {"changed": True}


def packet(body: bytes, new: bool) -> bytes:
    return (b"\xc6\xff" + len(body).to_bytes(4, "big") if new else b"\x99" + len(body).to_bytes(2, "big")) + body


@pytest.mark.parametrize("new", [False, True])
def test_key_fingerprint_is_computed_from_the_first_packet(new: bool) -> None:
    body = b"\x04" + b"\0\0\0\1" + b"\1" + b"x" * 300
    wanted = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    data = packet(body, new) + b"\xb4\x05hello"
    armored = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: 1\n\n" + base64.encodebytes(data) + b"=abcd\n-----END"
    assert fingerprint(data) == fingerprint(armored) == wanted


def test_key_fingerprint_of_the_debian_archive_key_matches_gpg() -> None:
    """The expected value is what gpg prints for the archive key of Debian 12."""
    ring = Path("/usr/share/keyrings/debian-archive-bookworm-stable.gpg")
    assert fingerprint(ring.read_bytes()) == "4D64FEC119C2029067D6E791F8D2585B8783D481"


DAY = 24 * 3600
KEY = packet(b"\x04" + DAY.to_bytes(4, "big") + b"\1" + b"x" * 300, True)
KEY_ID = bytes.fromhex(fingerprint(KEY))[-8:]


def signature(made: int, expires: int, kind: int = 0x13, by: bytes = KEY_ID) -> bytes:
    """Return a signature, without its numbers (RFC 9580, section 5.2.3). ``by``: the key ID of who made it."""
    hashed = b"\x05\x02" + made.to_bytes(4, "big") + b"\x02\x1b\x03"
    if expires:
        hashed += b"\x05\x89" + expires.to_bytes(4, "big")
    rest = b"\0\x0a\x09\x10" + by
    body = b"\x04" + bytes([kind]) + b"\x01\x08" + len(hashed).to_bytes(2, "big") + hashed + rest
    return b"\xc2" + bytes([len(body)]) + body


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        (b"", None),
        (signature(DAY, 0), None),
        (signature(DAY, 364 * DAY), datetime(1971, 1, 1, tzinfo=UTC)),
        (signature(DAY, DAY) + signature(3 * DAY, 364 * DAY), datetime(1971, 1, 1, tzinfo=UTC)),  # it was extended
        (signature(3 * DAY, 0) + signature(DAY, DAY), None),
        (signature(3 * DAY, 0, by=b"somebody") + signature(DAY, DAY), datetime(1970, 1, 3, tzinfo=UTC)),
        (signature(3 * DAY, 0, kind=0x1F) + signature(DAY, DAY), datetime(1970, 1, 3, tzinfo=UTC)),
        (signature(DAY, DAY, kind=0x28), None),  # it revokes a subkey
        (b"\xce\x06subkey" + signature(DAY, DAY), None),
    ],
)
def test_key_expires_when_its_newest_signature_says(signatures: bytes, expected: datetime | None) -> None:
    assert expiry(KEY + b"\xb4\x05hello" + signatures) == expected


@pytest.mark.parametrize(("name", "day"), [("stable", "2031-01-21"), ("automatic", "2031-01-19")])
def test_keys_of_the_debian_archive_expire_on_the_day_that_gpg_prints(name: str, day: str) -> None:
    ring = Path(f"/usr/share/keyrings/debian-archive-bookworm-{name}.gpg")
    end = expiry(ring.read_bytes())
    assert end and f"{end:%Y-%m-%d}" == day


@pytest.mark.parametrize(
    "data", [b"", b"<html>not found</html>", packet(b"\x06" + b"x" * 20, True), b"\x99\xff\xffshort"]
)
def test_key_fingerprint_refuses_data_that_is_not_a_key(data: bytes) -> None:
    with pytest.raises(ValueError, match="OpenPGP"):
        fingerprint(data)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ("", "", False)),
        (b"<html>not found</html>", ("", "", False)),
        (KEY, (fingerprint(KEY), "", False)),
        (KEY + signature(DAY, 364 * DAY), (fingerprint(KEY), "1971-01-01", True)),
        (KEY + signature(DAY, 2**32 - 1), (fingerprint(KEY), "2106-02-08", False)),
    ],
)
def test_key_file_says_whether_its_key_has_expired(content: bytes, expected: tuple[str, str, bool]) -> None:
    assert tuple(read(content).values()) == expected
