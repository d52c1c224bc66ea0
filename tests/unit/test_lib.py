"""scripts/lib.sh names what a machine lacks for the tests, in one sentence."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

LIB = Path(__file__).parents[2] / "scripts/lib.sh"


def test_missing_programs_and_files_are_named_together_where_apt_cannot_install_them(tmp_path: Path) -> None:
    for name in ("id", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    wanted = ["no-such-program=one", f"{tmp_path}/no-such-file=two", "sh=three", f"{tmp_path}/id=four"]
    script = f'. {LIB}; PATH={tmp_path}; programs "$@"'
    done = subprocess.run(["bash", "-c", script, "bash", *wanted], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (
        1,
        f"Missing: no-such-program, {tmp_path}/no-such-file. "
        "On Debian or Ubuntu, install them with: sudo apt-get install one two\n",
    )
