"""Lines as they are printed, and the times that --since and --until take."""

from __future__ import annotations

import json
import time

import pytest

from tfctl.cli.logs import Printer, moment
from tfctl.cli.wait import detaching
from tfctl.errors import Unreachable, UsageError
from tfctl.jobs.logs import Line
from tfctl.jobs.state import JobState, TaskState

NAMES = [("chief", 0), ("worker", 0), ("worker", 10)]
STATE = JobState(
    "j", 1, "running", "", None, {}, tuple(TaskState(role, index, "n", "", 1, "", "running") for role, index in NAMES)
)


def line(text: str, role: str = "chief", index: int = 0) -> Line:
    return Line(1700000000.1234, role, index, "node1", "stdout", text)


def printed(capsys: pytest.CaptureFixture[str], *texts: str, **how: bool) -> str:
    Printer(STATE, **how)(line(text) for text in texts)
    return capsys.readouterr().out


def test_prefixes_are_of_one_width(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(STATE)([line("a"), line("b", "worker", 10)])
    assert capsys.readouterr().out == "chief/0   │ a\nworker/10 │ b\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" 1/9 [>..]\r 9/9 [===]", " 9/9 [===]"),
        (" 9/9 [===]\r", " 9/9 [===]"),
        ("whole\r\r", "whole"),
        ("\r", ""),
        ("\x1b[31mred\x1b[0m\tand more", "?[31mred?[0m\tand more"),
        ("", ""),
    ],
)
def test_what_a_reader_of_a_terminal_would_have_seen(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, text) == f"chief/0   │ {shown}\n"


def test_times_before_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "a", timestamps=True) == "2023-11-14T22:13:20.123Z chief/0   │ a\n"


def test_json_has_the_line_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, " 1/9\r 9/9 ✓\r", "\x1b[0m", as_json=True)
    first, second = map(json.loads, out.splitlines())
    assert first == {
        "time": "2023-11-14T22:13:20.123Z", "role": "chief", "index": 0, "host": "node1", "stream": "stdout",
        "line": " 1/9\r 9/9 ✓\r",
    }  # fmt: skip
    assert second["line"] == "\x1b[0m"


@pytest.mark.parametrize(("word", "ago"), [("10m", 600), ("90", 90), ("1h30m", 5400), ("2d", 172800)])
def test_a_duration_counts_back_from_now(word: str, ago: int) -> None:
    found = moment(word, "--since")
    assert found is not None
    assert abs(time.time() - ago - found) < 60


def test_a_time_is_local_unless_it_says_otherwise() -> None:
    assert moment("2023-11-14T22:13:20Z", "--since") == 1700000000.0
    assert moment("2023-11-14T23:13:20+01:00", "--since") == 1700000000.0
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1700000000))
    assert moment(local, "--since") == 1700000000.0
    assert moment(local.replace("T", " ")[:-3], "--since") == 1699999980.0
    assert moment(None, "--since") is None


@pytest.mark.parametrize("word", ["yesterday", "10 m", "-5m", "", "2023-13-01", "0", "10x"])
def test_what_is_neither(word: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        moment(word, "--until")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), BrokenPipeError(), Unreachable("no host answers")])
def test_who_leaves_a_job_alone_is_told_what_stays(end: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(type(end)), detaching("digits"):
        raise end
    assert "digits goes on" in capsys.readouterr().err
