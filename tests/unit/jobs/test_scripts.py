"""Scripts that change TF_CONFIG are found before they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfctl.jobs import code, scripts

CHANGES = """\
import os
os.environ["TF_CONFIG"] = "{}"
os.environ.pop('TF_CONFIG', None)
os.environ.update({"A": "1", "TF_CONFIG": "{}"})
os.environ.update(TF_CONFIG="{}")
del os.environ["TF_CONFIG"]
os.putenv("TF_CONFIG", "")
if True:
    os.environ[
        "TF_CONFIG"
    ] = "{}"
"""
READS = """\
import json, os
config = json.loads(os.environ["TF_CONFIG"])
config = os.environ.get("TF_CONFIG", "")
os.environ.setdefault("TF_CONFIG", "{}")
config["TF_CONFIG"] = 1  # os.environ["TF_CONFIG"] = 1
"invalid \\e"
"""


def test_every_line_that_changes_tf_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text(CHANGES)
    lines = [remark.partition(" changes ")[0] for remark in scripts.remarks(tmp_path, sorted(code.names(tmp_path)))]
    assert lines == [f"pkg/train.py, line {line}" for line in (2, 3, 4, 5, 6, 7, 9)]


def test_reading_tf_config_and_broken_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(READS)
    (tmp_path / "old.py").write_text('print "TF_CONFIG"; os.environ["TF_CONFIG"] = 1\n')
    (tmp_path / "bytes.py").write_bytes(b"TF_CONFIG \0")
    (tmp_path / "notes.txt").write_text('os.environ["TF_CONFIG"] = 1\n')
    assert scripts.remarks(tmp_path, sorted(code.names(tmp_path))) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("/usr/bin/python3.11 -u -W ignore -X dev sub/train.py", "sub/train.py"),
        ("python -um package.train x.py", ""),
        ("python -c pass x.py", ""),
        ("python - x.py", ""),
        ("python", ""),
        ("python /opt/train.py", ""),
        ("python {role}.py", ""),
        ("sh train.py", ""),
    ],
)
def test_the_script_of_a_python_command_is_found(command: str, script: str) -> None:
    assert scripts.script_of(command.split()) == script
