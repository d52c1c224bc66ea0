"""Lines as they are printed, and the times that --since and --until take."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import replace

import pytest
import typer
from records import make_record, make_state

from tfctl.cli.lines import Printer
from tfctl.cli.times import moment
from tfctl.cli.wait import detaching, reporting_the_outcome
from tfctl.errors import Exit, Unreachable, UsageError
from tfctl.jobs.journal import Line
from tfctl.jobs.state import JobState
from tfctl.node.wire import JobStateName

NAMES = [("chief", 0), ("worker", 0), ("worker", 10)]
STATE = JobState(
    "j",
    1,
    "running",
    "",
    None,
    make_record(),
    tuple(make_state(role, index) for role, index in NAMES),
)


def line(text: str, role: str = "chief", index: int = 0) -> Line:
    return Line(1700000000.1234, role, index, "node1", "stdout", text)


def printed(capsys: pytest.CaptureFixture[str], *texts: str, **how: bool) -> str:
    Printer(STATE, **how)(line(text) for text in texts)
    return capsys.readouterr().out


def test_prefixes_of_lines_have_equal_width(capsys: pytest.CaptureFixture[str]) -> None:
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
def test_a_progress_bar_is_printed_in_its_last_state(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, text) == f"chief/0   │ {shown}\n"


def test_timestamps_stand_before_the_prefix(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "a", timestamps=True) == "2023-11-14T22:13:20.123Z chief/0   │ a\n"


def test_json_holds_the_unchanged_line(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_time_is_local_unless_it_has_an_offset() -> None:
    assert moment("2023-11-14T22:13:20Z", "--since") == 1700000000.0
    assert moment("2023-11-14T23:13:20+01:00", "--since") == 1700000000.0
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1700000000))
    assert moment(local, "--since") == 1700000000.0
    assert moment(local.replace("T", " ")[:-3], "--since") == 1699999980.0
    assert moment(None, "--since") is None


@pytest.mark.parametrize("word", ["yesterday", "10 m", "-5m", "", "2023-13-01", "0", "10x"])
def test_a_word_that_is_neither_duration_nor_time_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        moment(word, "--until")


@pytest.mark.parametrize(
    ("end", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (BrokenPipeError(), typer.Exit),
        (Unreachable("no host answers"), Unreachable),
    ],
)
def test_wait_says_that_the_job_continues_when_interrupted(
    end: BaseException, raised: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(raised) as caught, detaching("digits"):
        raise end
    assert not isinstance(caught.value, typer.Exit) or caught.value.exit_code == Exit.NOT_ENDED
    assert "digits keeps running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "said"),
    [("succeeded", "j succeeded\n"), ("running", "j keeps running. To wait for its end, run `tfctl wait j`")],
)
@pytest.mark.parametrize("end", [KeyboardInterrupt(), Unreachable("no host answers")])
def test_wait_says_how_the_job_has_ended_when_interrupted_after_its_end(
    end: BaseException, state: JobStateName, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = deque([replace(STATE, state=state)])
    with pytest.raises((KeyboardInterrupt, typer.Abort, Unreachable)), detaching("j"), reporting_the_outcome(seen):
        raise end
    assert capsys.readouterr().err.startswith(said)
