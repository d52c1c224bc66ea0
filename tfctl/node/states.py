"""The state of a task, computed from systemd's properties, the lines in ends.jsonl and its marks. Pure functions.

Each start of a unit is an invocation, as systemd calls it. The units of a task append lines to ends.jsonl in its
directory: ExecStartPre when an invocation begins, ExecStop when systemd is told to stop it, ExecStopPost when it has
ended (an *end line*). Files of tfctl 1 have end lines only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from . import wire

#: The statuses that systemd itself sets if it cannot execute the program (systemd.exec(5), "Process Exit Codes").
OWN_STATUS = range(200, 244)
#: With this exit code a task asks to be started again (RestartForceExitStatus= of its unit).
_START_AGAIN = 42
_WAITS = ("activating",)
_RUNS = ("active", "deactivating", "reloading", "refreshing", "maintenance")
_WORD = re.compile(r"[A-Za-z0-9+-]{0,32}")


#: systemd's properties of a unit (tfctl.node.system.PROPERTIES).
Properties = Mapping[str, str]


class InvocationEnd(NamedTuple):
    """The end of an invocation, as ExecStopPost wrote it: $SERVICE_RESULT, $EXIT_CODE, $EXIT_STATUS, $INVOCATION_ID and
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
    def oom(self) -> bool:
        """Whether the kernel killed a process of the unit for lack of memory (OOMPolicy= in systemd.service(5))."""
        return self.result == "oom-kill"

    @property
    def not_executed(self) -> bool:
        """Whether systemd failed to execute the program."""
        return self.exit_code in OWN_STATUS


class Invocation(NamedTuple):
    """One invocation of the unit of a task, as the lines in ends.jsonl describe it.

    ``id``: $INVOCATION_ID. ``boot``: the boot ID of the host when it began, or "" if no line says so. ``stopped``:
    systemd was told to stop it while its program ran, by tfctl, by an administrator, or because the host shuts down.
    ``end``: None if no line says how it ended. ``began``: in epoch seconds, or None if no line says so.
    """

    id: str
    boot: str = ""
    stopped: bool = False
    end: InvocationEnd | None = None
    began: float | None = None

    @property
    def failed_at_once(self) -> bool:
        """Whether it ended by itself with an exit code that tells of a failure, within ten seconds."""
        if self.end is None or self.end.time is None or self.began is None or self.stopped:
            return False
        failed = self.end.result == "exit-code" and self.end.exit_code not in (None, 0, _START_AGAIN)
        return failed and 0 <= self.end.time - self.began < wire.AT_ONCE_S


class TaskOutcome(NamedTuple):
    """The state of a task, the end that the state is based on, and why a lost task is lost, if that is known."""

    state: wire.TaskStateName
    end: InvocationEnd | None = None
    loss: wire.Loss | None = None


def read_invocations(text: str) -> list[Invocation]:
    """Parse the lines in ends.jsonl, the oldest invocation first.

    Skip any other line: the jobs' user may write to the file.
    """
    found: dict[str, Invocation] = {}
    for line in text.split("\n"):
        try:
            value = json.loads(line)
            begun, stopped = value.get("begin"), value.get("stop")
        except (ValueError, AttributeError, RecursionError):
            continue
        if begun is not None:
            boot = value.get("boot")
            if _is_word(begun) and _is_word(boot) and begun not in found:
                found[begun] = Invocation(begun, boot, began=_time(value))
        elif stopped is not None:
            if _is_word(stopped):
                found[stopped] = found.get(stopped, Invocation(stopped))._replace(stopped=True)
        else:
            end = _end(value)
            if end:
                found[end.invocation] = found.get(end.invocation, Invocation(end.invocation))._replace(end=end)
    return list(found.values())


def ends(invocations: Iterable[Invocation]) -> list[InvocationEnd]:
    """Return the ends of the invocations that have left one."""
    return [each.end for each in invocations if each.end]


def fails_at_once(invocations: Sequence[Invocation], now: float) -> bool:
    """Return whether a task fails at once whenever it is started: at least twice, and always with one exit code.

    False as soon as one invocation has lasted longer than ten seconds; the last one may still go on at ``now`` (epoch
    seconds). A task that a signal ended, or that asked to be started again, is not meant.
    """
    *_, last = invocations or [Invocation("")]
    ended = invocations if last.end else invocations[:-1]
    goes_on = last.end is not None or (last.began is not None and 0 <= now - last.began < wire.AT_ONCE_S)
    codes = {each.end.exit_code for each in ended if each.end}
    return len(ended) > 1 and len(codes) == 1 and goes_on and all(each.failed_at_once for each in ended)


def is_live(unit: Properties | None) -> bool:
    """Return whether the unit is running, starting, ending or waiting to restart."""
    return bool(unit) and ((unit or {}).get("ActiveState") in (*_WAITS, *_RUNS) or _is_to_start(unit))


