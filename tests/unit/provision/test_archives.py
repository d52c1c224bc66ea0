"""Archives are verified by hash, unpacked once and never outside their directory; keys by their fingerprint."""

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
    """Create an archive and return its SHA-256 digest."""
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


def test_archive_is_unpacked_once_and_again_after_damage(tmp_path: Path) -> None:
    source, place = tmp_path / "cudnn.tar.xz", tmp_path / "opt/cudnn/8"
    digest = tarball(source, {"cuda/lib64/libcudnn.so.8.9": "code"}, {"cuda/lib64/libcudnn.so.8": "libcudnn.so.8.9"})
    archive = Unpacked(source.as_uri(), digest, place, "tar", "libcudnn.so.8")
    assert not archive.done()
    archive.bring()
    assert (place / "lib/libcudnn.so.8").read_text() == "code"
    assert (place / "lib/libcudnn.so.8.9").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in place.parent.iterdir()] == ["8"]
    assert archive.done()
    for damage in (
        lambda: (place / "lib/libcudnn.so.8.9").write_text("edited"),
        (place / ".tfctl-archive.json").unlink,
    ):
        damage()
        assert not archive.done()
        archive.bring()
        assert (place / "lib/libcudnn.so.8").read_text() == "code"


def test_archive_with_a_wrong_hash_keeps_the_installed_version(tmp_path: Path) -> None:
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
def test_archive_is_refused_when_a_member_points_outside(
    tmp_path: Path, members: dict[str, str], links: dict[str, str]
) -> None:
    source = tmp_path / "evil.txz"
    digest = tarball(source, members, links)
    with pytest.raises(Failed, match="would lie outside"):
        Unpacked(source.as_uri(), digest, tmp_path / "x/y", "tar", "x").bring()
    assert list((tmp_path / "x").iterdir()) == []


def test_runfile_is_run_with_its_final_path_as_prefix(tmp_path: Path) -> None:
    """A fake of the CUDA installer, a shell script that takes the options of the real one."""
    runfile, place = tmp_path / "cuda_12.2.2_linux.run", tmp_path / "opt/cuda/12.2.2"
    runfile.write_text(
        '#!/bin/sh\nset -e\ntest "$1 $2 $4" = "--silent --toolkit --override"\nto=${3#--toolkitpath=}\n'
        'mkdir -p "$to/lib64"; echo code > "$to/lib64/libcudart.so.12"; echo "$to" > "$to/place"\n'
        'touch "$TMPDIR/here"\n'
    )
    sha256 = hashlib.sha256(runfile.read_bytes()).hexdigest()
    archive = Unpacked(runfile.as_uri(), sha256, place, "runfile", "libcudart.so.12")
    archive.bring()
    assert (place / "place").read_text().strip() == str(place)
    assert not place.is_symlink() and archive.done()
    runfile.write_text("#!/bin/sh\necho 'no room'; exit 1\n")
    sha256 = hashlib.sha256(runfile.read_bytes()).hexdigest()
    with pytest.raises(Failed, match="no room"):
        Unpacked(runfile.as_uri(), sha256, place, "runfile", "libcudart.so.12").bring()


def test_failed_download_names_the_url_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"file:///no/such cannot be fetched"):
        tfctl_fetch.fetch("file:///no/such", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def packet(body: bytes, new: bool) -> bytes:
    return (b"\xc6\xff" + len(body).to_bytes(4, "big") if new else b"\x99" + len(body).to_bytes(2, "big")) + body


@pytest.mark.parametrize("new", [False, True])
def test_key_fingerprint_is_computed_from_the_first_packet(new: bool) -> None:
    body = b"\x04" + b"\0\0\0\1" + b"\1" + b"x" * 300
    wanted = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    data = packet(body, new) + b"\xb4\x05hello"
    armored = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: 1\n\n" + base64.encodebytes(data) + b"=abcd\n-----END"
    assert tfctl_openpgp.fingerprint(data) == tfctl_openpgp.fingerprint(armored) == wanted


def test_key_fingerprint_of_the_debian_archive_key_matches_gpg() -> None:
    """The expected value is what gpg prints for the archive key of Debian 12."""
    ring = Path("/usr/share/keyrings/debian-archive-bookworm-stable.gpg")
    if not ring.exists():
        pytest.skip("this machine has no Debian archive key to read")
    assert tfctl_openpgp.fingerprint(ring.read_bytes()) == "4D64FEC119C2029067D6E791F8D2585B8783D481"


@pytest.mark.parametrize(
    "data", [b"", b"<html>not found</html>", packet(b"\x06" + b"x" * 20, True), b"\x99\xff\xffshort"]
)
def test_key_fingerprint_refuses_data_that_is_not_a_key(data: bytes) -> None:
    with pytest.raises(ValueError, match="OpenPGP"):
        tfctl_openpgp.fingerprint(data)
