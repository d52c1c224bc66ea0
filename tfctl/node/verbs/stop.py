"""The verb `stop`: end tasks and verify that nothing of them is left. Safe to repeat and to interrupt."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Callable

from .. import fields, guards, jobstore, names, reservations, restart_files, sockets, statuses, wire
from ..exits import Exit
from ..judge import ALIVE
from ..session import Gone, NodeSession, RequestRefused
from ..system import System, host
from ..units import InstalledUnit, end_units, grace, installed_units, remove_units, run_of, units_without_file
from ..wire import TaskName

#: Seconds beyond the longest TimeoutStopSec= of the units, for ExecStopPost and systemd's own SIGKILL.
_MORE_S = 15.0
#: Seconds between SIGTERM and SIGKILL of a request that does not wait for the grace period.
_NOW_S = 2.0
#: How long to wait for another start before going on without `sweep` (s).
_SWEEP_S = 2.0
#: How long a port may take to be free once its process has ended.
_PORT_S = 2.0
#: How long (s) after the mark of the job the guards may take to mark the tasks of hosts that a client has not reached:
#: they give the client 5 s to do so itself, notice the mark within 2 s and give the order within 1 s.
_GUARDS_S = 10.0
#: So many hosts of a job, the first ones, send the names of all: from each host, they would be quadratic in number.
_NAMING = 3
#: Where the hierarchy that systemd keeps processes in is mounted: version 1, hybrid, version 2 alone.
_CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")


def run(system: System, session: NodeSession, request: wire.StopRequest) -> None:
    """Serve one request. The stop is completed even if the client leaves. Raises RequestRefused."""
    job, only, this_run = (
        fields.job_name(request.job), fields.optional_attempt(request.attempt), fields.optional_run(request.run)
    )  # fmt: skip
    wanted = None if request.tasks is None else fields.task_names(request.tasks)
    beat = session.heartbeat()
    if request.give_up:
        given_up = give_up(system, job, this_run or "", wanted or (), beat)
        session.send(wire.Stopped(jobstore.latest(system, job), tuple(given_up), ()))
        return
    _sweep(system)
    attempt = only or jobstore.latest(system, job)
    record = jobstore.record(system, job, attempt) if attempt else None
    if this_run is not None and (record is None or record.run != this_run):
        attempt, record = 0, None
    if attempt:
        reservations.require_started(system, job, attempt)
    tasks = [task for task in jobstore.tasks(system, job, attempt) if wanted is None or task in wanted]
    run = record.run if record else ""
    whole = wanted is None and only is None  # also if the client names the run that it means
    units = _units(system, job, run, tasks, whole=whole and this_run is None)
    unmarked = _mark(system, record, tasks, units, request, whole=wanted is None) if record else []
    everywhere = False
    if request.hold:
        hosts = _all_hosts(record, jobstore.tasks(system, job, attempt)) if record else ()
        everywhere = _await_go(session, wire.Marked(attempt if record else 0, hosts))
        if whole and record and not everywhere and any(unit.live for unit in units):
            _await_guards(system, record, beat)
    limit = _NOW_S if request.now else _limit(system, units)
    survivors = end_units(system, [unit.unit for unit in units], limit, beat, _MORE_S)
    with reservations.lock(system, reservations.LONGEST_S, beat):
        # The next start may have written its own files under the names of units that have ended.
        ended = [unit for unit in units if unit.unit not in survivors and run_of(system, job, unit.task) == unit.run]
        remove_units(system, job, [unit.task for unit in ended], keep_restart_files=wanted is not None)
        # A run that is not here has left nothing. Another may just be starting, or may have started meanwhile.
        if wanted is None and attempt == jobstore.latest(system, job) and this_run in (None, run):
            restart_files.delete(system, job)
            _remove_guard(system, job, everywhere=everywhere)
        latest = jobstore.latest(system, job)
        if whole and record and latest > attempt and _is_by_its_guard(jobstore.record(system, job, latest), record):
            raise reservations.guard_is_starting(job, latest)
    left = (*survivors.values(), *_remains(system, ended), *unmarked)
    live = tuple(unit.task for unit in units if unit.live)
    with contextlib.suppress(Gone):
        session.send(wire.Stopped(attempt if record else 0, live, left))


def give_up(
    system: System, job: str, run: str, tasks: Collection[TaskName], beat: Callable[[], object] = lambda: None
) -> list[TaskName]:
    """Mark those of the tasks that are alive and still fail at once, and let systemd stop their units. Return them.

    They have failed, and systemd does not start them again. A host knows only its own tasks. Whether a task may be
    given up depends on all tasks of the job (judge.to_give_up), so the client or the guard that knows all hosts decides
    it.

    Nothing happens if ``run`` is not the job's current run here. Does not wait for the end of the units. ``beat`` is
    called while another start writes its files. Safe to repeat. Raises RequestRefused, OSError.
    """
    with reservations.lock(system, reservations.LONGEST_S, beat):
        attempt = jobstore.latest(system, job)
        chosen = [
            unit
            for unit in installed_units(system, job)
            if unit.run == run
            and unit.task in tasks
            and unit.live
            and jobstore.marked(system, job, attempt, *unit.task) is None
            and statuses.fails_at_once(
                system, job, attempt, unit.task, jobstore.invocations(system, job, attempt, *unit.task)
            )
        ]
        if chosen:
            try:
                for unit in chosen:
                    jobstore.mark_given_up(system, job, attempt, *unit.task)
            finally:  # on a full disk too
                system.manage("stop", "--no-block", "--", *(unit.unit for unit in chosen))
        return [unit.task for unit in chosen]


def _sweep(system: System) -> None:
    """Undo starts whose process was killed, unless another start, which has done so, is writing its files: that may
    take minutes, and the tasks are to be marked and ended at once."""
    with contextlib.suppress(RequestRefused), reservations.lock(system, _SWEEP_S):
        reservations.sweep(system)


def _all_hosts(record: wire.Record, here: Collection[TaskName]) -> tuple[str, ...]:
    """Return the job's hosts if this host, which has the tasks ``here``, is one of the first. Otherwise return none."""
    hosts = tuple(dict.fromkeys(task.host for task in record.tasks))
    first = hosts[:_NAMING]
    return hosts if any(task.host in first for task in record.tasks if (task.role, task.index) in here) else ()