def state(
    unit: Properties | None,
    invocations: Sequence[Invocation],
    *,
    marked: bool,
    reserved: bool,
    overdue: bool = False,
    given_up: bool = False,
    boot: str = "",
) -> TaskOutcome:
    """Return the first state that applies. Only the last invocation that began counts.

    ``unit``: systemd's properties of this attempt's unit, or None; ``marked``: the task has a stop mark; ``overdue``:
    tfctl ended it at its deadline, and whatever its exit code is, it has failed; ``given_up``: tfctl ended it because
    it fails at once, and unless it has succeeded, the end of its last failure counts; ``boot``: the host's boot ID.
    """
    active = (unit or {}).get("ActiveState", "")
    if active in _RUNS:
        return TaskOutcome("running")
    if active in _WAITS or _is_to_start(unit):
        return TaskOutcome("starting")
    last = invocations[-1] if invocations else Invocation("")
    end = last.end
    if not end or (unit or {}).get("InvocationID", "") not in ("", last.id):
        end = end_from_systemd(unit) or end
    if overdue:
        return TaskOutcome("failed", end)
    if given_up and (last.stopped or not _succeeded(end)):
        return TaskOutcome("failed", next((each.end for each in reversed(invocations) if each.failed_at_once), end))
    if marked:
        return TaskOutcome("stopped", end)
    if end and not last.stopped:
        return TaskOutcome("succeeded" if _succeeded(end) else "failed", end)
    if reserved:
        return TaskOutcome("pending")
    if last.boot and boot and last.boot != boot:
        return TaskOutcome("lost", loss="reboot")
    return TaskOutcome("lost", loss="stop" if last.stopped else None)


def _succeeded(end: InvocationEnd | None) -> bool:
    return end is not None and end.exit_code == 0 and end.result == "success"


def end_from_systemd(unit: Properties | None) -> InvocationEnd | None:
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
    return InvocationEnd(result, code, status, unit.get("InvocationID", ""), None)


def task_status(
    task: wire.TaskName,
    unit: Properties | None,
    invocations: Sequence[Invocation],
    *,
    marked: bool = False,
    overdue: bool = False,
    at_once: bool = False,
    given_up: bool = False,
    reserved: bool = False,
    began: float | None = None,
    zero: float = 0.0,
    boot: str = "",
    max_restarts: int = 0,
) -> wire.TaskStatus:
    """Return the status of a task.

    ``began``: start time in epoch seconds; ``zero``: epoch seconds at the zero of the monotonic clock; ``boot``: the
    host's boot ID; ``at_once``: it fails at once; ``max_restarts``: how often systemd restarts the task at most.
    """
    task_state, end, loss = state(
        unit, invocations, marked=marked, overdue=overdue, given_up=given_up, reserved=reserved, boot=boot
    )
    ended = ends(invocations)
    last = ended[-1] if ended and task_state in ("running", "starting") else None
    exited = _number(unit, "ExecMainExitTimestampMonotonic")
    finished = (end.time if end.time is not None else zero + exited / 1e6) if end else None
    return wire.TaskStatus(
        *task,
        state=task_state,
        exit_code=end.exit_code if end else None,
        signal=end.signal if end else None,
        started=began,
        finished=round(finished, 3) if finished is not None else None,
        restarts=_restarts(unit, invocations, max_restarts),
        loss=loss,
        last_exit_code=last.exit_code if last else None,
        last_signal=last.signal if last else None,
        overdue=True if overdue and task_state == "failed" else None,
        oom=True if end and end.oom and task_state == "failed" else None,
        last_oom=True if last and last.oom else None,
        fails_at_once=True if at_once else None,
        given_up=True if given_up and task_state == "failed" else None,
    )


def _end(value: Mapping[str, object]) -> InvocationEnd | None:
    """Return the end that a line describes, or None if it is not a valid end line."""
    try:
        fields = [str(value[name]) for name in ("result", "code", "status", "invocation")]
    except (ValueError, KeyError):
        return None
    time = _time(value)
    valid = all(map(_WORD.fullmatch, fields)) and time is not None
    return InvocationEnd(fields[0], fields[1], fields[2], fields[3], time) if valid else None


def _time(value: Mapping[str, object]) -> float | None:
    """Return the epoch seconds of a line, or None if it has no valid time."""
    try:
        time = float(value["time"])  # type: ignore[arg-type]  # TypeError if it is not a number
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return time if 0 < time < 1e11 else None


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


def _is_to_start(unit: Properties | None) -> bool:
    """Return whether an ended unit has a job queued in systemd, as between the two halves of a restart."""
    return (unit or {}).get("ActiveState") in ("inactive", "failed") and bool(_number(unit, "Job"))


def _restarts(unit: Properties | None, invocations: Sequence[Invocation], max_restarts: int) -> int:
    """Return the number of invocations less the first: those that have lines, plus the current one if it has none yet.

    Where no lines can be written, as on a full disk, systemd's own count is higher. It includes a restart that the
    limit prevented.
    """
    running = is_live(unit) and not any(each.id == (unit or {}).get("InvocationID") for each in invocations)
    return max(0, len(invocations) + running - 1, min(_number(unit, "NRestarts"), max_restarts))


def _number(unit: Properties | None, name: str) -> int:
    text = (unit or {}).get(name, "")
    return int(text) if text.isdigit() else 0
