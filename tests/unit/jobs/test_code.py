from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.jobs.code import Code, pack


def names(code: Code) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(code.data)) as archive:
        return archive.getnames()


def test_without_git_all_files_but_bytecode(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "train.pyc").write_text("")
    (tmp_path / "tfctl-output" / "digits").mkdir(parents=True)
    (tmp_path / "tfctl-output" / "digits" / "checkpoint").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b\n%.txt").write_text("x")
    assert names(pack(tmp_path)) == ["sub/a b\n%.txt", "train.py"]


def test_with_git_what_it_would_list(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("kept.py", "data.bin", ".gitignore", "gone.py"):
        (tmp_path / name).write_text("*.bin\n")
    subprocess.run(["git", "-C", tmp_path, "add", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    assert names(pack(tmp_path)) == [".gitignore", "kept.py"]


def test_a_folder_within_a_work_tree_is_packed_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "outside.py").write_text("")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("")
    assert names(pack(tmp_path / "job")) == ["train.py"]


def test_the_same_files_give_the_same_digest_and_a_mode_counts(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    first = pack(tmp_path).digest
    os.utime(tmp_path / "run.sh", (1, 1))
    assert pack(tmp_path).digest == first
    (tmp_path / "run.sh").chmod(0o755)
    assert pack(tmp_path).digest != first


def test_an_inner_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "real").write_text("x")
    (tmp_path / "sub" / "link").symlink_to("../sub/real")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).data)) as archive:
        assert archive.getmember("sub/link").linkname == "../sub/real"


@pytest.fixture
def mine() -> Iterator[Path]:
    """A directory of somebody whom permissions hold: root, who may read everything, is nobody meanwhile."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if root:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


@pytest.mark.parametrize("closed", ["secret", "sub"])
def test_what_cannot_be_read_is_named(closed: str, mine: Path) -> None:
    (mine / "secret").write_text("x")
    (mine / "sub").mkdir()
    (mine / closed).chmod(0)
    with pytest.raises(BadFile, match=f"{closed}: cannot be read: Permission denied"):
        pack(mine)
    (mine / closed).chmod(0o700)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "sub/../../secret"])
def test_a_link_that_leads_out_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BadFile, match="outside the code"):
        pack(tmp_path)


def test_too_much_and_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(BadFile, match="larger than 1 MB"):
        pack(tmp_path, limit_mb=1)
    (tmp_path / "data").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="neither file nor directory nor link"):
        pack(tmp_path)
