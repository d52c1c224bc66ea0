"""Restart a job as a new attempt, or one of its tasks in place, from what its hosts have kept.

No job file is read and no code is sent. Each host rebuilds its part of the plan from the previous attempt's units and
variables (tfctl.node.restart_files), so the variables' values never leave the host.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tfctl.errors import Busy, NotFound, Taken, TfctlError, together
from tfctl.jobs.other_hosts import OtherHosts
from tfctl.jobs.sessions import Sessions, open_sessions
from tfctl.jobs.state import JobState, TaskState, not_in_inventory
from tfctl.jobs.stop import stop
from tfctl.model.host import Host
from tfctl.model.ports import port_for_guard
from tfctl.node import names, wire
from tfctl.node.judge import ENDED
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import as_error, ask_node
from tfctl.wording import Lines, devices, outline

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

Say = Callable[[str], None]

_FILE = "start it from its job file: tfctl start JOBFILE"
#: How long (s) to wait until another start of the job, on other hosts, has ended.
_OTHER_START_S = 60.0


def restart(fleet: Fleet, state: JobState, others: OtherHosts, say: Say) -> wire.Record:
    """Stop the job, run its next attempt on all its hosts or on none, and return the attempt's record.

    Raise Busy while another run of the job is alive on other hosts (``others``), or is being started there. Nothing is
    stopped until every host has confirmed that it can run the job again; otherwise raise NotFound, or Taken if no port
    is free for the guard. If a host then refuses, or another start was faster, raise that error; raise Undone as
    `start` does. In all these cases the job stays stopped.
    """
    _require_no_other_run(state)
    others.ask()
    with open_sessions(fleet, state.job, _requests(fleet, state), say, "no other attempt was started") as sessions:
        attempt, port = _next(state, sessions), _guard_port(fleet, state, sessions)
        if others.highest() > state.attempt:
            raise _started_again(state)
        _stop(fleet, state, say)
        try:
            return _begin(fleet, state, sessions, others, attempt, port)
        except TfctlError:
            say(f"{state.job} was stopped, but its next attempt could not be started")
            raise
        except KeyboardInterrupt:
            if not sessions.kept:
                say(f"{state.job} was stopped and not started again")
            raise


def preview(fleet: Fleet, state: JobState) -> str:
    """Return what `restart` would do, one line per task. Queries the hosts; writes nothing. Raises as `restart`."""
    _require_no_other_run(state)
    with open_sessions(fleet, state.job, _requests(fleet, state)) as sessions:
        attempt = _next(state, sessions)
        _guard_port(fleet, state, sessions)
    tasks = [
        (
            task.host,
            f"{task} at {names.endpoint(task.record.address, task.record.port)}{devices(task.record.gpus)}"
            + ("" if task.state in ENDED else f", {task.state} now"),
        )
        for task in state.tasks
    ]
    head = f"{state.job}: attempt {attempt}, {state.record.strategy}"
    return outline(head, state.record.output, state.hosts, tasks)


def restart_task(fleet: Fleet, state: JobState, task: TaskState) -> None:
    """Stop one task and start it again, in place and in the same attempt.

    Raise NotFound if its unit is gone, or if no other task is left to work with it.
    """
    others = [other for other in state.tasks if other is not task and other.state not in ENDED]
    if state.state == "stopped":
        raise NotFound(f"{state.job} was stopped", _FILE)
    if state.state == "succeeded" or (state.ended and not others):
        raise NotFound(
            f"{state.job} has {state.state}, so {task} cannot be restarted alone",
            f"restart the whole job: tfctl restart {state.job}",
        )

    def ask(connection: Connection) -> None:
        request = wire.RestartRequest(state.job, state.attempt, (task.name,), state.record.run)
        ask_node(connection, request, wire.Restarted, wire.SILENCE_S)

    fleet.map(ask, [host for host in _hosts(fleet, state) if host.name == task.host])[0].get()


def _require_no_other_run(state: JobState) -> None:
    """Raise Busy if an older run is alive. It is if its hosts did not answer when the job was started elsewhere."""
    if state.others:
        tasks = ", ".join(f"{task} on {task.host}" for task in state.others)
        remedy = Lines(f"stop both runs: tfctl stop {state.job}", f"then {_FILE}")
        raise Busy(f"another run of {state.job} is still alive: {tasks}", remedy)


def _guard_port(fleet: Fleet, state: JobState, sessions: Sessions) -> int:
    """Return a port for the guard of the head, or 0 if it is the only host.

    If none is free, it is the port of the guard that is about to be stopped. Raise Taken if there is no such guard.
    """
    guard = state.record.guard
    if guard is None or len(state.hosts) == 1:
        return 0
    head = next(host for host in _hosts(fleet, state) if host.name == guard.head)
    held = sessions.hellos[head.name].ports
    try:
        return port_for_guard(head, {*held, *(task.record.port for task in state.tasks if task.host == head.name)})
    except Taken:
        if held.get(guard.port) == names.guard(state.job):
            return guard.port
        raise


def _requests(fleet: Fleet, state: JobState) -> dict[Host, wire.StartRequest]:
    code = state.record.code or None
    return {
        host: wire.StartRequest(state.job, code, host.ports, restart_of=state.attempt) for host in _hosts(fleet, state)
    }


def _hosts(fleet: Fleet, state: JobState) -> list[Host]:
    known = {host.name: host for host in fleet.hosts}
    missing = [name for name in state.hosts if name not in known]
    if missing:
        raise not_in_inventory(state, *missing)
    return [known[name] for name in state.hosts]


def _next(state: JobState, sessions: Sessions) -> int:
    """Return the next attempt's number. Raise NotFound if a host lacks what it needs, Busy if another start won."""
    tasks: dict[str, list[TaskState]] = {}
    for task in state.tasks:
        tasks.setdefault(task.host, []).append(task)
    gone = [_missing(state, host, hello, tasks.get(host, [])) for host, hello in sessions.hellos.items()]
    if any(gone):
        raise NotFound(Lines(*filter(None, gone)), _FILE)
    attempt = 1 + max(hello.highest for hello in sessions.hellos.values())
    if attempt != state.attempt + 1:
        raise _started_again(state)
    return attempt


