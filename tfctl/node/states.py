"""The state of a task, computed from systemd's properties, the task's end lines and its stop mark. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import wire

#: The statuses that systemd itself sets if it cannot execute the program (systemd.exec(5), "Process Exit Codes").
OWN_STATUS = range(200, 244)
_WAITS = ("activating",)
_RUNS = ("active", "deactivating", "reloading", "refreshing", "maintenance")
_WORD = re.compile(r"[A-Za-z0-9+-]{0,32}")


class End(NamedTuple):
    """The end of one run, as ExecStopPost wrote it: $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS, $INVOCATION_ID and
    epoch seconds."""

    result: str
    code: str
    status: str
    invocation: str
    time: float | None

    @property
    def exit_code(self) -> int | None:
        return int(self.status) if self.code == "exited" and re.fullmatch(r"[0-9]{1,3}", self.status) else None

    @property
    def signal(self) -> str | None:
        return f"SIG{self.status}" if self.code in ("killed", "dumped") and self.status else None

    @property
    def refused(self) -> bool:
        """Whether systemd failed to execute the program."""
        return self.exit_code in OWN_STATUS


def read_ends(text: str) -> list[End]:
    """Parse the end lines of a task, oldest first. Skip any other line: the jobs' user may write to the file."""
    found = []
    for line in text.split("\n"):
        try:
            value = json.loads(line)
            fields = [str(value[name]) for name in ("result", "code", "status", "invocation")]
            time = float(value["time"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
        if all(map(_WORD.fullmatch, fields)) and 0 < time < 1e11:
            found.append(End(fields[0], fields[1], fields[2], fields[3], time))
    return found


def is_live(unit: Mapping[str, str] | None) -> bool:
    """Return whether the unit is running, starting, ending or waiting to restart."""
    return bool(unit) and ((unit or {}).get("ActiveState") in (*_WAITS, *_RUNS) or _is_to_start(unit))


def state(
    unit: Mapping[str, str] | None, ends: Sequence[End], *, marked: bool, reserved: bool
) -> tuple[str, End | None]:
    """Return the first state that applies (DESIGN §4), and the end that it is based on.

    ``unit``: systemd's properties of this attempt's unit, or None; ``marked``: the task has a stop mark.
    """
    active = (unit or {}).get("ActiveState", "")
    end = ends[-1] if ends else told_by_systemd(unit)
    if active in _RUNS:
        return "running", None
    if active in _WAITS or _is_to_start(unit):
        return "starting", None
    if marked:
        return "stopped", end
    if end:
        return ("succeeded" if end.exit_code == 0 and end.result == "success" else "failed"), end
    return ("pending" if reserved else "lost"), None


def told_by_systemd(unit: Mapping[str, str] | None) -> End | None:
    """Return an end from systemd's properties, for when no end line was written (full disk). None if it never ran."""
    if not unit or not _number(unit, "ExecMainExitTimestampMonotonic"):
        return None
    # waitid(2): CLD_EXITED is 1, CLD_KILLED 2, CLD_DUMPED 3.
    code = {"1": "exited", "2": "killed", "3": "dumped"}.get(unit.get("ExecMainCode", ""), "")
    status = unit.get("ExecMainStatus", "")
    if code != "exited" and status.isdigit():
        status = wire.signal_name(int(status))[3:]
    result = unit.get("Result", "")
    if (result, code, status) == ("exit-code", "exited", "0"):
        result = "success"  # the program exited with 0: "exit-code" is about ExecStopPost, which failed to write
    return End(result, code, status, unit.get("InvocationID", ""), None)


def task_state(
    unit: Mapping[str, str] | None,
    ends: Sequence[End],
    *,
    marked: bool = False,
    reserved: bool = False,
    began: float | None = None,
    zero: float = 0.0,
) -> dict[str, Any]:
    """Return a STATE of tfctl.node.wire without role and index.

    ``began``: start time in epoch seconds; ``zero``: epoch seconds at the zero of the monotonic clock.
    """
    name, end = state(unit, ends, marked=marked, reserved=reserved)
    exited = _number(unit, "ExecMainExitTimestampMonotonic")
    finished = end and (end.time if end.time is not None else zero + exited / 1e6)
    return {
        "state": name,
        "exit_code": end and end.exit_code,
        "signal": end and end.signal,
        "started": began,
        "finished": finished and round(finished, 3),
        "restarts": _restarts(unit, ends),
    }


def _is_to_start(unit: Mapping[str, str] | None) -> bool:
    """Return whether an ended unit has a job queued in systemd, as between the two halves of a restart."""
    return (unit or {}).get("ActiveState") in ("inactive", "failed") and bool(_number(unit, "Job"))


def _restarts(unit: Mapping[str, str] | None, ends: Sequence[End]) -> int:
    """Return the number of runs less the first: those that ended, plus the current one if it is not among them."""
    running = is_live(unit) and not any(end.invocation == (unit or {}).get("InvocationID") for end in ends)
    return max(0, len(ends) + running - 1)


def _number(unit: Mapping[str, str] | None, name: str) -> int:
    text = (unit or {}).get(name, "")
    return int(text) if text.isdigit() else 0
