from __future__ import annotations

import subprocess
import sys

import pytest

from tfctl import __version__
from tfctl.cli import main
from tfctl.errors import Busy

# What takes longer to import than a verb may take to answer.
SLOW = {"paramiko", "ansible", "pydantic", "jinja2", "rich", "yaml", "asyncio"}


def tfctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tfctl", *words], capture_output=True, text=True, timeout=30)


def test_help_names_the_program() -> None:
    done = tfctl("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: tfctl ")
    assert done.stderr == ""
    assert "..." not in done.stdout.partition("Commands:")[2], "a sentence is cut off"


def test_help_imports_nothing_slow() -> None:
    code = "import sys; from tfctl.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert "typer" in done.stderr.split()
    assert SLOW.isdisjoint(done.stderr.split())


def test_version() -> None:
    assert tfctl("--version").stdout == f"tfctl {__version__}\n"


@pytest.mark.parametrize("words", [["no-such-verb"], ["--no-such-option"]])
def test_wrong_words_are_usage_errors(words: list[str]) -> None:
    done = tfctl(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words[0] in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Busy("job digits runs", "tfctl stop digits"), 5, "tfctl: job digits runs\n  → tfctl stop digits\n"),
        (KeyboardInterrupt(), 130, "tfctl: interrupted\n"),
        (ZeroDivisionError("oh"), 1, "tfctl: this is a defect in tfctl: ZeroDivisionError: oh\n"),
    ],
)
def test_an_error_becomes_a_sentence_and_an_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_app: object) -> None:
        raise error

    monkeypatch.setattr("typer.main.get_command", fail)
    assert main.run([]) == code
    assert capsys.readouterr().err.startswith(said)
