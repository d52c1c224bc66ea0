"""Text that a host or a program chooses does not look like another line, cell, column or prefix of tfctl's output."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from records import make_record, make_state

from tests.unit.cli.terminal import Terminal
from tfctl.cli import common, exec, nodes, stacks, tables, verify
from tfctl.cli.candidates import candidates
from tfctl.cli.host_results import host_lines
from tfctl.cli.lines import Printer
from tfctl.cli.progress import ProgressDisplay
from tfctl.cli.report import ReportFormat, _tables
from tfctl.errors import TfctlError, Unreachable, together
from tfctl.jobs.completion_cache import CompletionNames
from tfctl.jobs.events import Event
from tfctl.jobs.journal import Line
from tfctl.jobs.nodes import NodeState
from tfctl.jobs.state import JobState
from tfctl.model.host import Host, Ssh
from tfctl.node import wire
from tfctl.provision.events import Began, HostDone, TaskStarted, Warned
from tfctl.provision.faults import Fault
from tfctl.provision.results import HostResult, PlayResult
from tfctl.report import table
from tfctl.report.figures import RunFigures, TaskFigures, compare
from tfctl.verify.results import ProofResult, ProofResults
from tfctl.wording import Lines, with_remedy

#: Where the text goes on as if it were something else.
FORGED = "FORGED"
#: All that could separate it: lines, columns, cells, and what moves the cursor or reverses text.
EVIL = "x" + "".join(
    f"{separator}{FORGED}"
    for separator in ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\t", "  ", "\xa0\xa0",
                      "\u3000\u2800\u3164", "\x1b[2K\x1b[G", "\x9b2K", "\u202e", "\u2066", "\u200b", "\n→ ", "\n  → ",
                      "\n~~ ", "\n│ ", "\ntfctl: ", "\nworker/0 │ ")
)  # fmt: skip
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")


def require_genuine(shown: str, lines: int | None = None, *, bars: bool = True) -> None:
    """Check that no line of ``shown`` looks as if tfctl had begun it. ``lines``: how many there are. ``bars``: further
    lines of foreign text may be there, if a bar is before them."""
    assert not INVISIBLE.search(shown), ascii(shown)
    own = [line for line in shown.split("\n") if not (bars and re.match(" *│ ", line))]
    for line in own:
        assert not re.match(rf" *(→ |~~ |│ |tfctl: |worker/0 +│ )?{FORGED}", line), ascii(shown)
    assert lines is None or len(own) == lines, ascii(shown)


TASK = make_state("worker", 0, EVIL, signal=EVIL, reason=EVIL)
RECORD = make_record([("worker", 0, EVIL)])._replace(strategy=EVIL, stack=EVIL, inventory=EVIL, output=EVIL)
JOB = JobState("digits", 1, "running", EVIL, None, RECORD, (TASK,))
NODE = wire.Node(
    protocol=1, version=EVIL, os=EVIL, kernel=EVIL, systemd=252, cpus=8, load=0.5, memory_mib=None, stacks={EVIL: EVIL},
    gpus=(wire.Gpu(EVIL, 0, EVIL, 1024, EVIL),), gpu_trouble=wire.Error(1, EVIL, EVIL), ports={2222: "a"},
    tasks=(wire.RunningTask("digits", "worker", 0, "running"),), stored_mib=512, cards=(wire.Card("GPU-1", EVIL),),
    disks=(wire.Disk("/", 1, 1, 1), wire.Disk(EVIL, 2, 1, 1)),
)  # fmt: skip
RUN = RunFigures("digits", 1, EVIL, "succeeded", (TaskFigures("worker", 0, EVIL, "succeeded"),), settings={"a": EVIL})


TABLES: dict[str, Callable[[], str]] = {
    "tasks": lambda: tables.TASKS.render([TASK]).text,
    "jobs": lambda: tables.JOBS.render([JOB]).text,
    "events": lambda: tables.EVENTS.render([Event(1.0, 1, EVIL, host=EVIL, by=EVIL, reason=EVIL, signal=EVIL)]).text,
    "hosts": lambda: nodes._HOSTS.render([NodeState(Host(EVIL, Ssh(EVIL)), NODE, "1")], wide=True).text,
    "gpus": lambda: nodes._GPUS.render([(EVIL, NODE.gpus[0])], wide=True).text,
    "cards": lambda: nodes._CARDS.render([(EVIL, NODE.cards[0])], wide=True).text,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_line_and_the_same_columns_for_a_row_whatever_its_cells_contain(name: str) -> None:
    shown = TABLES[name]()
    require_genuine(shown, 2, bars=False)
    heading, row = shown.splitlines()
    assert len(re.split("  +", row)) <= len(re.split("  +", heading))
    assert "x?FORGED?FORGED??FORGED" in row
    assert "\t" not in row


def test_the_report_of_a_job_has_no_forged_lines() -> None:
    require_genuine(tables.job_text(JOB).text, 4)
    require_genuine(nodes.table([NodeState(Host(EVIL, Ssh(EVIL)), NODE, "1")], wide=True).text)


def test_reports_of_runs_have_no_forged_lines_and_cells() -> None:
    report = compare([RUN])
    require_genuine(_tables(report, ReportFormat.text).text, bars=False)
    marked = table.markdown([["A", "B"], ["a\\| b |\nc", EVIL]])
    assert marked.splitlines()[2].startswith("| a\\\\\\| b \\|?c | x?FORGED")
    require_genuine(marked, 3, bars=False)
    rows = list(csv.DictReader(io.StringIO(table.csv_text(report))))
    assert len(rows) == 1
    require_genuine(rows[0]["host"] + rows[0]["run_strategy"], 1, bars=False)


def test_an_error_has_only_the_remedy_and_the_lines_that_tfctl_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    common.say_error(Unreachable(f"node1: {EVIL}", f"try {EVIL}"))
    shown = capsys.readouterr().err
    require_genuine(shown.rstrip("\n"), 2)
    assert shown.startswith("tfctl: node1: x\n  │ FORGED\n")
    errors = [TfctlError(f"node{number}: {EVIL}", Lines("do", EVIL)) for number in (1, 2)]
    common.say_error(together([*errors, TfctlError(EVIL)]))
    require_genuine(capsys.readouterr().err.rstrip("\n"))


def test_a_line_below_a_message_does_not_look_like_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    common.say(nodes.drift_message("node1", ["/etc/x changed", "→ tfctl reset", "  ⇒ tfctl reset", EVIL]))
    shown = capsys.readouterr().err
    require_genuine(shown.rstrip("\n"), 5)
    assert re.findall("^ *[→⇒].*", shown, re.MULTILINE) == ["  → tfctl provision INVENTORY --limit node1"]
    assert "\n  ? tfctl reset\n" in shown


def test_results_of_hosts_have_no_forged_lines() -> None:
    faults = (Fault(EVIL, EVIL), Fault("→ tfctl reset"), Fault("│ tfctl reset"))
    result = PlayResult((HostResult(EVIL, failed=True, task=EVIL, faults=faults, drifts=(EVIL, "→ tfctl reset")),))
    shown = "\n".join(host_lines(result, lambda _: "failed", lambda host: host.drifts))
    own = [line.strip() for line in shown.splitlines()[1:] if not re.match(" +│ ", line)]
    assert not INVISIBLE.search(shown)
    assert own[0] == "x"
    assert own[1].startswith("→ x?FORGED")
    assert own[2:] == ["? tfctl reset", "? tfctl reset", "x", "? tfctl reset"]


def test_the_progress_of_a_run_has_no_forged_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay() as progress:
        progress.take(Began((EVIL,), EVIL))
        progress.take(TaskStarted(EVIL))
        progress.take(Warned(EVIL, EVIL))
        progress.take(HostDone(EVIL, EVIL, "failed", diff=f"+{EVIL}\n{EVIL}"))
    require_genuine(capsys.readouterr().err.rstrip("\n"))


def test_a_task_name_is_not_markup_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressDisplay() as progress:
        progress.take(Began(("node1",)))
        progress.take(TaskStarted("[bold]task[/nonsense] \x1b]0;mine\x07"))
    assert "[bold]task[/nonsense] ?]0;mine?" in terminal.getvalue()


@pytest.mark.parametrize("timestamps", [False, True])
def test_each_line_of_what_a_task_logs_at_once_has_the_prefix_of_the_task(
    timestamps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "step 10\nchief/0  │ RuntimeError: loss is NaN\ntfctl: node1: job j failed\n"
    state = replace(JOB, tasks=(make_state("chief"), make_state("worker", 1)))
    for text in (forged, EVIL, EVIL + "\n\n", "\n"):
        Printer(state, timestamps)([Line(1.7e9, "worker", 1, "node2", "journal", text)])
    out = capsys.readouterr().out
    when = "2023-11-14T22:13:20.000Z " if timestamps else ""
    assert all(line.startswith(f"{when}worker/1 │ ") for line in out.rstrip("\n").split("\n")), ascii(out)
    assert not INVISIBLE.search(out)
    assert out.startswith(
        f"{when}worker/1 │ step 10\n{when}worker/1 │ chief/0  │ RuntimeError: loss is NaN\n"
        f"{when}worker/1 │ tfctl: node1: job j failed\n{when}worker/1 │ x\n"
    )
    Printer(state, as_json=True)([Line(1.7e9, "worker", 1, "node2", "journal", EVIL)])
    assert json.loads(capsys.readouterr().out)["line"] == EVIL


def test_each_line_of_a_command_has_the_prefix_of_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = (make_state("worker", 0), make_state("worker", 1))
    take = exec._Prefixed(tasks)
    take(tasks[0], 1, EVIL.encode() + b"\n")
    take(tasks[1], 2, EVIL.encode())
    take.close()
    out, err = capsys.readouterr()
    for prefix, shown in (("worker/0 │ ", out), ("worker/1 │ ", err)):
        assert all(line.startswith(prefix) for line in shown.rstrip("\n").split("\n")), ascii(shown)
        assert not INVISIBLE.search(shown)


def test_proofs_have_no_forged_lines(capsys: pytest.CaptureFixture[str]) -> None:
    results = (
        ProofResult(EVIL, (EVIL, "node2"), "failed", Lines(f"node1: {EVIL}", "node2: bad"), EVIL),
        ProofResult("imports", ("node1",), "failed", EVIL),
    )
    verify._print(ProofResults(results))
    require_genuine(capsys.readouterr().out)


def test_what_a_stack_would_be_on_a_host_has_no_forged_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"tf2.15 on {EVIL}", f"  note: {EVIL}", with_remedy("  cannot be: " + EVIL, EVIL)]
    stacks._print({}, lines, common.OutputFormat.text)
    require_genuine(capsys.readouterr().out.rstrip("\n"), 4)


def test_a_host_with_a_newline_in_its_name_is_no_candidate() -> None:
    tree: object = {"options": {"--limit": "HOST"}, "commands": {}, "arguments": "", "help": ""}
    known = CompletionNames({}, ("node1", "a\nb", "c\td"), 1.0)
    assert candidates(["--limit", ""], tree, known, []) == ["node1"]  # type: ignore[arg-type]
