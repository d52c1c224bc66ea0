"""A run of the lab tests ends with the time that each file took."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = """
import time, pytest

@pytest.fixture(scope="module")
def node():
    time.sleep(0.6)
    yield
    time.sleep(0.6)

def test_one(node): pass
def test_two(): assert not time.sleep(0.6)
"""


@pytest.mark.parametrize("processes", [[], ["-n", "2", "--dist", "loadfile"]], ids=["one", "two"])
def test_a_run_prints_the_time_of_each_file_with_its_fixtures(tmp_path: Path, processes: list[str]) -> None:
    (tmp_path / "test_quick.py").write_text("def test_fails(): assert not 1\ndef test_three(): pass\n")
    (tmp_path / "test_slow.py").write_text(SLOW)
    words = ["-m", "pytest", "-q", *processes, "-p", "tests.lab.durations", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "1 failed, 3 passed" in done.stdout
    found = re.findall(r"^ +([\d.]+) s  (\S+)$", done.stdout, re.MULTILINE)
    assert [name for _, name in found] == ["test_slow.py", "test_quick.py"]
    assert float(found[0][0]) >= 1.8
