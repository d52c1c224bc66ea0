"""`tfctl reset` removes nothing before its user has confirmed it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.cli.reset import as_object
from tfctl.provision.results import HostResult, PlayResult

TFCTL = [sys.executable, "-m", "tfctl", "reset"]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Two hosts that cannot be reached."""
    path = tmp_path / "two.ini"
    path.write_text("".join(f"{name} ansible_host=127.0.0.1 ansible_port=9 ansible_user=me\n" for name in "ab"))
    return path


def test_reset_needs_yes_where_there_is_no_terminal(inventory: Path) -> None:
    done = subprocess.run(
        [*TFCTL, str(inventory)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tfctl: a reset must be confirmed, and there is no terminal\n  → add --yes\n"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("words", "answer", "code"), [([], "1", 2), ([], "yes", 2), ([], "2", 4), (["--limit", "b"], "1", 4)]
)
def test_reset_asks_for_the_number_of_hosts(inventory: Path, words: list[str], answer: str, code: int) -> None:
    ours, terminal = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    try:
        done = subprocess.run(
            [*TFCTL, str(inventory), *words], stdin=terminal, capture_output=True, text=True, timeout=100
        )
    finally:
        os.close(ours)
        os.close(terminal)
    assert done.returncode == code, done.stderr
    names = "b" if words else "a, b"
    assert f"{names}\nThis removes the stacks, accounts, files and packages that tfctl provision has" in done.stderr
    assert ("nothing was removed" in done.stderr) == (code == 2)
    assert ("unreachable" in done.stdout) == (code == 4)


@pytest.mark.extended
def test_reset_does_not_ask_with_yes_or_check(inventory: Path) -> None:
    for words in (["--yes"], ["--check"]):
        done = subprocess.run(
            [*TFCTL, str(inventory), *words, "-o", "json"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 4, done.stderr
        report = json.loads(done.stdout)
        assert (report["check"], report["exit"]) == ("--check" in words, 4)
        assert [(host["host"], host["unreachable"], host["removed"]) for host in report["hosts"]] == [
            ("a", True, []), ("b", True, []),
        ]  # fmt: skip


def test_reset_reports_what_was_removed_and_kept() -> None:
    host = HostResult("a", changed=1, removed=("/etc/tfctl", "user tfctl"), kept=("/srv/tfctl: it is not empty",))
    report = as_object(PlayResult((host,)), check=False)
    assert json.loads(json.dumps(report))["hosts"] == [
        {
            "host": "a", "removed": ["/etc/tfctl", "user tfctl"], "kept": ["/srv/tfctl: it is not empty"],
            "failed": False, "unreachable": False, "reason": "", "remedy": "",
        }
    ]  # fmt: skip
