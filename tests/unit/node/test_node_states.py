"""The state of a task, its exit code and times, and the end lines from which they are computed."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfctl.node import states, units
from tfctl.node.states import Invocation, InvocationEnd
from tfctl.node.wire import TaskStatus

TASK = ("worker", 0)
GOOD = InvocationEnd("success", "exited", "0", "a", 100.0)
BAD = InvocationEnd("exit-code", "exited", "3", "a", 100.0)
KILLED = InvocationEnd("signal", "killed", "KILL", "a", 100.0)
ASKED = InvocationEnd("success", "killed", "TERM", "a", 100.0)
DEADLINE = InvocationEnd("timeout", "killed", "TERM", "a", 100.0)
KEYS = ["ActiveState", "ExecMainCode", "ExecMainStatus", "ExecMainExitTimestampMonotonic", "InvocationID"]
ENDS = st.builds(InvocationEnd, st.text(), st.text(), st.text(), st.text(), st.floats(0, 1e12))
LIMIT = InvocationEnd("start-limit-hit", "exited", "1", "a", 100.0)


def invocations(*ends: InvocationEnd) -> list[Invocation]:
    """Return invocations that have ended, as a file of an earlier version describes them: without their beginning."""
    earlier = [Invocation(f"{end.invocation}{number}", end=end) for number, end in enumerate(ends[:-1])]
    return [*earlier, *(Invocation(end.invocation, end=end) for end in ends[-1:])]


def unit(active: str, sub: str = "", **more: str) -> dict[str, str]:
    return {"ActiveState": active, "SubState": sub, "InvocationID": "a", **more}


@pytest.mark.parametrize(
    ("shown", "ends", "marked", "reserved", "state"),
    [
        (unit("activating", "start"), [], False, True, "starting"),
        (unit("activating", "auto-restart"), [BAD], False, False, "starting"),
        (unit("activating", "auto-restart"), [BAD], True, False, "starting"),
        (unit("active", "running"), [], False, False, "running"),
        (unit("active", "running"), [BAD], False, False, "running"),
        (unit("deactivating", "stop-sigterm"), [], True, False, "running"),
        (unit("deactivating", "stop-post"), [GOOD], False, False, "running"),
        (unit("inactive", "dead"), [ASKED], True, False, "stopped"),
        (unit("failed", "failed"), [KILLED], True, False, "stopped"),
        (None, [], True, False, "stopped"),
        (unit("inactive", "dead"), [GOOD], False, False, "succeeded"),
        (None, [GOOD], False, False, "succeeded"),
        (None, [BAD, GOOD], False, False, "succeeded"),
        (unit("failed", "failed"), [GOOD, BAD], False, False, "failed"),
        (None, [KILLED], False, False, "failed"),
        (None, [ASKED], False, False, "failed"),
        (None, [DEADLINE], False, False, "failed"),
        (unit("failed", "failed"), [LIMIT], False, False, "failed"),
        (unit("inactive", "dead"), [], False, True, "pending"),
        (None, [], False, True, "pending"),
        (unit("inactive", "dead"), [], False, False, "lost"),
        (None, [], False, False, "lost"),
    ],
)
def test_state_of_a_task_is_the_first_rule_that_applies(
    shown: dict[str, str] | None, ends: list[InvocationEnd], marked: bool, reserved: bool, state: str
) -> None:
    assert states.state(shown, invocations(*ends), marked=marked, reserved=reserved).state == state


@pytest.mark.parametrize(
    "last", [Invocation("a", "b1", stopped=True, end=GOOD), Invocation("a", "b1", end=BAD), Invocation("a", "b1")]
)
@pytest.mark.parametrize("marked", [False, True])
def test_a_task_that_was_ended_at_its_deadline_has_failed(last: Invocation, marked: bool) -> None:
    """Also if a user stops it while it ends."""
    assert states.task_status(TASK, unit("deactivating"), [last], marked=marked, overdue=True).overdue is None
    told = states.task_status(TASK, unit("inactive"), [last], marked=marked, overdue=True, boot="b2")
    assert (told.state, told.loss, told.overdue) == ("failed", None, True)


def test_state_is_taken_from_systemd_when_the_end_line_is_missing() -> None:
    shown = unit(
        "failed", Result="signal", ExecMainCode="2", ExecMainStatus="9", ExecMainExitTimestampMonotonic="5000000",
    )  # fmt: skip
    assert states.task_status(TASK, shown, [], began=1002.0, zero=1000.0) == TaskStatus(
        *TASK, "failed", exit_code=None, signal="SIGKILL", started=1002.0, finished=1005.0, restarts=0
    )


def test_a_real_time_signal_has_no_name() -> None:
    shown = unit("failed", ExecMainCode="2", ExecMainStatus="35", ExecMainExitTimestampMonotonic="5000000")
    assert states.task_status(TASK, shown, []).signal == "SIG35"


def test_success_is_kept_when_the_end_line_could_not_be_written() -> None:
    """On a full disk ExecStopPost fails, and systemd takes the whole unit for failed."""
    shown = unit(
        "failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="0", ExecMainExitTimestampMonotonic="5000000",
    )  # fmt: skip
    assert states.task_status(TASK, shown, []).state == "succeeded"
    assert states.task_status(TASK, {**shown, "ExecMainStatus": "3"}, []).state == "failed"
    assert states.task_status(TASK, {**shown, "Result": "timeout"}, []).state == "failed"


@pytest.mark.parametrize(
    ("end", "exit_code", "signal"),
    [(BAD, 3, None), (KILLED, None, "SIGKILL"), (GOOD, 0, None), (ASKED, None, "SIGTERM")],
)
def test_end_line_determines_exit_code_and_signal(
    end: InvocationEnd, exit_code: int | None, signal: str | None
) -> None:
    told = states.task_status(TASK, None, invocations(end), began=90.0)
    assert (told.exit_code, told.signal) == (exit_code, signal)
    assert (told.started, told.finished) == (90.0, 100.0)


def test_running_task_has_no_exit_code_and_no_signal() -> None:
    told = states.task_status(TASK, unit("active", InvocationID="b"), invocations(BAD), began=11.5)
    assert (told.state, told.exit_code, told.signal, told.finished) == ("running", None, None, None)
    assert (told.started, told.restarts, told.last_exit_code) == (11.5, 1, 3)


def test_a_task_that_runs_again_has_the_end_of_the_invocation_before() -> None:
    again = states.task_status(TASK, unit("active", InvocationID="b"), invocations(GOOD, BAD))
    assert (again.restarts, again.last_exit_code, again.last_signal) == (2, 3, None)
    ended = states.task_status(TASK, None, invocations(GOOD, BAD))
    assert (ended.exit_code, ended.last_exit_code) == (3, None)


@pytest.mark.parametrize(
    ("shown", "ends", "restarts"),
    [
        (None, [], 0),
        (unit("active"), [], 0),
        (None, [GOOD], 0),
        (unit("deactivating", "stop-post"), [GOOD], 0),
        (unit("activating", "auto-restart"), [BAD], 0),
        (unit("active", InvocationID="b"), [BAD], 1),
        (unit("failed", InvocationID="c"), [BAD, BAD, BAD], 2),
    ],
)
def test_restarts_are_invocations_beyond_the_first(
    shown: dict[str, str] | None, ends: list[InvocationEnd], restarts: int
) -> None:
    assert states.task_status(TASK, shown, invocations(*ends)).restarts == restarts


def test_restarts_are_those_that_systemd_counts_when_no_lines_could_be_written() -> None:
    """systemd counts the restart that its limit prevents."""
    counted = unit("failed", InvocationID="c", NRestarts="4")
    assert states.task_status(TASK, counted, [], max_restarts=3).restarts == 3
    assert states.task_status(TASK, counted, invocations(BAD), max_restarts=3).restarts == 3
    assert states.task_status(TASK, {**counted, "NRestarts": "1"}, invocations(BAD), max_restarts=3).restarts == 1


def test_end_of_an_earlier_invocation_does_not_count_when_the_last_end_could_not_be_written() -> None:
    shown = unit(
        "failed", InvocationID="b", Result="exit-code", ExecMainCode="1", ExecMainStatus="0",
        ExecMainExitTimestampMonotonic="5000000",
    )  # fmt: skip
    assert states.task_status(TASK, shown, invocations(BAD)).state == "succeeded"
    assert states.task_status(TASK, {**shown, "ExecMainStatus": "3"}, invocations(GOOD)).state == "failed"


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (("success", "exited", "0"), InvocationEnd("success", "exited", "0", "ab12", 0)),
        (("signal", "killed", "KILL"), InvocationEnd("signal", "killed", "KILL", "ab12", 0)),
        (("timeout", "killed", "TERM"), InvocationEnd("timeout", "killed", "TERM", "ab12", 0)),
    ],
)
def test_end_program_appends_a_line_per_invocation(
    tmp_path: Path, told: tuple[str, str, str], end: InvocationEnd
) -> None:
    program = Path(states.__file__).parent / "bin/end"
    names = dict(zip(("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"), told, strict=True))
    for invocation in ("ab12", "cd34"):
        subprocess.run([program, tmp_path], env={**names, "INVOCATION_ID": invocation}, check=True, timeout=10)
    found = states.ends(states.read_invocations((tmp_path / "ends.jsonl").read_text()))
    assert [one._replace(time=0) for one in found] == [end, end._replace(invocation="cd34")]
    assert all(abs((one.time or 0) - (tmp_path / "ends.jsonl").stat().st_mtime) < 5 for one in found)


@given(st.text(), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one)))
def test_lines_that_are_not_end_lines_are_ignored(noise: str, value: object) -> None:
    line = json.dumps({"result": "success", "code": "exited", "status": "0", "invocation": "a", "time": 100.0})
    odd = json.dumps({"result": value, "code": "exited", "status": "0", "invocation": value, "time": None})
    begin, stop = json.dumps({"begin": value, "boot": value}), json.dumps({"stop": value})
    found = states.read_invocations(f"{json.dumps(noise)}\n{odd}\n{begin}\n{stop}\n{line}\n{line[:40]}")
    assert found[-1] == Invocation("a", end=GOOD)
    assert len(found) == 1 or isinstance(value, str)


@pytest.mark.parametrize(
    "odd",
    ['"time":1e400', '"time":NaN', '"time":-1', f'"time":1{400 * "0"}', '"time":1,"status":"²"',
     '"time":1,"status":"\\u001b[2J"', f'"time":1,"status":"{5000 * "9"}"'],
)  # fmt: skip
def test_states_survive_anything_that_a_job_writes_as_an_end_line(odd: str) -> None:
    line = f'{{"result":"exit-code","code":"exited","status":"0","invocation":"a",{odd}}}'
    assert states.read_invocations(line) == []


@given(
    st.none() | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "active", "failed", "1", "2", "999"])),
    st.lists(st.builds(Invocation, st.text(), st.text(), st.booleans(), st.none() | ENDS)),
    st.booleans(),
    st.booleans(),
)
def test_every_task_has_a_state(
    shown: dict[str, str] | None, found: list[Invocation], marked: bool, reserved: bool
) -> None:
    told = states.task_status(TASK, shown, found, marked=marked, reserved=reserved, boot="b")
    assert told.state in ("starting", "running", "stopped", "succeeded", "failed", "pending", "lost")
    assert told.exit_code is None or told.state in ("stopped", "succeeded", "failed")
    assert told.restarts >= 0


def test_a_start_that_failed_without_a_result_does_not_give_success_as_its_reason() -> None:
    properties = {"ActiveState": "inactive", "SubState": "dead", "Result": "success"}
    assert units.exec_failure(properties, []) == "systemd gives no reason"
    assert units.exec_failure({**properties, "Result": "resources"}, []) == "systemd says: resources"


OUT_OF_MEMORY = InvocationEnd("oom-kill", "killed", "KILL", "a", 100.0)


def test_an_invocation_that_the_kernel_killed_for_lack_of_memory_says_so() -> None:
    told = states.task_status(TASK, unit("failed", InvocationID="a"), invocations(OUT_OF_MEMORY))
    assert (told.state, told.signal, told.oom, told.last_oom) == ("failed", "SIGKILL", True, None)
    again = states.task_status(TASK, unit("active", InvocationID="b"), invocations(OUT_OF_MEMORY))
    assert (again.state, again.last_signal, again.oom, again.last_oom) == ("running", "SIGKILL", None, True)
    child = OUT_OF_MEMORY._replace(code="exited", status="0")  # one process of the task was killed, the main one ended
    told = states.task_status(TASK, unit("failed", InvocationID="a"), invocations(child))
    assert (told.state, told.exit_code, told.oom) == ("failed", 0, True)


def note(directory: Path, what: str, invocation: str, **told: str) -> None:
    """Run the program as systemd does."""
    program = Path(states.__file__).parent / "bin/note"
    words = ["begin", str(directory), "b1"] if what == "begin" else [what, str(directory)]
    subprocess.run([str(program), *words], env={"INVOCATION_ID": invocation, **told}, check=True, timeout=10)


def test_note_writes_a_stop_only_when_systemd_stops_a_program_that_runs(tmp_path: Path) -> None:
    note(tmp_path, "begin", "a")
    note(tmp_path, "stop", "a", SERVICE_RESULT="success")  # the program has ended by itself
    note(tmp_path, "begin", "b")
    note(tmp_path, "stop", "b", SERVICE_RESULT="timeout", MAINPID="7")  # at RuntimeMaxSec=
    note(tmp_path, "begin", "c")
    note(tmp_path, "stop", "c", SERVICE_RESULT="success", MAINPID="7")
    found = states.read_invocations((tmp_path / "ends.jsonl").read_text())
    assert all(abs((one.began or 0) - time.time()) < 60 for one in found)
    assert [one._replace(began=None) for one in found] == [
        Invocation("a", "b1"), Invocation("b", "b1"), Invocation("c", "b1", stopped=True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "boot", "outcome"),
    [
        (Invocation("b", "b1"), "b1", ("lost", None)),
        (Invocation("b", "b1"), "b2", ("lost", "reboot")),
        (Invocation("b", "b1", stopped=True, end=GOOD), "b2", ("lost", "reboot")),
        (Invocation("b", "b1", stopped=True, end=ASKED), "b2", ("lost", "reboot")),
        (Invocation("b", "b1", stopped=True, end=GOOD), "b1", ("lost", "stop")),
        (Invocation("b", "b1", end=GOOD), "b2", ("succeeded", None)),
        (Invocation("b", "b1", end=BAD), "b2", ("failed", None)),
    ],
)
def test_only_the_last_invocation_counts_and_only_if_it_ended_by_itself(
    last: Invocation, boot: str, outcome: tuple[str, str | None]
) -> None:
    found = states.state(None, [Invocation("a", "b1", end=GOOD), last], marked=False, reserved=False, boot=boot)
    assert (found.state, found.loss) == outcome


def ran(began: float, lasted: float | None, code: int = 1, **more: Any) -> Invocation:
    """An invocation that ended with an exit code after ``lasted`` seconds, or has not ended."""
    name = f"r{began:.0f}"
    end = None if lasted is None else InvocationEnd("exit-code", "exited", str(code), name, began + lasted)
    return Invocation(name, "b1", end=end, began=began)._replace(**more)


@pytest.mark.parametrize(
    ("found", "now"),
    [
        ([ran(100, 1), ran(103, 9.9)], 113),
        ([ran(100, 1), ran(103, 1)], 9999),  # it is not known yet whether systemd starts it again
        ([ran(100, 1), ran(103, 1), ran(106, None)], 115),
        ([ran(100, 1), ran(103, 1), ran(106, 1), ran(109, None)], 110),
    ],
)
def test_a_task_fails_at_once_when_each_invocation_ends_within_ten_seconds_with_one_exit_code(
    found: list[Invocation], now: float
) -> None:
    assert states.fails_at_once(found, now)


@pytest.mark.parametrize(
    ("found", "now"),
    [
        ([], 100),
        ([ran(100, 1)], 101),
        ([ran(100, 1), ran(103, None)], 104),
        ([ran(100, 1), ran(103, 10)], 114),
        ([ran(100, 60), ran(162, 1), ran(165, 1)], 166),
        ([ran(100, 1), ran(103, 1), ran(106, None)], 116),  # its third invocation goes on
        ([ran(100, 1), ran(103, 1), ran(106, 60), ran(168, 1)], 169),
        ([ran(100, 1), ran(103, 1, code=2)], 105),
        ([ran(100, 1, code=0), ran(103, 1, code=0)], 105),
        ([ran(100, 1, code=42), ran(103, 1, code=42)], 105),  # it asks to be started again
        ([ran(100, 1, stopped=True), ran(103, 1)], 105),
        ([ran(100, 1, end=KILLED._replace(time=101)), ran(103, 1, end=KILLED._replace(time=104))], 105),
        ([ran(100, 1)._replace(began=None), ran(103, 1)], 105),  # its disk was full
        ([ran(100, -5), ran(103, 1)], 105),  # its host's clock was set back
    ],
)
def test_a_task_that_has_worked_or_was_ended_otherwise_does_not_fail_at_once(
    found: list[Invocation], now: float
) -> None:
    assert not states.fails_at_once(found, now)


def test_a_task_that_was_given_up_has_failed_with_its_own_exit_code() -> None:
    asked = Invocation("r106", "b1", stopped=True, end=ASKED._replace(invocation="r106", time=107), began=106)
    third = [ran(100, 1, code=3), ran(103, 1, code=3), asked]
    told = states.task_status(TASK, unit("inactive", InvocationID="r106"), third, given_up=True)
    assert (told.state, told.exit_code, told.signal, told.given_up) == ("failed", 3, None, True)
    waiting = states.task_status(TASK, unit("inactive", InvocationID="r103"), third[:2], given_up=True)
    assert (waiting.state, waiting.exit_code, waiting.given_up) == ("failed", 3, True)
    alive = states.task_status(TASK, unit("deactivating", InvocationID="r106"), third, given_up=True, at_once=True)
    assert (alive.state, alive.given_up, alive.fails_at_once) == ("running", None, True)


def test_a_task_that_succeeds_when_it_is_given_up_has_succeeded() -> None:
    third = [ran(100, 1), ran(103, 1), ran(106, 1, code=0)]
    assert third[-1].end
    third[-1] = third[-1]._replace(end=third[-1].end._replace(result="success"))
    assert states.task_status(TASK, None, third, given_up=True).state == "succeeded"
