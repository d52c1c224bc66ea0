"""The role packages, which other roles include: it finds what is missing, and records what it is about to install."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import fake_dnf
import fake_host_programs
import pytest

from tests.unit.provision.role_play import check, play, tasks_of

#: A host with g++, and a package source with more. No package of apt's Python module is installed.
APT = {
    "packages": {"g++": {"version": "12"}},
    "offers": {
        "g++": {"version": "13"}, "make": {"version": "4", "needs": ["g++", "libguile"]}, "libguile": {"version": "3"},
        "python3-apt": {"version": "2"},
    },
    "units": {}, "calls": [],
}  # fmt: skip


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state of a host with fakes of apt-get and dpkg-query."""
    (tmp_path / "host.json").write_text(json.dumps(APT))
    with fake_host_programs.serve(tmp_path / "bin", tmp_path / "host.json"):
        monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
        yield tmp_path / "host.json"


def find(folder: Path, *names: str, expected: list[str], changed: bool = False, options: tuple[str, ...] = ()) -> str:
    """Run the task of the role that finds the missing packages among these; return what it records on the host."""
    task = tasks_of("packages", "main.yml")[0]
    given = {"packages_names": [*names], "packages_installed": f"{folder}/state/installed"}
    that = ("packages_missing.install == expected", "packages_missing is changed == changes")
    play(folder, "packages", [{**task, "vars": given}, check(*that, expected=expected, changes=changed)], *options)
    path = folder / "state/installed"
    return path.read_text() if path.exists() else ""


def calls(apt: Path) -> list[str]:
    return [words.split()[0] for words in json.loads(apt.read_text())["calls"]]


@pytest.mark.extended
def test_packages_are_recorded_before_apt_installs_them(tmp_path: Path, apt: Path) -> None:
    """With what they need, and what Ansible's module installs by itself. g++ is there, and not upgraded."""
    assert find(tmp_path, "g++", "make", expected=["make"]) == "libguile\nmake\npython3-apt\n"
    assert calls(apt) == ["dpkg-query", "apt-get", "apt-get", "dpkg-query"]


@pytest.mark.extended
def test_packages_that_are_installed_cost_one_query(tmp_path: Path, apt: Path) -> None:
    assert find(tmp_path, "g++", expected=[]) == ""
    assert calls(apt) == ["dpkg-query"]


@pytest.mark.extended
def test_check_reports_missing_packages_and_needs_no_package_lists(tmp_path: Path, apt: Path) -> None:
    """``nosuch``: as while the lists have never been downloaded."""
    assert find(tmp_path, "g++", "nosuch", expected=["nosuch"], changed=True, options=("--check",)) == ""
    assert calls(apt) == ["dpkg-query"]


@pytest.mark.extended
def test_packages_are_recorded_before_dnf_installs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"make": ["1:4.3-7.el9"], "gc": ["0:8-1.el9"], "gcc-c++": ["0:11-1.el9"]}
    there = {"gcc-c++": "0:11-1.el9"}
    state = {"installed": there, "offers": offers, "needs": {"make": ["gc"]}, "calls": []}
    (tmp_path / "dnf.json").write_text(json.dumps(state))
    fake_dnf.install(tmp_path / "bin")
    for name in ("python3", "sh", "env", "getconf"):  # nothing of apt
        program = Path("/usr/bin", name)
        if program.exists():
            (tmp_path / "bin" / name).symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setenv("FAKE_DNF", str(tmp_path / "dnf.json"))
    monkeypatch.setenv("FAKE_LOCKS", str(tmp_path / "versionlock.list"))
    assert find(tmp_path, "gcc-c++", "make", expected=["make"]) == "gc\nmake\n"
