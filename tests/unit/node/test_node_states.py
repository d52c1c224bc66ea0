"""The table of a task's states (first that fits), what is told beside it, and the end lines it is drawn from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfctl.node import states
from tfctl.node.states import End

GOOD = End("success", "exited", "0", "a", 100.0)
BAD = End("exit-code", "exited", "3", "a", 100.0)
KILLED = End("signal", "killed", "KILL", "a", 100.0)
ASKED = End("success", "killed", "TERM", "a", 100.0)
DEADLINE = End("timeout", "killed", "TERM", "a", 100.0)
KEYS = ["ActiveState", "ExecMainCode", "ExecMainStatus", "ExecMainExitTimestampMonotonic", "InvocationID"]
LIMIT = End("start-limit-hit", "exited", "1", "a", 100.0)


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
def test_the_first_that_fits(
    shown: dict[str, str] | None, ends: list[End], marked: bool, reserved: bool, state: str
) -> None:
    assert states.state(shown, ends, marked=marked, reserved=reserved)[0] == state


def test_an_end_that_could_not_be_written_is_told_by_systemd() -> None:
    shown = unit(
        "failed", Result="signal", ExecMainCode="2", ExecMainStatus="9", ExecMainExitTimestampMonotonic="5000000",
    )  # fmt: skip
    assert states.task_state(shown, [], began=1002.0, zero=1000.0) == {
        "state": "failed", "exit_code": None, "signal": "SIGKILL", "started": 1002.0, "finished": 1005.0, "restarts": 0,
    }  # fmt: skip


def test_a_real_time_signal_has_no_name() -> None:
    shown = unit("failed", ExecMainCode="2", ExecMainStatus="35", ExecMainExitTimestampMonotonic="5000000")
    assert states.task_state(shown, [])["signal"] == "SIG35"


def test_a_good_end_that_could_not_be_written_is_good() -> None:
    """On a full disk ExecStopPost fails, and systemd takes the whole unit for failed."""
    shown = unit(
        "failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="0", ExecMainExitTimestampMonotonic="5000000",
    )  # fmt: skip
    assert states.task_state(shown, [])["state"] == "succeeded"
    assert states.task_state({**shown, "ExecMainStatus": "3"}, [])["state"] == "failed"
    assert states.task_state({**shown, "Result": "timeout"}, [])["state"] == "failed"


@pytest.mark.parametrize(
    ("end", "exit_code", "signal"),
    [(BAD, 3, None), (KILLED, None, "SIGKILL"), (GOOD, 0, None), (ASKED, None, "SIGTERM")],
)
def test_how_it_ended(end: End, exit_code: int | None, signal: str | None) -> None:
    told = states.task_state(None, [end], began=90.0)
    assert (told["exit_code"], told["signal"]) == (exit_code, signal)
    assert (told["started"], told["finished"]) == (90.0, 100.0)


def test_while_it_runs_nothing_is_said_of_an_end() -> None:
    told = states.task_state(unit("active", InvocationID="b"), [BAD], began=11.5)
    assert told == {
        "state": "running", "exit_code": None, "signal": None, "started": 11.5, "finished": None, "restarts": 1,
    }  # fmt: skip


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
def test_restarts_are_runs_beyond_the_first(shown: dict[str, str] | None, ends: list[End], restarts: int) -> None:
    assert states.task_state(shown, ends)["restarts"] == restarts


@pytest.mark.parametrize(
    ("told", "end"),
    [
        (("success", "exited", "0"), End("success", "exited", "0", "ab12", 0)),
        (("signal", "killed", "KILL"), End("signal", "killed", "KILL", "ab12", 0)),
        (("timeout", "killed", "TERM"), End("timeout", "killed", "TERM", "ab12", 0)),
    ],
)
def test_the_program_that_systemd_runs_at_the_end(tmp_path: Path, told: tuple[str, str, str], end: End) -> None:
    program = Path(states.__file__).parent / "bin/end"
    names = dict(zip(("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"), told, strict=True))
    for _ in range(2):
        subprocess.run([program, tmp_path], env={**names, "INVOCATION_ID": "ab12"}, check=True, timeout=10)
    found = states.read_ends((tmp_path / "ends.jsonl").read_text())
    assert [one._replace(time=0) for one in found] == [end, end]
    assert all(abs((one.time or 0) - (tmp_path / "ends.jsonl").stat().st_mtime) < 5 for one in found)


@given(st.text(), st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one)))
def test_what_is_no_end_line_is_left_out(noise: str, value: object) -> None:
    line = json.dumps({"result": "success", "code": "exited", "status": "0", "invocation": "a", "time": 100.0})
    odd = json.dumps({"result": value, "code": "exited", "status": "0", "invocation": value, "time": None})
    found = states.read_ends(f"{json.dumps(noise)}\n{odd}\n{line}\n{line[:40]}")
    assert found == [GOOD]


@pytest.mark.parametrize(
    "odd",
    ['"time":1e400', '"time":NaN', '"time":-1', f'"time":1{400 * "0"}', '"time":1,"status":"²"',
     '"time":1,"status":"\\u001b[2J"', f'"time":1,"status":"{5000 * "9"}"'],
)  # fmt: skip
def test_what_a_job_writes_in_place_of_an_end_breaks_nothing(odd: str) -> None:
    assert states.read_ends(f'{{"result":"exit-code","code":"exited","status":"0","invocation":"a",{odd}}}') == []


@given(
    st.none() | st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["", "active", "failed", "1", "2", "999"])),
    st.lists(st.builds(End, st.text(), st.text(), st.text(), st.text(), st.floats(0, 1e12))),
    st.booleans(),
    st.booleans(),
)
def test_every_task_has_a_state(shown: dict[str, str] | None, ends: list[End], marked: bool, reserved: bool) -> None:
    told = states.task_state(shown, ends, marked=marked, reserved=reserved)
    assert told["state"] in ("starting", "running", "stopped", "succeeded", "failed", "pending", "lost")
    assert told["exit_code"] is None or told["state"] in ("stopped", "succeeded", "failed")
    assert told["restarts"] >= 0
