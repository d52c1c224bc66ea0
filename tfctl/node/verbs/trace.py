"""The verb `trace`: what the tasks of a job do at this moment, by their stacks, their processes and their sockets."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import connections, disks, fields, guards, jobstore, names, pystacks, usage, wire
from ..exits import Exit
from ..journal_export import ExportReader
from ..session import NodeSession, RequestRefused
from ..system import System, host, run_at_once
from ..system import run as run_to_end
from ..wire import TaskName

#: The longest time (s) to measure.
_LONGEST_S = 10.0
#: How many of the last lines are read, how many of them are sent, and how many characters of each.
_READ, _SENT, _CHARACTERS = 200, 60, 600
#: How long (s) journalctl may take.
_JOURNAL_S = 5.0
#: Lines of the kernel that concern memory or GPUs.
_KERNEL = "Out of memory|oom-kill|oom_reaper|Killed process|Xid|fallen off the bus|I/O error|nfs: server"
_KERNEL_LINES = 20


class _Process(NamedTuple):
    """``state``: as in /proc/PID/stat. ``ticks``: of CPU time so far."""

    pid: int
    state: str
    ticks: int
    is_python: bool


def run(system: System, session: NodeSession, request: wire.TraceRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    job, number = fields.job_name(request.job), fields.match(names.RUN, request.run, "a run")
    attempt = jobstore.latest(system, job)
    record = jobstore.record(system, job, attempt) if attempt else None
    if record is None or record.run != number:
        raise RequestRefused(Exit.NOT_FOUND, f"{host()} does not know this run of {job}", "try again")
    wanted = None if request.tasks is None else {fields.task_name(one) for one in request.tasks}
    here = [task for task in jobstore.tasks(system, job, record.attempt, record) if wanted is None or task in wanted]
    began, before = time.monotonic(), _used(system, job, here)
    processes = {task: _process(system, job, task) for task in here}
    stacks = pystacks.of(system, [one.pid for one in processes.values() if one is not None and one.is_python])
    lines = _last_lines(system, record, here) if request.full else {}
    units = {names.unit(job, *task): task for task in here}
    sockets = connections.of_units(system, units) if request.full else {}
    pause = min(request.seconds, _LONGEST_S) - (time.monotonic() - began)
    if pause > 0:
        time.sleep(pause)
    passed, after = time.monotonic() - began, _used(system, job, here)
    session.send(
        wire.Traced(
            record.attempt,
            tuple(
                _trace(
                    system, job, task, processes[task], stacks, _rate(before.get(task), after.get(task), passed),
                    lines.get(task, ()), sockets.get(task, ()),
                )
                for task in here
            ),
            _kernel(system, record) if request.full else (),
            disks.disks(system) if request.full else (),
            time.time(),
            guards.stall(system, job, record.attempt) if request.full else None,
        )
    )  # fmt: skip


def _trace(
    system: System,
    job: str,
    task: TaskName,
    process: _Process | None,
    stacks: Mapping[int, tuple[wire.Thread, ...] | str],
    cpu: float | None,
    lines: Sequence[wire.Printed],
    sockets: tuple[wire.Socket, ...],
) -> wire.TaskTrace:
    gaps = [later.time - earlier.time for earlier, later in zip(lines, lines[1:])]
    found = wire.TaskTrace(
        *task, 0, "gone", None, (), usual=round(statistics.median(gaps), 3) if gaps else None,
        lines=tuple(lines[-_SENT:]), sockets=sockets,
    )  # fmt: skip
    # A process whose number another one has taken meanwhile is not the task's.
    if process is None or process.pid not in usage.pids(system, job, task):
        return found
    threads = stacks.get(process.pid, "its program is not Python")
    return found._replace(
        pid=process.pid,
        state=_state(system, job, task, process),
        cpu=cpu,
        threads=() if isinstance(threads, str) else threads,
        trouble=threads if isinstance(threads, str) else "",
        waits=_waits(system, process.pid),
    )


def _state(system: System, job: str, task: TaskName, process: _Process) -> wire.ProcessState:
    if usage.is_frozen(system, job, task):
        return "frozen"
    if process.state in "Tt":
        return "stopped"
    return "blocked" if process.state == "D" else "running"


def _process(system: System, job: str, task: TaskName) -> _Process | None:
    """Return the process of a task that computes: of those that run Python, the one that has used most CPU time."""
    found = []
    for pid in usage.pids(system, job, task):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = system.at(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            program = system.at(f"/proc/{pid}/exe").readlink().name
            found.append(_Process(pid, stat[0], int(stat[11]) + int(stat[12]), "python" in program))
    return max(found, key=lambda one: (one.is_python, one.ticks), default=None)


def _waits(system: System, pid: int) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        name = system.at(f"/proc/{pid}/wchan").read_text("ascii").strip()
        return name if re.fullmatch(r"[a-zA-Z_]\w{1,63}", name) else None
    return None


def _used(system: System, job: str, tasks: Sequence[TaskName]) -> dict[TaskName, float]:
    """Return the seconds of CPU time that each task has used so far."""
    found = ((task, usage.of_task(system, job, task)) for task in tasks)
    return {task: one.cpu for task, one in found if one is not None and one.cpu is not None}


def _rate(before: float | None, after: float | None, passed: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return round((after - before) / passed, 3)


def _last_lines(system: System, record: wire.Record, tasks: Sequence[TaskName]) -> dict[TaskName, list[wire.Printed]]:
    """Return the last lines of each task. The calls of journalctl run at once."""
    words = [*system.journalctl, "-q", "--no-pager", "--all", "-o", "export", f"--lines={_READ}",
             "--output-fields=" + ",".join(wire.JOURNAL_FIELDS), f"TFCTL_RUN={record.run}"]  # fmt: skip
    commands = {task: [*words, f"_SYSTEMD_UNIT={names.unit(record.job, *task)}"] for task in tasks}
    found = {}
    with contextlib.suppress(wire.Malformed):
        for task, output in run_at_once(commands, _JOURNAL_S).items():
            found[task] = _lines(output)
    return found


def _lines(output: bytes) -> list[wire.Printed]:
    entries = map(wire.journal_entry, ExportReader().add(output).splitlines())
    return [
        wire.Printed(round(entry.time, 3), line[:_CHARACTERS])
        for entry in entries
        if entry.dropped is None
        for line in entry.text[-_CHARACTERS * 20 :].splitlines()
    ]


def _kernel(system: System, record: wire.Record) -> tuple[wire.Printed, ...]:
    """Return what the kernel's log says of memory, GPUs and disks since the attempt began."""
    words = ["-q", "--no-pager", "--dmesg", "-o", "short-unix", f"--since=@{int(record.started)}", f"--grep={_KERNEL}",
             f"--lines={_KERNEL_LINES}"]  # fmt: skip
    found = []
    with contextlib.suppress(RequestRefused):
        for line in run_to_end([*system.journalctl, *words], _JOURNAL_S).output.splitlines():
            moment, _, text = line.partition(" ")
            with contextlib.suppress(ValueError):
                found.append(wire.Printed(float(moment), text.partition(": ")[2][:_CHARACTERS]))
    return tuple(found)
