"""What is installed by pip is enough: the playbooks, roles, locks and the node part are in the wheel and are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that has the package tfctl, out of its wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [
        find_uv_bin(),
        "build",
        "--wheel",
        "--offline",
        "--no-build-isolation",
        "--quiet",
        "--out-dir",
        str(folder),
    ]
    subprocess.run([*words, "--python", sys.executable, str(ROOT)], check=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    return folder / "site"


def test_all_that_a_node_gets_is_in_it(installed: Path) -> None:
    inside = {str(path.relative_to(installed / "tfctl")) for path in (installed / "tfctl").rglob("*") if path.is_file()}
    for folder, place in (("playbooks", "_ansible/playbooks"), ("roles", "_ansible/roles"), ("tfctl/node", "node")):
        tracked = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", folder],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout.splitlines()
        assert tracked
        assert {f"{place}/{name.removeprefix(folder + '/')}" for name in tracked} <= inside
    assert not [name for name in inside if "__pycache__" in name]


def test_it_provisions_from_there(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("away ansible_host=127.0.0.1 ansible_port=9 ansible_user=me\n")
    words = [sys.executable, "-m", "tfctl", "provision", "hosts.ini", "--stack", "none", "-o", "json"]
    variables = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["unreachable"] and "Connection refused" in host["reason"]
