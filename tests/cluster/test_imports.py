"""Commands for running jobs import no slow library that they do not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.hosts import STAY, Hosts

NEVER = {"pydantic", "jinja2", "yaml", "rich", "ansible", "asyncio", "uv"}
SCRIPT = """
import sys
from tfctl.cli.main import run
code = run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.extended
def test_commands_for_running_jobs_import_no_slow_library(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("light", STAY + "roles: {worker: 1}\n"))
    for words, code in (
        (["status", "light"], 0),
        (["list"], 0),
        (["nodes"], 0),
        (["events", "light"], 0),
        (["logs", "worker", "0"], 0),
        (["exec", "worker", "0", "--", "date"], 0),
        (["pull", "light"], 0),
        (["restart", "light", "worker", "0"], 0),
        (["restart", "light"], 0),
        (["stop", "light"], 0),
        (["wait", "light"], 103),
        (["logs", "--follow", "-o", "json"], 0),
    ):
        command = [sys.executable, "-c", SCRIPT, *hosts.words(*words)]
        done = subprocess.run(command, cwd=hosts.folder, capture_output=True, text=True, timeout=60)
        loaded = set(done.stderr.split())
        assert done.returncode == code, (words, done.stderr)
        assert "paramiko" in loaded, words
        assert loaded & NEVER == set(), words
