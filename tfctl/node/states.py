"""In which state a task is: pure functions of what systemd says, of the task's end lines and its stop mark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import wire

#: systemd.exec(5), "Process Exit Codes": given by systemd itself when it could not execute the program.
OWN_STATUS = range(200, 244)
_WAITS = ("activating",)
_RUNS = ("active", "deactivating", "reloading", "refreshing", "maintenance")
_WORD = re.compile(r"[A-Za-z0-9+-]{0,32}")


class End(NamedTuple):
    """One run's end, as ExecStopPost wrote it: $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS, epoch seconds."""

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
        """Whether systemd could not execute the program at all."""
        return self.exit_code in OWN_STATUS


def read_ends(text: str) -> list[End]:
    """The end lines of a task, first to last. What is no end line is left out: the job's user may write there."""
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
    """Whether systemd has it running, starting, ending or waiting to restart."""
    return bool(unit) and ((unit or {}).get("ActiveState") in (*_WAITS, *_RUNS) or _is_to_start(unit))


def state(
    unit: Mapping[str, str] | None, ends: Sequence[End], *, marked: bool, reserved: bool
) -> tuple[str, End | None]:
    """The state, first that fits (DESIGN §4), and the end that it is drawn from.

    ``unit``: what systemd says of this attempt's unit, None when there is none; ``marked``: it has a stop mark.
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
    """The end of a run whose line could not be written, say on a full disk; None when it never ran."""
    if not unit or not _number(unit, "ExecMainExitTimestampMonotonic"):
        return None
    # waitid(2): CLD_EXITED is 1, CLD_KILLED 2, CLD_DUMPED 3.
    code = {"1": "exited", "2": "killed", "3": "dumped"}.get(unit.get("ExecMainCode", ""), "")
    status = unit.get("ExecMainStatus", "")
    if code != "exited" and status.isdigit():
        status = wire.signal_name(int(status))[3:]
    result = unit.get("Result", "")
    if (result, code, status) == ("exit-code", "exited", "0"):
        result = "success"  # the code that was none is that of ExecStopPost, which has failed to write
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
    """A STATE of tfctl.node.wire without role and index.

    ``began``: when it was started, epoch seconds; ``zero``: those of the monotonic clock's zero.
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
    """systemd has an order for a unit that has ended: between the two halves of a restart."""
    return (unit or {}).get("ActiveState") in ("inactive", "failed") and bool(_number(unit, "Job"))


def _restarts(unit: Mapping[str, str] | None, ends: Sequence[End]) -> int:
    """Runs that ended, and the one that runs unless its end is among them; less the first."""
    running = is_live(unit) and not any(end.invocation == (unit or {}).get("InvocationID") for end in ends)
    return max(0, len(ends) + running - 1)


def _number(unit: Mapping[str, str] | None, name: str) -> int:
    text = (unit or {}).get(name, "")
    return int(text) if text.isdigit() else 0
