"""The role packages, which other roles include: when it downloads lists, and a check on a host without python3-apt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.provision.apt_tree import AptTree
from tests.unit.provision.role_play import check, facts, play, tasks_of
from tests.unit.provision.test_repository import repository

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {pkg_mgr: apt, cacheable: true}
    - ansible.builtin.include_role:
        name: toolchain
"""
#: A fake of apt-get(8) that writes down how it is called. Only g++ is installed, and there is a list of make alone.
APT_GET = """#!/bin/sh
echo "$*" >>"$CALLS"
for name in "$@"; do
    case $name in
    make) echo "Inst make (4.3-4.1 Debian:12.9/stable [amd64])" ;;
    g++ | install | -*) ;;
    *) echo "E: Unable to locate package $name" >&2; exit 100 ;;
    esac
done
"""


def assert_changed(folder: Path, names: list[str], changed: int, **variables: str) -> None:
    """Run the role in check mode for these packages, with these environment variables."""
    (folder / "play.yml").write_text(PLAY)
    settings = {**os.environ, "ANSIBLE_NOCOLOR": "1", **variables}
    given = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "toolchain_packages": names}
    words = [sys.executable, "-m", "ansible", "playbook", "--check", "-i", "localhost,", "play.yml"]
    words += ["-e", json.dumps(given)]
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=100)
    assert re.search(rf"changed={changed} .*failed=0", done.stdout), done.stdout + done.stderr


@pytest.mark.extended
@pytest.mark.parametrize(("names", "changed"), [(["make"], 1), (["g++"], 0), (["g++", "nosuch"], 1)])
def test_check_simulates_the_installation_with_apt_get(tmp_path: Path, names: list[str], changed: int) -> None:
    """``nosuch``: as while the lists of packages have never been downloaded."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT_GET)
    (tmp_path / "bin/apt-get").chmod(0o755)
    assert_changed(tmp_path, names, changed, CALLS=f"{tmp_path}/calls", PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    options = "-qs --no-upgrade --no-install-recommends"
    assert (tmp_path / "calls").read_text() == f"{options} install {' '.join(names)}\n"


@pytest.mark.extended
@pytest.mark.parametrize(("names", "changed"), [(["make"], 0), (["make", "gcc"], 1)])
def test_check_reports_no_upgrade_of_what_is_installed(tmp_path: Path, names: list[str], changed: int) -> None:
    """The module apt, which installs the packages, upgrades none. Real apt-get has a list with another version."""
    tree = AptTree(tmp_path / "host", repository(tmp_path / "debian", "Debian", "2", "make", "gcc"))
    tree.update()
    status = "Package: make\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n"
    (tmp_path / "host/state/status").write_text(f"{status}Maintainer: x\nDescription: x\n")
    assert_changed(tmp_path, names, changed, APT_CONFIG=f"{tmp_path}/host/apt.conf")


@pytest.mark.extended
def test_lists_of_packages_are_downloaded_where_there_are_none(tmp_path: Path) -> None:
    """The module apt looks only at the age of their directory."""
    lists = tmp_path / "lists"
    (lists / "partial").mkdir(parents=True)
    tasks = tasks_of("packages", "main.yml")
    (look,) = (task for task in tasks if "ansible.builtin.find" in task)
    (install,) = (task["ansible.builtin.apt"] for task in tasks if "ansible.builtin.apt" in task)
    look["ansible.builtin.find"]["paths"] = str(lists)
    for seconds in (0, 86400):
        found = check(f"valid | int == {seconds}", valid=install["cache_valid_time"])
        play(tmp_path, "packages", [facts(pkg_mgr="apt"), look, found])
        (lists / "mirror_debian_dists_bookworm_InRelease").touch()
