"""Run the playbooks by ansible-playbook alone, in a Python environment without tfctl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

LOCAL = "ansible_connection=local ansible_become=false ansible_python_interpreter={{ansible_playbook_python}}"


def packages_without_tfctl(folder: Path) -> Path:
    """Link to the installed packages, without tfctl, and return the directory."""
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "tfctl" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


def ansible_playbook(
    packages: Path, folder: Path, playbook: Path | str, settings: str, *words: str, **environment: str
) -> dict[str, Any]:
    """Run a playbook on this machine, as the host "here" with these settings; return the result of its last task."""
    (folder / "hosts.ini").write_text(f"here {LOCAL} {settings}\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")} | {
        "PYTHONPATH": str(packages),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_STDOUT_CALLBACK": "minimal",
        **environment,
    }
    command = [sys.executable, "-S", "-P", "-m", "ansible", "playbook", "-i", "hosts.ini", str(playbook), *words]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=100)
    results = done.stdout.split(" => ")
    assert len(results) > 1, done.stdout + done.stderr
    found, _ = json.JSONDecoder().raw_decode(results[-1])
    return dict(found)
