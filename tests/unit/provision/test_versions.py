"""The node part, the playbooks' modules and the lab read the versions of a system with one file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import versions as node_versions

from tfctl.node import versions


def test_modules_of_the_playbooks_use_the_file_of_the_node_part() -> None:
    assert Path(node_versions.__file__).resolve() == Path(versions.__file__).resolve()


def test_os_release_is_the_first_file_that_can_be_read_without_comments_and_quotes(tmp_path: Path) -> None:
    files = [tmp_path / "etc", tmp_path / "usr"]
    assert versions.os_release(files) == {}
    files[1].write_text("# a comment\nID=debian\n\nVERSION_ID=\"12\"\nPRETTY_NAME='Debian = 12'\n")
    assert versions.os_release(files) == {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian = 12"}
    files[0].write_text("ID=ubuntu\n")
    assert versions.os_release(files) == {"ID": "ubuntu"}


@pytest.mark.parametrize(
    ("printed", "version"),
    [("systemd 252 (252.39-1)", 252), ("systemd 257~rc1 (257~rc1-4)", 257), ("", None), ("offline", None)],
)
def test_version_of_systemd_is_the_number_that_systemctl_prints(printed: str, version: int | None) -> None:
    assert versions.systemd([sys.executable, "-c", f"print({printed!r})"]) == version


def test_version_of_systemd_is_unknown_without_systemctl() -> None:
    assert versions.systemd(["/nowhere/systemctl"]) is None
