"""`tfctl completion`: what is offered for the last word of a command line, and how fast."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.cli.candidates import FILES, candidates
from tfctl.cli.completion import tree
from tfctl.cli.main import run
from tfctl.jobs import completion_cache
from tfctl.jobs.completion_cache import CompletionNames

FOUND = CompletionNames({"digits-ps": {"ps": 2, "worker": 3}, "other": {"worker": 1}}, ("node1", "node2"), 1.0)
TREE = tree()


def offered(*words: str) -> list[str]:
    return [line.partition("\t")[0] for line in candidates(words, TREE, FOUND, ["tf2.15", "tf1.15"])]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["st"], ["start", "status", "stop", "stacks"]),
        (["lab", "u"], ["up"]),
        (["status", ""], ["digits-ps", "other", FILES]),
        (["stop", "dig"], ["digits-ps", FILES]),
        (["prune", "dig"], ["digits-ps", FILES]),
        (["logs", ""], ["ps", "worker", "digits-ps", "other", FILES]),
        (["logs", "worker", ""], ["0", "1", "2"]),
        (["logs", "other", "worker", ""], ["0"]),
        (["logs", "other", ""], ["worker"]),
        (["exec", "digits-ps", "p"], ["ps"]),
        (["exec", "worker", "0", "--", ""], [FILES]),
        (["start", ""], [FILES]),
        (["status", "-o", ""], ["text", "wide", "json"]),
        (["status", "-o", "json", ""], ["digits-ps", "other", FILES]),
        (["status", "-i", ""], [FILES]),
        (["logs", "-j", ""], ["digits-ps", "other", FILES]),
        (["start", "-j", ""], [FILES]),
        (["report", "other", ""], ["digits-ps", "other", FILES]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["init", "-s", "mi"], ["mirrored"]),
        (["provision", "--stack", "tf2"], ["tf2.15"]),
        (["provision", "--limit", ""], ["node1", "node2"]),
        (["stacks", "explain", ""], ["tf2.15", "tf1.15"]),
        (["status", "--wat"], ["--watch"]),
        (["nonesuch", ""], list(TREE["commands"])),
    ],
)
def test_completion_offers_the_words_that_can_follow(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_commands_are_offered_with_a_description() -> None:
    [line] = candidates(["stat"], TREE, FOUND, [])
    assert line == "status\tShow a job's tasks with host, state and exit code"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty cache and a `tfctl` on the PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "tfctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tfctl "$@"\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("words", "expected"), [("sta", "start status stacks"), ("logs worker ''", "0 1 2"), ("status di", "digits-ps")]
)
def test_bash_completes_by_the_printed_code(words: str, expected: str, environment: dict[str, str]) -> None:
    completion_cache.note({"digits-ps": ["ps", "ps", "worker", "worker", "worker"]}, ["node1"], everything=True)
    script = (
        f"source <(tfctl completion bash); COMP_WORDS=(tfctl {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        "_tfctl; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=environment["XDG_CACHE_HOME"].rpartition("/")[0],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_of_each_shell_asks_tfctl_for_candidates(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "tfctl __complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, timeout=30, check=True)


def test_completion_imports_no_commands_once_they_are_cached(environment: dict[str, str]) -> None:
    command = ["tfctl", "__complete", "sta"]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout == first.stdout
    code = "import sys; sys.argv = ['tfctl', '__complete', 'sta']; import tfctl.cli.candidates as c; c.main(['sta'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules, file=sys.stderr)"], env=environment, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert {"typer", "paramiko", "yaml", "pydantic"}.isdisjoint(done.stderr.split())


def test_known_jobs_are_replaced_or_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert completion_cache.load() == CompletionNames()
    completion_cache.note({"one": ["worker", "worker"]}, ["node1"], everything=True)
    completion_cache.note({"two": ["ps"]}, ["node1", "node2"], everything=False)
    found = completion_cache.load()
    assert found.jobs == {"one": {"worker": 2}, "two": {"ps": 1}}
    assert found.hosts == ("node1", "node2")
    completion_cache.note({}, ["node1"], everything=True)
    assert completion_cache.load().jobs == {}
    completion_cache._file().write_text("[]")
    assert completion_cache.load() == CompletionNames()


def test_the_time_at_which_hosts_are_asked_for_completion_is_noted_if_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert completion_cache.mark_as_refreshing() and completion_cache.load().age is not None
    completion_cache.note({"one": ["worker"]}, ["node1"], everything=True)
    os.utime(completion_cache._file(), (0, 0))
    assert completion_cache.mark_as_refreshing() and completion_cache.load().jobs == {"one": {"worker": 1}}
    completion_cache._file().write_text("[]")
    assert completion_cache.mark_as_refreshing() and completion_cache.load().jobs == {}
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert not completion_cache.mark_as_refreshing()
