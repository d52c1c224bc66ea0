"""tfctl names the process that uses apt or dnf while it waits for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import package_lock
from ansible_collections.tfctl.cluster.plugins.module_utils.install import PATIENCE_S, Locked
from ansible_collections.tfctl.cluster.plugins.module_utils.package_lock import wait_until_free
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import Apt, Dnf, missing

#: A program that locks a file as apt, dpkg and rpm do, until its standard input ends.
LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
open("/proc/self/comm", "w").write("unattended-upgr")
print(1, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_lock, "TURN_S", 0.1)


@pytest.fixture(params=["var/lib/dpkg/lock-frontend", "var/lib/apt/lists/lock", "var/lib/rpm/.rpm.lock"])
def locker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has locked a file of the host tmp_path."""
    path = tmp_path / request.param
    path.parent.mkdir(parents=True)
    words = [sys.executable, "-c", LOCK, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.kill()


def test_process_with_a_lock_of_apt_or_rpm_is_named_until_it_ends(
    tmp_path: Path, locker: subprocess.Popen[str]
) -> None:
    said = rf"^unattended-upgr \(process {locker.pid}\) uses the package manager$"
    with pytest.raises(Locked, match=said) as waiting:
        wait_until_free(tmp_path)
    assert waiting.value.fault["patience_s"] == PATIENCE_S
    locker.communicate("\n", timeout=20)
    wait_until_free(tmp_path)


@pytest.mark.parametrize("name", ["var/cache/dnf/metadata_lock.pid", "var/lib/dnf/rpmdb_lock.pid"])
def test_process_whose_id_dnf_has_written_is_named_unless_it_is_dead(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as dnf:
        path.write_text(str(dnf.pid))
        with pytest.raises(Locked, match=rf"^sleep \(process {dnf.pid}\) uses the package manager$"):
            wait_until_free(tmp_path)
        dnf.kill()
    wait_until_free(tmp_path)


@pytest.mark.parametrize("manager", [Apt, Dnf])
def test_nothing_is_installed_while_another_process_uses_the_package_manager(
    tmp_path: Path, manager: type[Apt] | type[Dnf], locker: subprocess.Popen[str]
) -> None:
    host = manager()
    host.root = tmp_path
    with pytest.raises(Locked, match=f"process {locker.pid}"):
        missing(host, ["tfctl-no-such-package"], act=True)
