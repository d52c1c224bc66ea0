"""The role packages, which other roles include, in check mode on a host without python3-apt."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.provision import ansible

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


@pytest.mark.parametrize(("names", "changed"), [(["make"], 1), (["g++"], 0), (["g++", "nosuch"], 1)])
def test_check_simulates_the_installation_with_apt_get(tmp_path: Path, names: list[str], changed: int) -> None:
    """``nosuch``: as while the lists of packages have never been downloaded."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT_GET)
    (tmp_path / "bin/apt-get").chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    settings = {
        **os.environ, "ANSIBLE_ROLES_PATH": str(ansible.data_dir() / "roles"), "ANSIBLE_NOCOLOR": "1",
        "CALLS": f"{tmp_path}/calls", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    words = [sys.executable, "-m", "ansible", "playbook", "--check", "-i", "localhost,", "play.yml", "-e"]
    words.append(json.dumps({**variables, "toolchain_packages": names}))
    done = subprocess.run(words, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=100)
    assert re.search(rf"changed={changed} .*failed=0", done.stdout), done.stdout + done.stderr
    assert (tmp_path / "calls").read_text() == f"-qs --no-install-recommends install {' '.join(names)}\n"
