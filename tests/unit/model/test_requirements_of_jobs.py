"""The lock of a requirements file belongs to its content and to one environment of a stack."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tfctl.errors import BadFile, PreflightFailed
from tfctl.local import machine
from tfctl.model import requirements, stacks
from tfctl.model.requirements import Lock

STACK = stacks.get("tf2.15")


def stored(file: Path, packages: str = "six==1.17.0\n") -> Lock:
    path = requirements.lock_path(file, STACK, "cpu", "3.11")
    lock = Lock(path, STACK.environment("cpu", "3.11"), packages)
    requirements.store(lock, file, STACK, "cpu", "3.11")
    return lock


def test_lock_is_found_until_the_file_or_one_that_it_includes_changes(tmp_path: Path) -> None:
    file, more = tmp_path / "requirements.txt", tmp_path / "more.txt"
    file.write_text("six\n-r more.txt\n")
    more.write_text("attrs\n")
    assert requirements.find(file, STACK, "cpu", "3.11") is None
    lock = stored(file)
    assert lock.path.name == "requirements.tf2.15-cpu-3.11.lock"
    assert requirements.find(file, STACK, "cpu", "3.11") == lock
    assert requirements.find(file, STACK, "gpu", "3.11") is None
    more.write_text("attrs==25.1\n")
    assert requirements.find(file, STACK, "cpu", "3.11") is None
    more.unlink()
    with pytest.raises(BadFile, match=r"more\.txt: cannot be read"):
        requirements.find(file, STACK, "cpu", "3.11")


def test_directory_depends_on_the_packages_and_the_environment_alone(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("six\n")
    lock = stored(file)
    assert re.fullmatch(r"/opt/tfctl/requirements/[0-9a-f]{12}", lock.directory)
    file.write_text("six  # ours\n")
    assert stored(file).directory == lock.directory
    assert stored(file, "six==1.16.0\n").directory != lock.directory
    assert Lock(lock.path, "tf2.15-0123456789ab", lock.packages).directory != lock.directory


def test_environment_of_a_host_determines_edition_and_python() -> None:
    assert requirements.of_environment(STACK, STACK.environment("gpu", "3.10")) == ("gpu", "3.10")
    assert requirements.of_environment(STACK, "tf2.15-0123456789ab") is None


def test_local_run_names_the_packages_that_the_active_python_lacks(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    packages = {"six": "1.16.0", "zope.interface": "7.0"}
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'python': '3.8.10', 'packages': packages})}'\n")
    python.chmod(0o755)
    file = tmp_path / "requirements.txt"
    file.write_text("six  # any\nzope.interface>=6\n--index-url https://example.org\n\nwin ; sys_platform == 'win32'\n")
    environ = {"PATH": f"{python.parent}:/usr/bin:/bin"}
    machine.require_packages(file, environ)
    file.write_text("tomli; python_version >= '3.11'\n")  # the Python of tfctl itself
    machine.require_packages(file, environ)
    file.write_text("six>=1.17\nattrs; python_version < '3.9'\n")
    with pytest.raises(PreflightFailed, match=r"six>=1\.17 \(1\.16\.0 is installed\), attrs") as raised:
        machine.require_packages(file, environ)
    assert raised.value.remedy == f"python -m pip install -r {file}"
