"""Archives and keys: taken by their hash alone, unpacked once, and never outside their directory."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils import tfctl_fetch, tfctl_openpgp
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_unpacked import Unpacked


def tarball(path: Path, members: dict[str, str], links: dict[str, str] | None = None) -> str:
    """Makes an archive; its sha256."""
    with tarfile.open(path, "w:xz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o666
            archive.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    source, place = tmp_path / "cudnn.tar.xz", tmp_path / "opt/cudnn/8"
    digest = tarball(source, {"cuda/lib64/libcudnn.so.8.9": "code"}, {"cuda/lib64/libcudnn.so.8": "libcudnn.so.8.9"})
    asked = Unpacked(source.as_uri(), digest, place, "tar", "libcudnn.so.8")
    assert not asked.done()
    asked.bring()
    assert (place / "lib/libcudnn.so.8").read_text() == "code"
    assert (place / "lib/libcudnn.so.8.9").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in place.parent.iterdir()] == ["8"]
    assert asked.done()
    for harm in (lambda: (place / "lib/libcudnn.so.8.9").write_text("edited"), (place / ".tfctl-archive.json").unlink):
        harm()
        assert not asked.done()
        asked.bring()
        assert (place / "lib/libcudnn.so.8").read_text() == "code"


def test_an_archive_with_another_hash_leaves_what_was_there(tmp_path: Path) -> None:
    source, place = tmp_path / "nccl.txz", tmp_path / "nccl/2"
    digest = tarball(source, {"nccl/lib/libnccl.so.2": "code"})
    Unpacked(source.as_uri(), digest, place, "tar", "libnccl.so.2").bring()
    with pytest.raises(Failed, match=f"has sha256 {digest}; {'1' * 64} was asked for, so it was not installed"):
        Unpacked(source.as_uri(), "1" * 64, place, "tar", "libnccl.so.2").bring()
    assert (place / "lib/libnccl.so.2").exists()
    with pytest.raises(Failed, match=r"has no libother\.so in its lib"):
        Unpacked(source.as_uri(), digest, place, "tar", "libother.so").bring()
    assert [path.name for path in place.parent.iterdir()] == ["2"]


@pytest.mark.parametrize(
    ("members", "links"),
    [({"../../evil": "x"}, {}), ({"a/lib/x": "y"}, {"a/lib/out": "../../../../etc"}), ({"/etc/evil": "x"}, {})],
)
def test_an_archive_stays_inside(tmp_path: Path, members: dict[str, str], links: dict[str, str]) -> None:
    source = tmp_path / "evil.txz"
    digest = tarball(source, members, links)
    with pytest.raises(Failed, match="would lie outside"):
        Unpacked(source.as_uri(), digest, tmp_path / "x/y", "tar", "x").bring()
    assert list((tmp_path / "x").iterdir()) == []


def test_a_runfile_is_told_the_place_it_gets(tmp_path: Path) -> None:
    """A fake of CUDA's installer, which is a shell script with a payload: its words are the real one's."""
    runfile, place = tmp_path / "cuda_12.2.2_linux.run", tmp_path / "opt/cuda/12.2.2"
    runfile.write_text(
        '#!/bin/sh\nset -e\ntest "$1 $2 $4" = "--silent --toolkit --override"\nto=${3#--toolkitpath=}\n'
        'mkdir -p "$to/lib64"; echo code > "$to/lib64/libcudart.so.12"; echo "$to" > "$to/place"\n'
        'touch "$TMPDIR/here"\n'
    )
    sha256 = hashlib.sha256(runfile.read_bytes()).hexdigest()
    asked = Unpacked(runfile.as_uri(), sha256, place, "runfile", "libcudart.so.12")
    asked.bring()
    assert (place / "place").read_text().strip() == str(place)
    assert not place.is_symlink() and asked.done()
    runfile.write_text("#!/bin/sh\necho 'no room'; exit 1\n")
    sha256 = hashlib.sha256(runfile.read_bytes()).hexdigest()
    with pytest.raises(Failed, match="no room"):
        Unpacked(runfile.as_uri(), sha256, place, "runfile", "libcudart.so.12").bring()


def test_a_download_that_fails_names_the_address_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"file:///no/such cannot be fetched"):
        tfctl_fetch.fetch("file:///no/such", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def packet(body: bytes, new: bool) -> bytes:
    return (b"\xc6\xff" + len(body).to_bytes(4, "big") if new else b"\x99" + len(body).to_bytes(2, "big")) + body


@pytest.mark.parametrize("new", [False, True])
def test_a_fingerprint_is_that_of_the_first_packet(new: bool) -> None:
    body = b"\x04" + b"\0\0\0\1" + b"\1" + b"x" * 300
    wanted = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    data = packet(body, new) + b"\xb4\x05hello"
    armored = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: 1\n\n" + base64.encodebytes(data) + b"=abcd\n-----END"
    assert tfctl_openpgp.fingerprint(data) == tfctl_openpgp.fingerprint(armored) == wanted


def test_the_fingerprint_of_a_real_key() -> None:
    """Debian's own archive key: what gpg says of it."""
    ring = Path("/usr/share/keyrings/debian-archive-bookworm-stable.gpg")
    if not ring.exists():
        pytest.skip("this machine has no Debian archive key to read")
    assert tfctl_openpgp.fingerprint(ring.read_bytes()) == "4D64FEC119C2029067D6E791F8D2585B8783D481"


@pytest.mark.parametrize(
    "data", [b"", b"<html>not found</html>", packet(b"\x06" + b"x" * 20, True), b"\x99\xff\xffshort"]
)
def test_what_is_no_key_has_no_fingerprint(data: bytes) -> None:
    with pytest.raises(ValueError, match="OpenPGP"):
        tfctl_openpgp.fingerprint(data)
