"""Restart a job as a new attempt, or one of its tasks in place, from what its hosts have kept.

No job file is read and no code is sent. Each host rebuilds its part of the plan from the previous attempt's units and
variables (tfctl.node.again), so the variables' values never leave the host.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfctl.errors import Busy, NotFound, TfctlError, together
from tfctl.jobs.state import ENDED, JobState, TaskState
from tfctl.jobs.stop import stop
from tfctl.jobs.talks import Talks, conversations
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import as_error, open_node
from tfctl.wording import devices, outline

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection

Say = Callable[[str], None]

#: Limits silence, not duration: a host that is still ending a task says so every wire.BEAT_S.
_SILENCE_S = 30.0
_FILE = "start it from its job file: tfctl start JOBFILE"


def restart(fleet: Fleet, state: JobState, say: Say) -> int:
    """Stop the job, run its next attempt on all its hosts or on none, and return the attempt's number.

    Nothing is stopped until every host has confirmed that it can run the job again; otherwise raise NotFound. If a
    host then refuses, raise its error; raise Undone as `start` does. In both cases the job stays stopped.
    """
    with conversations(fleet, state.job, _requests(fleet, state), say, "no other attempt was started") as talks:
        attempt = _next(state, talks)
        _stop(fleet, state, say)
        try:
            _begin(fleet, state, talks, attempt)
        except TfctlError:
            say(f"{state.job} was stopped, but its next attempt could not be started")
            raise
        except KeyboardInterrupt:
            if not talks.over:
                say(f"{state.job} was stopped and not started again")
            raise
    return attempt


def rehearse(fleet: Fleet, state: JobState) -> str:
    """Return what `restart` would do, one line per task. Queries the hosts; writes nothing. Raises as `restart`."""
    with conversations(fleet, state.job, _requests(fleet, state)) as talks:
        attempt = _next(state, talks)
    tasks = [
        (
            task.host,
            f"{task} at {task.address}:{task.port}{devices(task.gpus)}"
            + ("" if task.state in ENDED else f", {task.state} now"),
        )
        for task in state.tasks
    ]
    head = f"{state.job}: attempt {attempt}, {state.record['strategy']}"
    return outline(head, str(state.record["output"]), state.hosts, tasks)


def find_task(state: JobState, role: str, index: int | None) -> TaskState:
    """Return the named task; without an index, the only one of its role. Raise NotFound, listing the tasks."""
    found = [task for task in state.tasks if task.role == role and index in (None, task.index)]
    if len(found) != 1:
        what = f"has no {role}{'' if index is None else f' {index}'}" if not found else f"has {len(found)} of {role}"
        raise NotFound(f"{state.job} {what}", f"name one of {', '.join(map(str, state.tasks))}")
    return found[0]


def restart_task(fleet: Fleet, state: JobState, task: TaskState) -> None:
    """Stop one task and start it again, in place and in the same attempt.

    Raise NotFound if its unit is gone, or if no other task is left to work with it.
    """
    others = [other for other in state.tasks if other is not task and other.state not in ENDED]
    if state.state == "stopped":
        raise NotFound(f"{state.job} was stopped", _FILE)
    if state.state == "succeeded" or (state.ended and not others):
        raise NotFound(
            f"{state.job} has {state.state}, and {task} would be alone", f"the whole job: tfctl restart {state.job}"
        )

    def ask(connection: Connection) -> Any:
        request = wire.request("restart", job=state.job, attempt=state.attempt, tasks=[[task.role, task.index]])
        with open_node(connection, request) as channel:
            return channel.receive(_SILENCE_S)[1]

    fleet.map(ask, [host for host in _hosts(fleet, state) if host.name == task.host])[0].get()


def _requests(fleet: Fleet, state: JobState) -> dict[Host, bytes]:
    code, before = state.record.get("code") or None, state.attempt

    def request(host: Host) -> bytes:
        return wire.request("start", job=state.job, code=code, ports=host.ports, resolve=[], again=before)

    return {host: request(host) for host in _hosts(fleet, state)}


def _hosts(fleet: Fleet, state: JobState) -> list[Host]:
    known = {host.name: host for host in fleet.hosts}
    missing = [name for name in state.hosts if name not in known]
    if missing:
        raise NotFound(
            f"{', '.join(missing)}, where {state.job} has tasks, is not in this inventory", "name another with -i"
        )
    return [known[name] for name in state.hosts]


def _next(state: JobState, talks: Talks) -> int:
    """Return the next attempt's number. Raise NotFound if a host lacks what it needs, Busy if another start won."""
    gone = [_missing(state, host, hello) for host, hello in talks.hellos.items()]
    if any(gone):
        raise NotFound("\n".join(filter(None, gone)), _FILE)
    attempt = 1 + max(int(hello["highest"]) for hello in talks.hellos.values())
    if attempt != state.attempt + 1:
        raise Busy(f"{state.job} has been started again meanwhile", f"tfctl status {state.job} shows it")
    return attempt


def _missing(state: JobState, host: str, hello: Mapping[str, Any]) -> str:
    """Return a sentence about what the host no longer has of its part; empty if it has everything."""
    kept = {tuple(name) for name in hello.get("again", ())}
    gone = [str(task) for task in state.tasks if task.host == host and (task.role, task.index) not in kept]
    if gone:
        names = ", ".join(gone)
        return f"{host} no longer knows what {names} of {state.job} was started with, as after a stop or a reboot"
    return "" if hello["code"] else f"{host} no longer has the code of {state.job}"


def _stop(fleet: Fleet, state: JobState, say: Say) -> None:
    try:
        stop(fleet, state.job)
    except KeyboardInterrupt:
        say(f"{state.job} is being stopped and will not be started again")
        raise
    except TfctlError:
        say(f"{state.job} was stopped on the hosts that answer, and not started again")
        raise


def _begin(fleet: Fleet, state: JobState, talks: Talks, attempt: int) -> None:
    run = secrets.token_hex(4)
    record = {**state.record, "attempt": attempt, "run": run, "started": time.time()}
    value = {"job": state.job, "attempt": attempt, "run": run, "record": record}
    refusals = talks.reserve(dict.fromkeys(_hosts(fleet, state), value))
    if refusals:
        raise together([as_error(host, refusal) for host, refusal in refusals])
    if state.record.get("shared"):
        talks.require_shared(str(state.record["output"]))
    talks.go()
    unsaid = talks.keep()
    if unsaid:
        from tfctl.jobs.start import torn  # heavy: imports everything a job file needs

        raise torn(fleet, state.job, unsaid)