def _await_go(session: NodeSession, marked: wire.Marked) -> bool:
    """Report that the tasks are marked. Return when the client says `go`, and also if it leaves or is silent.

    Return whether all hosts of the job are being stopped.
    """
    with contextlib.suppress(Gone):
        session.send(marked)
        message = session.receive()
        if not isinstance(message, wire.Go):
            raise RequestRefused(Exit.USAGE, f"{type(message).__name__.lower()} is out of order in a stop")
        return bool(message.everywhere)
    return False


def _await_guards(system: System, record: wire.Record, beat: Callable[[], object]) -> None:
    """Give the guards of the job the time to mark the tasks on the hosts that the client could not reach.

    A task there that fails because those of this host have ended would otherwise count as failed, and the job too.
    """
    marked = jobstore.marked(system, record.job, record.attempt)
    has_guards = len({task.host for task in record.tasks}) > 1 and guards.is_live(system, record.job)
    if marked is None or not has_guards:
        return
    until = time.monotonic() + min(_GUARDS_S, marked + _GUARDS_S - time.time())
    while time.monotonic() < until:
        beat()
        time.sleep(0.1)


def _units(system: System, job: str, run: str, tasks: Sequence[TaskName], *, whole: bool) -> list[InstalledUnit]:
    """Return the tasks' units. Of a whole job, also return every live unit, even if it has no file or no record."""
    installed = installed_units(system, job)
    found = [unit for unit in installed if (unit.run == run and unit.task in tasks) or (whole and unit.live)]
    if not whole:
        return found
    known = {unit.task for unit in installed}
    without = units_without_file(system, job, [task for task in tasks if task not in known])
    return [*found, *(unit for unit in without if unit.live)]


def _mark(
    system: System,
    record: wire.Record,
    tasks: Sequence[TaskName],
    units: Sequence[InstalledUnit],
    request: wire.StopRequest,
    *,
    whole: bool,
) -> list[str]:
    """Mark unfinished tasks as stopped, and the job if it goes on; return why marking failed. A task that has ended
    keeps its result.

    A failure, such as a full disk, must not keep the tasks from being ended.
    """
    job, attempt = record.job, record.attempt
    found = statuses.of_tasks(system, record, {unit.task: unit.properties for unit in units})
    unfinished = [one.name for one in found if one.state in ALIVE]
    stopped = [task for task in tasks if task in unfinished]
    marks_job = whole and (bool(unfinished) or _is_watched(system, job, attempt))
    try:
        for task in stopped:
            mark = jobstore.mark_overdue if request.overdue else jobstore.mark
            mark(system, job, attempt, *task)
        if marks_job:
            jobstore.mark(system, job, attempt)
    except OSError as error:
        return [f"cannot record on {host()} that {job} was stopped: {error.strerror}"]
    if stopped or marks_job:
        jobstore.add_action(system, job, attempt, "stop", None if whole else stopped, request.reason)
    return []


def _is_watched(system: System, job: str, attempt: int) -> bool:
    """Return whether the guard here has more to do for the attempt: other hosts may have tasks, or the next attempt may
    begin. The mark then tells the guards that the job was stopped, wherever the client has not reached them."""
    return attempt == jobstore.latest(system, job) and guards.is_needed(system, job)


def _is_by_its_guard(later: wire.Record | None, record: wire.Record) -> bool:
    """Return whether the guard of an attempt has started a later one. If a user has, it has another guard."""
    return bool(later and later.guard and record.guard and later.guard.origin == record.guard.origin)


def _remove_guard(system: System, job: str, *, everywhere: bool) -> None:
    """Remove the guard if it is not needed or does not run. Otherwise it stops the other hosts and then leaves."""
    if guards.installed(system, job) and (everywhere or not guards.is_live(system, job)):
        guards.remove(system, job)


def _limit(system: System, units: Sequence[InstalledUnit]) -> float:
    return max((grace(system, unit) for unit in units), default=0.0) + _MORE_S


def _remains(system: System, ended: Sequence[InstalledUnit]) -> list[str]:
    """Return an error for each process and port that is left of units that have ended."""
    found = []
    for unit in ended:
        pids = _processes(system, unit.properties.get("ControlGroup", ""))
        if pids:
            text = ", ".join(map(str, pids[:10]))
            found.append(f"{names.task(*unit.task)} on {host()} left processes running: {text}")
    until = time.monotonic() + _PORT_S
    for port in [port for unit in ended if unit.live for port in unit.ports]:
        while not sockets.is_free(port) and time.monotonic() < until:
            time.sleep(0.05)
        if not sockets.is_free(port):
            found.append(f"port {port} of {host()} is still held by {sockets.holder(port)}")
    return found


def _processes(system: System, group: str) -> list[int]:
    """Return the processes of a control group and of those below it."""
    found: set[int] = set()
    for mount in _CGROUPS if group not in ("", "/") else ():
        for place, _folders, files in os.walk(system.at(mount + group)):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    found |= {int(pid) for pid in (Path(place) / "cgroup.procs").read_text().split()}
    return sorted(found)
