"""Preflight names packages that dpkg has left half installed. No role could install anything beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.facts import unfinished

from tests.unit.provision.fresh_host import facts, wanted
from tfctl.provision.decide.host import decide

STATUS = """\
Package: bash
Status: install ok installed
Version: 5.2

Package: tzdata
Status: install ok half-configured
Version: 2024a

Package: gone
Status: deinstall ok config-files

Package: man-db
Status: install ok triggers-pending
Version: 2.11

Package: libc6
Status: install reinstreq half-installed
"""


@pytest.fixture
def dpkg(tmp_path: Path) -> Path:
    (tmp_path / "updates").mkdir()
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "lock-frontend").touch()
    return tmp_path


def test_half_installed_packages_are_found(dpkg: Path) -> None:
    """Pending triggers are run by the next command of apt."""
    assert unfinished(dpkg) == ["tzdata", "libc6"]
    (dpkg / "updates/0001").touch()
    assert unfinished(dpkg) == ["tzdata", "libc6", ""]


def test_nothing_is_unfinished_where_dpkg_is_missing(tmp_path: Path) -> None:
    assert unfinished(tmp_path) == []


def test_packages_of_an_apt_that_runs_are_not_unfinished(dpkg: Path) -> None:
    hold = (
        f"import fcntl; file = open({str(dpkg / 'lock-frontend')!r}, 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(1, flush=True); input()"
    )
    words = [sys.executable, "-c", hold]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as apt:
        assert apt.stdout and apt.stdout.readline()
        assert unfinished(dpkg) == []
        apt.communicate("\n", timeout=20)
    assert unfinished(dpkg) == ["tzdata", "libc6"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["libc6"], "libc6 is half installed"),
        (["tzdata", "libc6", ""], "tzdata and libc6 are half installed"),
        ([""], "dpkg was interrupted"),
    ],
)
def test_preflight_says_how_to_complete_them(names: list[str], message: str) -> None:
    _, (fault,) = decide(facts(unfinished=names), wanted())
    assert fault["message"] == message and "dpkg --configure -a" in fault["remedy"]