def _started_again(state: JobState) -> Busy:
    return Busy(f"{state.job} has been started again in the meantime", f"tfctl status {state.job} shows it")


def _missing(state: JobState, host: str, hello: wire.Hello, tasks: Sequence[TaskState]) -> str:
    """Return a sentence about what the host no longer has of its ``tasks``; empty if it has everything."""
    gone = [str(task) for task in tasks if task.name not in hello.restartable]
    if gone:
        names = ", ".join(gone)
        return f"{host} no longer has the restart files of {names} of {state.job}: a stop or a reboot deletes them"
    return "" if hello.code else f"{host} no longer has the code of {state.job}"


def _stop(fleet: Fleet, state: JobState, say: Say) -> None:
    try:
        stop(fleet, state.job, run=state.record.run)
    except NotFound:
        raise _started_again(state) from None
    except KeyboardInterrupt:
        say(f"{state.job} is being stopped and will not be started again")
        raise
    except TfctlError:
        say(f"{state.job} was stopped on the hosts that answer, and not started again")
        raise


def _begin(
    fleet: Fleet, state: JobState, sessions: Sessions, others: OtherHosts, attempt: int, port: int
) -> wire.Record:
    """Start the attempt, whose guard gets this port."""
    run, now = secrets.token_hex(4), time.time()
    record = state.record._replace(attempt=attempt, run=run, started=now)
    planned = None
    if record.guard:
        record = record._replace(guard=record.guard._replace(port=port, origin=run, number=1))
        planned = wire.PlannedGuard(secrets.token_hex(32))
    refusals = sessions.reserve(dict.fromkeys(_hosts(fleet, state), wire.Rerun(record, planned)))
    if refusals:
        raise together([as_error(host, refusal) for host, refusal in refusals])
    if state.record.shared:
        sessions.require_shared(state.record.output)
    others.require_alone(run, attempt, _OTHER_START_S)
    sessions.go()
    unconfirmed = sessions.keep()
    if unconfirmed:
        from tfctl.jobs.start import stop_unconfirmed  # heavy: imports everything a job file needs

        raise stop_unconfirmed(fleet, record.job, record.run, unconfirmed)
    return record
