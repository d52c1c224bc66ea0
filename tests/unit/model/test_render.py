"""Golden folders: what `tfctl render` writes for a job file. A change is made there by hand, and read:

tfctl render tests/golden/CASE/job.yaml --to DIR, then compare DIR with tests/golden/CASE/expected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.cli.main import run
from tfctl.model.plan import DROP_IN

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, because Ansible takes a second to read an inventory that is not in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.mark.parametrize("case", CASES)
def test_rendered_files_equal_the_golden_files(case: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["render", str(GOLDEN / case / "job.yaml"), "--to", str(out)]) == 0
    expected = GOLDEN / case / "expected"
    drop_ins = {path for path in files(out) if path.endswith("10-tfctl.conf")}
    assert {Path(path).parts[0] for path in drop_ins} == {path.name for path in out.iterdir()}
    assert all((out / path).read_text() == DROP_IN.read_text() for path in drop_ins)
    assert files(out) - drop_ins == files(expected)
    for path in sorted(files(expected)):
        assert (out / path).read_text() == (expected / path).read_text(), path


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    case, ascii_locale = GOLDEN / "custom-nasty-values", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "tfctl", "render", str(case / "job.yaml"), "--to", str(tmp_path / "out")]
    subprocess.run(command, env={**os.environ, **ascii_locale}, check=True, capture_output=True, timeout=60)
    for path in files(case / "expected"):
        assert (tmp_path / "out" / path).read_bytes() == (case / "expected" / path).read_bytes()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_rendered_units_are_hardened(case: str, alone: bool, tmp_path: Path) -> None:
    """systemd-analyze(1) security: 2.0 or better, with the drop-in beside the unit and without it."""
    tool = shutil.which("systemd-analyze")
    assert tool, "systemd-analyze is missing (on Debian: apt-get install systemd)"
    assert run(["render", str(GOLDEN / case / "job.yaml"), "--to", str(tmp_path)]) == 0
    for drop_in in tmp_path.glob("*/*/10-tfctl.conf") if alone else ():
        drop_in.unlink()
    for unit in tmp_path.glob("*/*.service"):
        done = subprocess.run(
            [tool, "security", "--offline=yes", "--threshold=20", "--no-pager", str(unit)],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("case", CASES)
def test_rendered_units_have_all_lines_of_the_drop_in(case: str, tmp_path: Path) -> None:
    """In each section the same lines, in the same order, and no other line with one of these keys."""
    assert run(["render", str(GOLDEN / case / "job.yaml"), "--to", str(tmp_path)]) == 0
    shared = sections(DROP_IN.read_text())
    assert "User=tfctl" in shared["Service"] and "NoNewPrivileges=yes" in shared["Service"]
    for unit in tmp_path.glob("*/*.service"):
        for section, lines in sections(unit.read_text()).items():
            keys = {line.partition("=")[0] for line in shared.get(section, [])}
            assert [line for line in lines if line.partition("=")[0] in keys] == shared.get(section, [])


def sections(text: str) -> dict[str, list[str]]:
    """Return the settings of each section of a unit or a drop-in."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^(?=\[)", text, flags=re.MULTILINE)[1:]:
        head, *lines = part.splitlines()
        found[head.strip("[]")] = [line for line in lines if line and not line.startswith("#")]
    return found


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
