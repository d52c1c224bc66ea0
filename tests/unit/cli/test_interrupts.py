"""Ctrl-C, SIGTERM and SIGHUP at any moment, also while a command still imports modules."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from node_tree import wait_until

INTERRUPTED = {"error": {"exit": 130, "message": "interrupted", "remedy": ""}}

#: Python runs it at its start. To find the module yaml takes as long as on a slow disk; an interruption becomes another
#: exception there, as it does in libraries that are written in Rust.
SLOW_DISK = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "yaml":
            print("reading", file=sys.stderr, flush=True)
            try:
                time.sleep(SECONDS)
            except BaseException:
                raise ImportError("yaml cannot be read") from None

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("seconds", [0.5, 600], ids=["once", "twice"])
def test_an_interruption_during_an_import_is_one(tmp_path: Path, number: signal.Signals, seconds: float) -> None:
    """The second signal interrupts an import that takes too long. The job file is a pipe that nobody writes to.

    A signal that comes just before Python begins to sleep does not wake it, so the second one is repeated.
    """
    (tmp_path / "sitecustomize.py").write_text(SLOW_DISK.replace("SECONDS", str(seconds)))
    os.mkfifo(tmp_path / "job.yaml")
    with _begin(["render", str(tmp_path / "job.yaml"), "-o", "json"], tmp_path) as client:
        assert client.stdout is not None
        assert client.stderr is not None and client.stderr.readline() == "reading\n"
        client.send_signal(number)
        other = signal.SIGINT if number is not signal.SIGINT else signal.SIGTERM
        for _ in range(10 if seconds > 1 else 0):
            client.send_signal(other)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(2)
                break
        assert (client.stderr.read(), client.wait(20)) == ("tfctl: interrupted\n", 130)
        assert json.loads(client.stdout.read()) == INTERRUPTED


@pytest.mark.extended
@pytest.mark.parametrize("words", [["provision"], ["reset", "--yes"]], ids=" ".join)
def test_an_interrupted_playbook_says_how_to_continue(tmp_path: Path, words: list[str]) -> None:
    """The host is behind a proxy command that reads what Ansible sends, and answers nothing."""
    reached, proxy, inventory = (tmp_path / name for name in ("reached", "proxy", "one.ini"))
    proxy.write_text(f"#!/bin/sh\n: > {reached}\nexec cat > /dev/null\n")
    proxy.chmod(0o755)
    inventory.write_text(f"node1 ansible_host=192.0.2.1 ansible_ssh_common_args='-o ProxyCommand={proxy}'\n")
    with _begin([*words, str(inventory), "-o", "json"], tmp_path) as client:
        wait_until(reached.exists)
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=60)
    assert (json.loads(out), client.returncode) == (INTERRUPTED, 130)
    assert "run it again to continue" in err and err.endswith("tfctl: interrupted\n")


@contextlib.contextmanager
def _begin(words: Sequence[str], path: Path) -> Iterator[subprocess.Popen[str]]:
    script = "from tfctl.cli.entry import main; main()"
    variables = {**os.environ, "PYTHONPATH": str(path)}
    words = [sys.executable, "-c", script, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=variables) as client:
        try:
            yield client
        finally:
            client.kill()
