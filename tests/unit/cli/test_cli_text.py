"""Tables, times and colours."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest
from records import make_record, make_state

from tests.unit.cli.terminal import Terminal, use_terminal
from tfctl.cli import common, tables, text
from tfctl.cli.host_results import host_lines
from tfctl.cli.progress import ProgressDisplay
from tfctl.cli.wait import sentence
from tfctl.jobs.state import JobState
from tfctl.node import wire
from tfctl.provision.events import HostDone, Warned
from tfctl.provision.faults import Fault
from tfctl.provision.results import HostResult, PlayResult
from tfctl.wording import plain


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Asked anew by each test."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    text._takes_colours.cache_clear()
    yield
    text._takes_colours.cache_clear()


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows = [("TASK", "STATE", "EXIT"), ("worker/10", "failed", "1"), ("ps/0", "running", "")]
    assert text.table(rows, state=1).text.splitlines() == [
        "TASK       STATE    EXIT",
        "worker/10  failed   1",
        "ps/0       running",
    ]


def test_control_characters_are_replaced() -> None:
    evil = "a\x1b[2Jb\x9b1mc\rd\x07e\x7f"
    assert plain(evil) == "a?[2Jb?1mc?d?e?"
    assert plain("tab\tand größer ✓") == "tab\tand größer ✓"
    assert "\x1b" not in text.table([("HOST", "STATE"), (evil, "failed")], state=1).text


def test_control_characters_from_hosts_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "apt says \x1b]0;mine\x07"
    with ProgressDisplay() as progress:
        progress.take(Warned("node1", evil))
        progress.take(HostDone("node1", "a task", "changed", diff=evil))
    failed = HostResult("node1", failed=True, task="a task", faults=(Fault(evil, evil),))
    print(*host_lines(PlayResult((failed,)), lambda _: "failed"), sep="\n")
    common.say(evil)
    out, err = capsys.readouterr()
    assert (out.count("apt says ?]0;mine?"), err.count("apt says ?]0;mine?")) == (2, 3)


def test_states_are_coloured_on_a_terminal_without_shifting_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("TASK", "STATE", "EXIT"), ("ps/0", "failed", "1"), ("ps/1", "succeeded", "0")]
    plain = text.table(rows, state=1).text
    monkeypatch.setattr("sys.stdout", Terminal())
    text._takes_colours.cache_clear()
    shown = text.table(rows, state=1).text
    assert "\x1b[31mfailed   \x1b[0m" in shown
    assert "\x1b[32msucceeded\x1b[0m" in shown
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[0m"):
        shown = shown.replace(code, "")
    assert shown == plain


@pytest.mark.parametrize("variable", ["NO_COLOR", None])
def test_there_are_no_colours_without_a_terminal_or_with_no_color(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", Terminal() if variable else io.StringIO())
    if variable:
        monkeypatch.setenv(variable, "1")
    assert text.coloured("failed", "red") == "failed"


def test_an_empty_no_color_leaves_the_colours_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """no-color.org: present, and not an empty string."""
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert text.coloured("failed", "red") != "failed"


@pytest.mark.parametrize(("state", "lasted"), [("running", "42 s"), ("stopped", ""), ("failed", ""), ("lost", "")])
def test_only_a_task_that_is_alive_lasts_until_now(state: wire.TaskStateName, lasted: str) -> None:
    """Its end is unknown if its host has lost power after somebody stopped it."""
    now = time.time()
    running = JobState("digits", 1, "failed", "", now, make_record(), (make_state(state=state, started=now - 42),))
    heading, row = tables.job_text(running).text.splitlines()[-2:]
    assert row[heading.index("LASTED") :].strip() == lasted


def test_a_lost_task_has_no_duration() -> None:
    task = make_state(state="lost", started=time.time() - 42)
    record = make_record(started=time.time() - 42)
    gone = JobState("digits", 1, "failed", "worker/0 on node1 is lost", None, record, (task,))
    assert " s" not in tables.job_text(gone).text.splitlines()[-1]
    assert sentence(gone) == "digits failed: worker/0 on node1 is lost"


def test_json_is_one_line_in_a_pipe_and_indented_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text.print_json({"job": "größer", "tasks": []})
    assert capsys.readouterr().out == '{"job": "gr\\u00f6\\u00dfer", "tasks": []}\n'
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    text.print_json({"job": "j"})
    assert terminal.getvalue() == '{\n  "job": "j"\n}\n'


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (-5, "0 s")]
)
def test_a_duration_is_shown_in_its_largest_unit(seconds: int, shown: str) -> None:
    assert text.lasted(1000.0, 1000.0 + seconds) == shown


def test_missing_times_are_empty_cells() -> None:
    assert text.lasted(None, 5.0) == ""
    assert text.clock(None) == ""


def test_a_time_of_another_day_has_its_date() -> None:
    assert text.clock(time.time()).count(":") == 2
    assert text.clock(time.time() - 400 * 86400).startswith("20")


ROWS = [("TASK", "HOST", "STATE", "EXIT"), ("worker/10", "node1", "failed", "SIGKILL"), ("ps/0", "node2", "ok", "")]
WRAPPED = [
    "TASK       HOST", "    STATE   EXIT", "worker/10  node1", "    failed  SIGKILL", "ps/0       node2", "    ok",
]  # fmt: skip


def test_columns_of_a_high_rank_are_left_out_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    use_terminal(monkeypatch, 20)
    shown = text.table(ROWS, ranks=[0, 2, 0, 1])
    assert shown.text.splitlines() == ["TASK       STATE", "worker/10  failed", "ps/0       ok"]
    assert shown.left_out == ("HOST", "EXIT")
    monkeypatch.setenv("COLUMNS", "26")
    assert text.table(ROWS, ranks=[0, 2, 0, 1]).left_out == ("HOST",)
    monkeypatch.setenv("COLUMNS", "33")
    assert text.table(ROWS, ranks=[0, 2, 0, 1]) == text.table(ROWS)


def test_columns_of_rank_0_continue_on_the_next_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    use_terminal(monkeypatch, 20)
    shown = text.table(ROWS, state=2)
    assert (shown.text.splitlines(), shown.left_out) == (WRAPPED, ())


def test_a_wide_table_keeps_all_columns_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    use_terminal(monkeypatch, 20)
    shown = text.table(ROWS, ranks=[0, 2, 0, 1], wide=True)
    assert (shown.text.splitlines(), shown.left_out) == (WRAPPED, ())


def test_a_table_in_a_pipe_does_not_depend_on_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = text.table(ROWS, ranks=[0, 2, 0, 1])
    assert (len(shown.text.splitlines()), shown.left_out) == (3, ())


def test_columns_that_are_left_out_are_named_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    text.show(text.joined([text.Rendered("a"), text.Rendered("b", ("LOAD", "CPUS")), text.Rendered("c", ("LOAD",))]))
    assert capsys.readouterr() == ("a\n\nb\n\nc\n", "2 columns are left out: LOAD, CPUS; -o wide shows all\n")
    text.show(text.Rendered("a"))
    assert capsys.readouterr().err == ""


def test_a_dumb_terminal_gets_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert text.state_word("failed") == "failed"
