from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tfctl import __version__
from tfctl.cli import main
from tfctl.errors import Busy

# What takes longer to import than a verb may take to answer.
SLOW = {"paramiko", "ansible", "pydantic", "jinja2", "rich", "yaml", "asyncio"}


def test_help_prints_usage_and_complete_sentences_as_the_whole_command_line_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["--help"]) == 0
    shown, said = capsys.readouterr()
    assert said == "" and shown.startswith("Usage: tfctl ")
    assert "..." not in shown.partition("Commands:")[2], "a sentence is cut off"
    with typer.main.get_command(main.command_line()).make_context("tfctl", ["list"]) as context:
        assert shown.rstrip("\n") == context.get_help()


@pytest.mark.parametrize("words", [["--", "status"], ["stacks", "list"]])
def test_commands_run_after_help_on_tfctl_was_shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["--help"])
    capsys.readouterr()
    main.run(words)
    done = capsys.readouterr()
    assert done.out or done.err


def test_help_imports_nothing_slow() -> None:
    code = "import sys; from tfctl.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert "typer" in done.stderr.split()
    assert SLOW.isdisjoint(done.stderr.split())


def test_version_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"tfctl {__version__}\n"


def test_garbage_collection_is_delayed_in_long_commands() -> None:
    """It leaves out the objects that there were when the command began."""
    script = """
import gc, time, weakref
from tfctl.cli.entry import collect_later
class Cycle:
    def __init__(self):
        self.own = self
collect_later(0.3)
early = weakref.ref(Cycle())
assert not gc.isenabled()
until = time.monotonic() + 20
while not gc.isenabled():
    assert time.monotonic() < until
    time.sleep(0.01)
late = weakref.ref(Cycle())
kept = [[] for _ in range(200_000)]
assert early() and not late(), (early(), late())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", [">&-", "2>&- >&-"])
def test_closed_output_stream_is_not_an_error(where: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m tfctl stacks {where}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("words", "code"), [(["status", "-i", "none.ini"], 3), (["run", "job.yaml", "--local"], 100)])
def test_verb_keeps_its_exit_code_when_stderr_is_a_broken_pipe(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: quiet\nstrategy: custom\ncommand: 'false'\nroles: {worker: 1}\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "tfctl", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environ, stderr=nobody, timeout=60)
    assert done.returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has one")
def test_full_disk_is_reported_when_output_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "tfctl", "stacks"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (1, "tfctl: cannot write the output: No space left on device\n")


def test_output_replaces_characters_that_the_locale_cannot_encode(tmp_path: Path) -> None:
    job = "name: letters\nstrategy: custom\ncommand: [echo, größer ✓]\nroles: {worker: 1}\n"
    (tmp_path / "job.yaml").write_text(job, "utf-8")
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tfctl", "run", "job.yaml", "--local"],
        capture_output=True, cwd=tmp_path, env=environ, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "worker/0 ? größer ?\n".encode("latin-1"))


@pytest.mark.parametrize("umask", ["000", "077", "0777"])
def test_files_that_are_created_can_be_used_with_every_umask(umask: str, tmp_path: Path) -> None:
    tfctl = f"{sys.executable} -m tfctl"
    script = f"umask {umask} && {tfctl} init project && {tfctl} check project/job.yaml -i a,b,c,d"
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    made = [*(tmp_path / "project").rglob("*"), *(tmp_path / "cache").rglob("*")]
    assert made
    assert all(path.stat().st_mode & (0o700 if path.is_dir() else 0o600) >= 0o600 for path in made)


@pytest.mark.parametrize("words", [["no-such-verb"], ["--no-such-option"]])
def test_unknown_verb_or_option_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert words[0] in said
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", ["provision", "preflight", "reset"])
def test_become_password_is_refused_when_nobody_can_enter_it(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        assert main.run([verb, "hosts.ini", "-K"]) == 2
    printed, said = capsys.readouterr()
    assert printed == ""
    assert said.startswith("tfctl: -K asks for a password, and stdin is not a terminal\n  → run it in a terminal")


@pytest.mark.parametrize(
    ("verb", "option", "what"),
    [("start", "-j", "job file"), ("render", "--job", "job file"), ("check", "-j", "job file"),
     ("run", "-j", "job file"), ("provision", "-i", "inventory"), ("preflight", "-i", "inventory"),
     ("verify", "--inventory", "inventory")],
)  # fmt: skip
def test_verb_takes_its_file_as_argument_or_option_but_not_both(
    verb: str, option: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ("--local",) if verb == "run" else ()
    assert main.run([verb, option, "none.yaml", *local]) == 3
    assert "none.yaml" in capsys.readouterr().err
    assert main.run([verb, *local]) == 2
    assert f"no {what} specified" in capsys.readouterr().err
    assert main.run([verb, "one", option, "two", *local]) == 2
    assert "given twice: one and two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (Busy("job digits runs", "tfctl stop digits"), 5, "tfctl: job digits runs\n  → tfctl stop digits\n"),
        (Busy("node1 says \x1b[2J"), 5, "tfctl: node1 says ?[2J\n"),
        (KeyboardInterrupt(), 130, "tfctl: interrupted\n"),
        (PermissionError(13, "Permission denied", "/no"), 1, "tfctl: /no: Permission denied\n"),
        (ZeroDivisionError("oh"), 1, "tfctl: this is a bug in tfctl: ZeroDivisionError: oh\n"),
    ],
)
def test_error_is_printed_as_a_sentence_with_its_exit_code(
    error: BaseException, code: int, stderr: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_app: object) -> None:
        raise error

    monkeypatch.setattr("typer.main.get_command", fail)
    assert main.run([]) == code
    assert capsys.readouterr().err.startswith(stderr)


@pytest.mark.parametrize(
    ("word", "said"),
    [("ps", "tfctl status"), ("ls", "tfctl list"), ("cancel", "tfctl stop"), ("explain", "tfctl stacks explain"),
    ],
)  # fmt: skip
def test_command_of_another_tool_names_the_right_one(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([word, "x"]) == 2
    assert capsys.readouterr().err.startswith(f"tfctl: tfctl has no command {word!r}\n  → {said} ")


@pytest.mark.parametrize(
    ("words", "code"),
    [(["status", "-i", "none.ini", "-o", "json"], 3), (["stop", "-i", "none.ini", "--output=json"], 3),
     (["start", "none.yaml", "-ojson"], 3), (["logs", "worker/x", "-o", "json"], 2), (["list", "-x", "-o", "json"], 2),
     (["stacks", "explain", "tf0", "-o", "json"], 3)],
)  # fmt: skip
def test_errors_are_json_too(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == code
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert (error["exit"], set(error)) == (code, {"exit", "message", "remedy"})
    assert error["message"] and error["message"].splitlines()[0] in err


def test_json_option_behind_the_dashes_belongs_to_the_command_on_the_hosts() -> None:
    assert not main.wants_json(["exec", "worker", "--", "kubectl", "-o", "json"])
    assert main.wants_json(["exec", "-o", "json", "worker", "--", "x"])


def test_json_option_is_found_in_each_form() -> None:
    for words in ("-o json", "-ojson", "--output json", "--output=json", "-fo json", "-fojson"):
        assert main.wants_json(["logs", *words.split()]), words
    for words in (
        "logs -o text json",
        "logs --job json",
        "logs --grep -efoo",
        "run --local --output json",
        "run --output=json",
    ):
        assert not main.wants_json(words.split()), words
    assert main.wants_json(["run", "--local", "-o", "json"])
