"""The node part is packed into one archive, with a list of what a host must have afterwards."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from tfctl.provision import node_part


def test_list_of_files_describes_the_archive(tmp_path: Path) -> None:
    packed = node_part.pack(tmp_path)
    found = []
    with tarfile.open(packed["archive"]) as tar:
        for member in tar:
            file = tar.extractfile(member)
            content = hashlib.sha256(file.read()).hexdigest() if file else "-"
            found.append(f"{member.name} {member.mode:04o} {member.uid} {content}")
    assert found == packed["files"]
    digest = packed["digest"]
    assert found[0] == f"{digest} 0755 0 -"
    names = [line.split()[0] for line in found]
    some = ("tfctl_node/wire/__init__.py", "tfctl_node/verbs/start.py", "runtime/tfctl_runtime/__init__.py", "end")
    assert {f"{digest}/{name}" for name in some} <= {*names}
    assert not any("__pycache__" in name or "/bin" in name for name in names)


def test_archive_depends_on_the_files_alone(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("one", "two"))
    for folder in (one, two):
        folder.mkdir()
    first, second = (Path(node_part.pack(folder)["archive"]) for folder in (one, two))
    assert first.read_bytes() == second.read_bytes()
    written = first.stat().st_mtime_ns
    node_part.pack(one)
    assert first.stat().st_mtime_ns == written and [*one.iterdir()] == [first]


def test_version_depends_on_the_program_that_sudo_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role runs again only if the version or another of its inputs has changed."""
    before = node_part.version()
    (tmp_path / "tfctl-node").write_text("#!/usr/bin/python3 -IS\n")
    monkeypatch.setattr(node_part, "_PROGRAM", tmp_path / "tfctl-node")
    assert node_part.version.__wrapped__() != before
